"""The content of a pod's object, read once at each sight of the pod and kept in its record."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

import msgspec

from extender.engine.state.intree import ANYWHERE, Constraints, constraints
from extender.engine.types import trust
from gangfilter import dialects
from gangfilter.values import Reader, both, run_time
from protos.contract import idle, names
from protos.contract.bounds import GRACE, NAME
from protos.contract.objects import Pod
from protos.contract.printable import brief
from protos.contract.priority import NEVER
from protos.contract.timestamps import epoch_seconds

GRACE_S = 30.0
"""The default grace period. Source: core/v1 PodSpec.terminationGracePeriodSeconds."""
SLACK_S = 60.0
"""The most by which the clocks of the API server and this process differ."""
MOST_GATES = 8
"""Scheduling gates of others that are kept."""
SHARED = 4096
"""Owners that are cached, so that their pods share one object."""
_ORDINAL = re.compile(r"(-[bcdfghjklmnpqrstvwxz2456789]{5}|[-.]?[0-9]+)$")
"""The suffix of a run's name: a number, or what the API server appends to a generateName."""
Clock = Callable[[str | None, float], float]
"""`Wall.clock`."""
Owner = tuple[str, str]
"""Namespace, and name without the suffix of a run."""


class PodInfo(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The content of one pod's object. Times are of the monotonic clock as it was when the object was read."""

    ours: bool = False
    """It names one of our schedulers."""
    scheduler: str = ""
    """The scheduler that it names, if that is none of ours."""
    gated: bool = False
    """It has our scheduling gate."""
    gates: tuple[str, ...] = ()
    """The scheduling gates of others that hold it back."""
    message: str = ""
    """Why kube-scheduler has found no node for it, in its own words."""
    nominated: str = ""
    """The node to which it is nominated, while it has no node."""
    nominated_by_us: bool = False
    """That was written by an extender."""
    unschedulable: bool = False
    """kube-scheduler has found no node for it."""
    never: bool = False
    """Its preemption policy is Never."""
    endless: bool = False
    """It does not end by itself: the kubelet restarts its containers."""
    on_node: bool = False
    running: bool = False
    """Its phase is Running: disruption budgets count it."""
    movable: bool = False
    """It is on a node, allows moves by annotation, and its controller recreates it as a pod of ours."""
    leaving: bool = False
    """On a node, and terminating within `bounds.GRACE`."""
    lingers: bool = False
    """On a node, and terminating with a longer grace period."""
    ends: float = 0.0
    """When the grace period of a terminating pod is over."""
    since: float = 0.0
    """When it was scheduled."""
    saved: float = 0.0
    """Its last checkpoint or its start: an eviction loses the work since then."""
    idle_since: float = math.inf
    """Since when it uses none of its GPUs, as the measuring process says; infinity if it does not say so."""
    idle_until: float = 0.0
    """Until when that is believed."""
    grace_s: float = GRACE_S
    """The grace period of an eviction."""
    hurried: bool = False
    """That is shorter than its own grace period."""
    labels: Mapping[str, str] = {}
    """Of a pod on a node, for disruption budgets."""
    created: float = 0.0
    """In seconds since 1970; 0 if unknown."""
    constraints: Constraints = ANYWHERE
    """Those by which it was placed, if it is on a node."""
    queue: str = ""
    """The queue that the pod itself names, "" if none."""
    gpu_class: str = ""
    """The GpuClass that it names, "" if none."""
    demands: bool = False
    """It says itself how parts of GPUs must be isolated."""
    owner: Owner | None = None
    """Its controller, by the name at the first sight."""
    expected_s: float = math.inf
    """Its expected run time at the first sight; infinity if unknown."""

    @property
    def stays(self) -> bool:
        """Whether it is ours and on a node, and does not terminate within `bounds.GRACE`."""
        return self.ours and self.on_node and not self.leaving

    def idle_s(self, now: float) -> float:
        """For how long it has used none of its GPUs, 0 if that is not known."""
        return max(0.0, now - self.idle_since) if now < self.idle_until else 0.0


UNREAD = PodInfo()
"""Of a pod that was not read yet or is in quarantine."""
_NONE: Mapping[str, str] = {}


def read(pod: Pod, before: PodInfo, schedulers: Collection[str], clock: Clock, now: float) -> PodInfo:
    """Read a pod; `before` is the last result for it. `schedulers` are ours; if empty, all are."""
    meta, spec, annotations = pod.metadata, pod.spec, pod.metadata.annotations
    ours, on_node = not schedulers or spec.scheduler_name in schedulers, bool(spec.node_name)
    deleted, grace = meta.deletion_timestamp, spec.termination_grace_period_seconds
    scheduled = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
    refused = scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable"
    since = saved = ends = 0.0
    if on_node:
        start = scheduled.last_transition_time if scheduled is not None else pod.status.start_time
        since = clock(start, before.since if before.on_node else now)
        saved = max(since, min(now, clock(annotations.get(names.CHECKPOINT), since)))
        ends = clock(deleted, now)
    lingers = on_node and _lingers(deleted is not None, ends, now)
    restartable = not deleted and on_node and annotations.get(names.RESTARTABLE) == "true"
    said = idle.of(pod) if on_node else None
    nominated = "" if on_node else pod.status.nominated_node_name or ""
    return PodInfo(
        ours=ours,
        scheduler="" if ours else sys.intern(brief(spec.scheduler_name, NAME.most)),
        nominated=nominated,
        nominated_by_us=bool(nominated) and trust.nominated_by_us(pod),
        gated=any(gate.name == names.PLAN_GATE for gate in spec.scheduling_gates),
        gates=tuple(gate.name for gate in spec.scheduling_gates if gate.name != names.PLAN_GATE)[:MOST_GATES],
        message=brief(scheduled.message) if scheduled is not None and refused and not on_node else "",
        unschedulable=refused and not spec.scheduling_gates,
        never=spec.preemption_policy == NEVER,
        endless=spec.restart_policy == "Always",
        on_node=on_node,
        running=pod.status.phase == "Running",
        movable=ours and restartable and any(owner.controller for owner in meta.owner_references),
        leaving=on_node and bool(deleted) and not lingers,
        lingers=lingers,
        ends=ends,
        since=since,
        saved=saved,
        idle_since=clock(said.since, now) if said else math.inf,
        idle_until=clock(said.until, 0.0) if said else 0.0,
        grace_s=GRACE_S if grace is None else float(GRACE.capped(grace)),
        hurried=grace is not None and grace > GRACE.most,
        labels=meta.labels if on_node else _NONE,
        created=before.created or _created(meta.creation_timestamp),
        constraints=before.constraints if on_node and before is not UNREAD else constraints(pod),
        queue=sys.intern(dialects.queue(pod)),
        gpu_class=sys.intern(annotations.get(names.GPU_CLASS, "")),
        demands=names.ISOLATION in annotations,
        owner=before.owner if before is not UNREAD else owner_of(pod),
        expected_s=before.expected_s if before is not UNREAD else expected_runtime(pod)[0],
    )


def shifted(info: PodInfo, by: float, now: float) -> PodInfo:
    """The info after the wall clock moved ahead by these seconds: all of its times are earlier."""
    deleted, ends = info.leaving or info.lingers, info.ends - by
    lingers = _lingers(deleted, ends, now)
    return msgspec.structs.replace(
        info,
        since=info.since - by,
        saved=info.saved - by,
        idle_since=info.idle_since - by,
        idle_until=info.idle_until - by,
        ends=ends,
        leaving=deleted and not lingers,
        lingers=lingers,
    )


def _lingers(deleted: bool, ends: float, now: float) -> bool:
    return deleted and ends > now + GRACE.most + SLACK_S


def _created(timestamp: str | None) -> float:
    try:
        return epoch_seconds(timestamp) if timestamp else 0.0
    except ValueError:
        return 0.0


def expected_runtime(pod: Pod) -> tuple[float, list[str]]:
    """The run time that the pod announces, infinity if none, and the problems of reading it."""
    reader = Reader(pod.metadata.annotations, pod.metadata.labels)
    return reader.read(run_time, *both(names.EXPECTED_RUNTIME)) or math.inf, reader.problems


def owner_of(pod: Pod) -> Owner | None:
    """The pod's controller, without the suffix of a run."""
    name = next((owner.name for owner in pod.metadata.owner_references if owner.controller), None)
    return _owner(pod.metadata.namespace, stem(name)) if name else None


@lru_cache(maxsize=SHARED)
def _owner(namespace: str, name: str) -> Owner:
    return namespace, f"pods of {name}"


def stem(name: str) -> str:
    """A name without the suffix of a run."""
    return _ORDINAL.sub("", name)

"""What a pod's object says: read here once at each sight of it, and asked of the pod's record from then on."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

import msgspec

from extender.engine.state.intree import ANYWHERE, Constraints, constraints
from gangfilter import dialects
from gangfilter.values import Reader, annotation, run_time
from protos.contract import names
from protos.contract.bounds import GRACE
from protos.contract.objects import Pod
from protos.contract.priority import NEVER
from protos.contract.timestamps import epoch_seconds

GRACE_S = 30.0
"""Seconds that a pod has to end, if it does not say. Source: core/v1 PodSpec.terminationGracePeriodSeconds."""
SLACK_S = 60.0
"""By which the clocks of the API server and this process may differ."""
SHARED = 4096
"""Owners of which pods share one object."""
_ORDINAL = re.compile(r"(-[bcdfghjklmnpqrstvwxz2456789]{5}|[-.]?[0-9]+)$")
"""What tells runs of one thing apart by name: a number, or what the API server appends to a generateName."""
Clock = Callable[[str | None, float], float]
"""A time of the API on the monotonic clock, or another if there is none."""
Owner = tuple[str, str]
"""Namespace, and name without what tells runs apart."""


class PodInfo(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the object of one pod says. Times are of the monotonic clock, as of the sight at which it was read."""

    ours: bool = False
    """It names one of our schedulers: so would another in its place."""
    gated: bool = False
    """Our scheduling gate is on it."""
    unschedulable: bool = False
    """kube-scheduler has found no node for it."""
    never: bool = False
    """Nobody shall be evicted for it."""
    endless: bool = False
    """It does not end by itself: its kubelet starts it anew."""
    on_node: bool = False
    running: bool = False
    """Its phase is Running: a disruption budget may guard it."""
    movable: bool = False
    """It is on a node, says that it may be moved, and its controller makes another in its place, which is ours."""
    leaving: bool = False
    """On a node: it was told to end, and has to within `bounds.GRACE`."""
    lingers: bool = False
    """On a node: it was told to end, but may take longer than that."""
    ends: float = 0.0
    """When the grace of one that was told to end is over."""
    since: float = 0.0
    """When it got its node."""
    saved: float = 0.0
    """Until when its work is not lost: its start, or the last checkpoint that it tells of."""
    grace_s: float = GRACE_S
    """What an eviction gives it to end."""
    hurried: bool = False
    """That is less than it says itself."""
    labels: Mapping[str, str] = {}
    """Of one that is on a node; budgets select by them."""
    created: float = 0.0
    """In s since 1970; 0 if nobody says."""
    constraints: Constraints = ANYWHERE
    """Which nodes it may go to."""
    queue: str = ""
    """The queue that it names by itself, "" if none."""
    gpu_class: str = ""
    """The GpuClass that it names, "" if none."""
    owner: Owner | None = None
    """Whose run it is: its controller's, by its name as it was at first."""
    expected_s: float = math.inf
    """How long it runs, as it said at first; infinity if it did not."""

    @property
    def stays(self) -> bool:
        """Whether it is ours, on a node, and was not told to leave that."""
        return self.ours and self.on_node and not self.leaving


UNREAD = PodInfo()
"""Of a pod that was not read yet, or is set aside."""
_NONE: Mapping[str, str] = {}


def read(pod: Pod, before: PodInfo, schedulers: Collection[str], clock: Clock, now: float) -> PodInfo:
    """What the pod says; `before`: what was read of it the last time.

    `schedulers` are ours, all if none; `clock` is `Wall.clock`.
    """
    meta, spec, annotations = pod.metadata, pod.spec, pod.metadata.annotations
    ours, on_node = not schedulers or spec.scheduler_name in schedulers, bool(spec.node_name)
    told, grace = meta.deletion_timestamp, spec.termination_grace_period_seconds
    scheduled = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
    refused = scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable"
    since = saved = ends = 0.0
    if on_node:
        start = scheduled.last_transition_time if scheduled is not None else pod.status.start_time
        since = clock(start, before.since if before.on_node else now)
        saved = max(since, min(now, clock(annotations.get(names.CHECKPOINT), since)))
        ends = clock(told, now)
    lingers = on_node and _lingers(told is not None, ends, now)
    restartable = not told and on_node and annotations.get(names.RESTARTABLE) == "true"
    return PodInfo(
        ours=ours,
        gated=any(gate.name == names.PLAN_GATE for gate in spec.scheduling_gates),
        unschedulable=refused and not spec.scheduling_gates,
        never=spec.preemption_policy == NEVER,
        endless=spec.restart_policy == "Always",
        on_node=on_node,
        running=pod.status.phase == "Running",
        movable=ours and restartable and any(owner.controller for owner in meta.owner_references),
        leaving=on_node and bool(told) and not lingers,
        lingers=lingers,
        ends=ends,
        since=since,
        saved=saved,
        grace_s=GRACE_S if grace is None else float(GRACE.capped(grace)),
        hurried=grace is not None and grace > GRACE.most,
        labels=meta.labels if on_node else _NONE,
        created=before.created or _created(meta.creation_timestamp),
        constraints=constraints(pod),
        queue=sys.intern(dialects.queue(pod)),
        gpu_class=sys.intern(annotations.get(names.GPU_CLASS, "")),
        owner=before.owner if before is not UNREAD else owner_of(pod),
        expected_s=before.expected_s if before is not UNREAD else expected_runtime(pod)[0],
    )


def shifted(info: PodInfo, by: float, now: float) -> PodInfo:
    """The same after the wall clock was set forward by so much: all that was read by it was so much earlier."""
    told, ends = info.leaving or info.lingers, info.ends - by
    lingers = _lingers(told, ends, now)
    since, saved = info.since - by, info.saved - by
    return msgspec.structs.replace(
        info, since=since, saved=saved, ends=ends, leaving=told and not lingers, lingers=lingers
    )


def _lingers(told: bool, ends: float, now: float) -> bool:
    """Whether one that was told to end may take longer than it may."""
    return told and ends > now + GRACE.most + SLACK_S


def _created(timestamp: str | None) -> float:
    try:
        return epoch_seconds(timestamp) if timestamp else 0.0
    except ValueError:
        return 0.0


def expected_runtime(pod: Pod) -> tuple[float, list[str]]:
    """How long the pod says that it runs, infinity if it does not; and what of that cannot be read."""
    reader = Reader(pod.metadata.annotations, {})
    return reader.read(run_time, annotation(names.EXPECTED_RUNTIME)) or math.inf, reader.problems


def owner_of(pod: Pod) -> Owner | None:
    """Whose run it is: its controller, without what tells runs of that apart."""
    name = next((owner.name for owner in pod.metadata.owner_references if owner.controller), None)
    return _owner(pod.metadata.namespace, stem(name)) if name else None


@lru_cache(maxsize=SHARED)
def _owner(namespace: str, name: str) -> Owner:
    """The same object for pods of one owner."""
    return namespace, f"pods of {name}"


def stem(name: str) -> str:
    """A name without what tells runs of one thing apart."""
    return _ORDINAL.sub("", name)

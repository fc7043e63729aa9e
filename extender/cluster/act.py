"""Carries out the engine's effects: requeues, evictions, Events, statuses of our kinds, scalers, restored annotations.

Every effect may be repeated without harm. So one that fails by a passing error is tried a few times and then dropped:
the engine sends it again if it still matters. Of equal effects that wait only the latest is carried out.
"""

import asyncio
import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from extender.cluster import status
from extender.cluster.group_status import StatusWriter
from extender.cluster.leadership import NotLeading, Permission
from extender.cluster.pending import Complaint, Key, Notice, Pending, Status, Write, identity
from extender.engine.types.effects import (
    ClassStatus,
    Evict,
    Fault,
    GroupStatus,
    PodRef,
    QueueStatus,
    RemoveNomination,
    Report,
    ReportNode,
    ReportOwner,
    Requeue,
    Scale,
    SetAnnotation,
    Unscale,
)
from extender.engine.types.subject import Subject
from extender.faults import Faults
from gangfilter.table import Phase
from protos.contract import gpu_class, names, queue_sources, training
from protos.contract.reason import Reason
from protos.kube import errors, paths
from protos.kube.client import STRATEGIC_PATCH, ApiClient
from protos.kube.events import PASSING, Recorder, Reference

MOST_ACTS, MOST_NOTICES = 65_536, 8192
"""The most effects that wait while the API server does not take them; the engine sends again what still matters."""
IN_FLIGHT, NOTICES_IN_FLIGHT = 24, 2
"""Effects carried out at the same time: acts, which change something, and notices. The rest of the client's writes are
left to Bindings. A busy API server serves each client by its requests in flight, so with fewer of ours it would serve
kube-scheduler's refusals of pods instead."""
NOTICE_PAUSE_S = 0.5
"""Pause after a notice while any act is in flight: 500 Events cost as much as 250 evictions."""
TRIES = 5
PAUSE_S = 0.25
"""Pause before the second try; doubled for each further one."""
STATUS_PAUSE_S = 1.0
"""Pause between two writes of one object's status."""

log = structlog.get_logger(__name__)
_MOOT = (errors.NotFound, errors.Conflict)
"""The pod is gone, replaced (its UID differs) or changed since: its watch brings the news to the engine."""
PHASES_WITH_EVENT = (Phase.WAITING, Phase.DEGRADED, Phase.FAILED)
"""Phases whose reason is also an Event of the PodGroup. A gang that assembles would get one at each start."""
_KINDS = {
    "node": ("v1", "Node"),
    "class": (gpu_class.API_VERSION, gpu_class.KIND),
    "budget": ("policy/v1", "PodDisruptionBudget"),
    "priority": ("scheduling.k8s.io/v1", "PriorityClass"),
}
"""API version and kind of the cluster's objects that the engine may set aside."""
_QUEUES = {source.api_version: source.kind for source in queue_sources.SOURCES}


class Actor:
    """The waiting effects, and the workers that carry them out."""

    def __init__(
        self,
        client: ApiClient,
        permission: Permission,
        events: Recorder,
        failed: Callable[[str], None],
        faults: Faults,
    ) -> None:
        """`failed` counts a dropped effect, by its kind."""
        self._client, self._permission, self._events = client, permission, events
        self._failed, self._faults = failed, faults
        self.refused: Callable[[str, str], None] = lambda _uid, _why: None
        """Called with a pod (UID) whose eviction a disruption budget forbids, and why, unless the effect insists."""
        self._statuses = StatusWriter(client)
        self._acts, self._notices = Pending(MOST_ACTS), Pending(MOST_NOTICES)
        """Effects that change something, and notices, which must not slow down the former."""
        self._resting: dict[Key, Write | None] = {}
        """Statuses that are being written or were written a moment ago, and the next status to write."""

    def submit(self, effects: Iterable[Write]) -> None:
        """Queue effects; never blocks."""
        for effect in effects:
            key, _ = identity(effect)
            if key in self._resting:
                self._resting[key] = effect
                continue
            waiting = self._notices if isinstance(effect, Notice) else self._acts
            dropped = waiting.put(key, effect)
            if dropped is not None:
                self._failed(type(dropped).__name__)

    async def run(self) -> None:
        """Carry out submitted effects, for ever."""
        async with asyncio.TaskGroup() as workers:
            for waiting, count in ((self._acts, IN_FLIGHT), (self._notices, NOTICES_IN_FLIGHT)):
                for _ in range(count):
                    workers.create_task(self._work(waiting))

    async def _work(self, waiting: Pending) -> None:
        while True:
            key, effect = await waiting.next()
            waiting.in_flight += 1
            rests = isinstance(effect, Status)
            if rests:
                self._resting[key] = None
            with self._faults.over("effect", f"{type(effect).__name__} {identity(effect)[1]}") as work:
                await self._permission.settled()
                await self._carry_out(effect)
            if work.failed:
                self._failed(type(effect).__name__)
            waiting.in_flight -= 1
            if rests:
                asyncio.get_running_loop().call_later(STATUS_PAUSE_S, self._rested, key)
            if waiting is self._notices and self._acts.in_flight:
                await asyncio.sleep(NOTICE_PAUSE_S)

    def _rested(self, key: Key) -> None:
        latest = self._resting.pop(key)
        if latest is not None:
            self.submit([latest])

    async def _carry_out(self, effect: Write) -> None:
        logged = {"kind": type(effect).__name__, "about": identity(effect)[1]}
        for attempt in range(1, TRIES + 1):
            try:
                await self._write(effect)
                log.debug("effect", **logged)
                return
            except NotLeading as error:
                log.debug("effect_left", why=error.message, **logged)
                return
            except _MOOT as error:
                log.debug("effect_moot", why=str(error), **logged)
                return
            except errors.ApiError as error:
                if isinstance(effect, Evict) and _forbidden_by_budget(error):
                    log.info("eviction_refused", error=str(error), **logged)
                    self.refused(effect.pod.uid, error.message)
                    return
                if not isinstance(error, PASSING) or attempt == TRIES:
                    log.warning("effect_failed", error=str(error), tries=attempt, **logged)
                    self._failed(logged["kind"])
                    return
            await asyncio.sleep(PAUSE_S * 2 ** (attempt - 1))

    async def _write(self, effect: Write) -> None:
        match effect:
            case Requeue(pod, node, gated, nominate):
                await self._requeue(pod, node if nominate else "", gated=gated)
            case RemoveNomination(pod):
                await self._patch(pod, {}, {"status": {"nominatedNodeName": None}})
            case SetAnnotation(pod, key, value, version):
                precondition = {"resourceVersion": version} if version else {}
                await self._patch(pod, {key: value}, None, **precondition)
            case Report(pod, reason, warning):
                about = Reference("v1", "Pod", pod.name, pod.namespace, pod.uid)
                await self._tell(about, reason, warning=warning)
            case Complaint(about, reason):
                await self._tell(about, reason)
            case ReportOwner(namespace, owner, reason):
                about = Reference(owner.api_version, owner.kind, owner.name, namespace, owner.uid)
                await self._tell(about, reason)
            case ReportNode(node, reason):
                await self._tell(_of_cluster("node", node), reason)
            case Fault(subject, why=reason):
                if (blamed := _set_aside(subject)) is not None:
                    await self._tell(blamed, reason)
            case Evict(pod, reason, insist, grace_s):
                await self._evict(pod, insist=insist, grace_s=grace_s)
                self.submit([Report(pod, reason)])
            case Scale() | Unscale():
                await self._scale(effect)
            case GroupStatus():
                written = await self._statuses.write(effect)
                if effect.reason is not None and effect.phase in PHASES_WITH_EVENT:
                    self.submit([Complaint(about, effect.reason) for about in written])
            case ClassStatus() | QueueStatus():
                await status.write(self._client, effect)

    async def _tell(self, about: Reference, reason: Reason, *, warning: bool = True) -> None:
        self._permission.require()  # otherwise the recorder would remember it as posted
        await self._events.post(about, reason.code, str(reason), kind="Warning" if warning else "Normal")

    async def _requeue(self, pod: PodRef, node: str, *, gated: bool) -> None:
        if node or not gated:
            now = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")
            await self._patch(pod, {names.WAKE: now}, {"status": {"nominatedNodeName": node}} if node else {})
        if gated:  # the last write: from then on kube-scheduler takes the pod
            gates = [{"$patch": "delete", "name": names.PLAN_GATE}]
            body = {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": gates}}
            await self._client.patch(paths.pod(pod.namespace, pod.name), body, content_type=STRATEGIC_PATCH)

    async def _patch(
        self, pod: PodRef, annotations: dict[str, Any], status: dict[str, Any] | None = None, **preconditions: str
    ) -> None:
        """Patch annotations and status of the pod with this UID; another pod of the same name is a Conflict."""
        metadata = {"uid": pod.uid, **preconditions, "annotations": annotations}
        path, params = paths.pod(pod.namespace, pod.name, "status"), {"fieldManager": names.EXTENDER}
        await self._client.patch(path, {"metadata": metadata, **(status or {})}, params=params)

    async def _evict(self, pod: PodRef, *, insist: bool, grace_s: int | None) -> None:
        """Evict the pod with this UID, by default with its own grace period."""
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        metadata = {"namespace": pod.namespace, "name": pod.name}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
        try:
            await self._client.post(paths.pod(pod.namespace, pod.name, "eviction"), body)
        except errors.ApiError as error:
            if not (insist and _forbidden_by_budget(error)):
                raise
            log.info("eviction_insisted", pod=str(pod), uid=pod.uid, error=str(error))
            body = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
            await self._client.delete(paths.pod(pod.namespace, pod.name), body)

    async def _scale(self, effect: Scale | Unscale) -> None:
        """Create or delete a ScaleIn or ScaleOut, by which ET-operator resizes a TrainingJob."""
        scaler = effect.scaler
        plural = training.PLURALS[scaler.kind]
        where = {"group_version": training.API_VERSION, "plural": plural, "namespace": scaler.namespace}
        if isinstance(effect, Scale):
            await self._client.post(paths.path(**where), training.body(scaler))
        else:
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": scaler.uid}}
            await self._client.delete(paths.path(**where, name=scaler.name), body)


def _forbidden_by_budget(error: errors.ApiError) -> bool:
    """Whether a disruption budget forbids an eviction, or several budgets select the pod (the answer is a 500 then).

    Source: registry/core/pod/storage eviction.go.
    """
    several = isinstance(error, errors.Unavailable) and "PodDisruptionBudget" in error.message
    return several or isinstance(error, errors.Protected)


def _set_aside(subject: Subject) -> Reference | None:
    """The object that the engine set aside; None for parts of the engine, pods and gangs (their pods get Events)."""
    namespace, _, name = subject.key.rpartition("/")
    match subject.kind:
        case "queue" if subject.source in _QUEUES:
            return Reference(subject.source, _QUEUES[subject.source], name, namespace)
        case "scaler":
            return Reference(training.API_VERSION, subject.source, name, namespace)
        case kind if kind in _KINDS:
            return _of_cluster(kind, name, namespace)
        case _:
            return None


def _of_cluster(kind: str, name: str, namespace: str = "") -> Reference:
    """An object of one of the `_KINDS`."""
    uid = name if kind == "node" else ""  # as the kubelet's own Events have it
    return Reference(*_KINDS[kind], name, namespace, uid)

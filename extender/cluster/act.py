"""Carries out the engine's effects: wakes, evictions, Events, statuses of our kinds, scalers, annotations put back.

All of them may be repeated without harm, so a failure that may pass is tried again a few times and then let go: the
engine says it again where it still matters. Of equal effects that still wait only the latest is carried out.
"""

import asyncio
import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from extender.cluster import faults, status
from extender.cluster.group_status import StatusWriter
from extender.cluster.leadership import NotLeading, Permission
from extender.cluster.pending import Complaint, Key, Pending, Status, Told, Write, identity
from extender.engine.types.effects import (
    ClassStatus,
    Evict,
    Fault,
    GroupStatus,
    PodRef,
    QueueStatus,
    Report,
    ReportOwner,
    Requeue,
    Scale,
    SetAnnotation,
    Unscale,
)
from extender.faults import Faults
from gangfilter.table import Phase
from protos.contract import names, training
from protos.contract.reason import Reason
from protos.kube import errors, paths
from protos.kube.client import STRATEGIC_PATCH, ApiClient
from protos.kube.events import Recorder, Reference

MOST_ACTS, MOST_TOLD = 65_536, 8192
"""Effects that wait at most, while the API server does not take them; the engine says again what still matters."""
IN_FLIGHT, TOLD_IN_FLIGHT = 24, 2
"""Effects carried out at the same time: those that change something, and those that are only told. The rest of the
client's writes are left to Bindings. Of an API server that is busy each gets as much as it has requests there, so with
fewer of ours kube-scheduler would get on with refusing pods instead."""
TOLD_PAUSE_S = 0.5
"""After one that is only told, while any of the others is under way: 500 Events cost as much as 250 evictions."""
TRIES = 5
PAUSE_S = 0.25
"""Before the second try; doubled for each further one."""
STATUS_PAUSE_S = 1.0
"""Between two writes of one object's status."""

log = structlog.get_logger(__name__)
_PASSES = (errors.Unavailable, errors.TooMany)
_MOOT = (errors.NotFound, errors.Conflict)
"""The pod is gone, replaced (its UID differs), or changed since: whoever saw that decides anew."""
TOLD_ON_GROUPS = (Phase.WAITING, Phase.DEGRADED, Phase.FAILED)
"""Phases whose reason is told in an Event of the PodGroup too. One that assembles would get one at each start."""


class Actor:
    """Effects that wait and those who carry them out."""

    def __init__(
        self,
        client: ApiClient,
        permission: Permission,
        events: Recorder,
        failed: Callable[[str], None],
        faults: Faults,
    ) -> None:
        """`failed` counts an effect that was given up, by the kind of effect."""
        self._client, self._permission, self._events = client, permission, events
        self._failed, self._faults = failed, faults
        self.refused: Callable[[str, str], None] = lambda _uid, _why: None
        """Told of a pod (UID) whose eviction a disruption budget forbids and was not insisted on, and why."""
        self._statuses = StatusWriter(client)
        self._acts, self._told = Pending(MOST_ACTS), Pending(MOST_TOLD)
        """What changes something, and what is only told, which is to take little from the former."""
        self._resting: dict[Key, Write | None] = {}
        """Statuses being written, or written a moment ago, and what is to be said next."""

    def submit(self, effects: Iterable[Write]) -> None:
        """Queue effects; never blocks."""
        for effect in effects:
            key, _ = identity(effect)
            if key in self._resting:
                self._resting[key] = effect
                continue
            waiting = self._told if isinstance(effect, Told) else self._acts
            dropped = waiting.put(key, effect)
            if dropped is not None:
                self._failed(type(dropped).__name__)

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be carried out."""
        return not self._acts and not self._told

    async def run(self) -> None:
        """Carry out what is submitted, for ever."""
        async with asyncio.TaskGroup() as workers:
            for waiting, many in ((self._acts, IN_FLIGHT), (self._told, TOLD_IN_FLIGHT)):
                for _ in range(many):
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
            if waiting is self._told and self._acts.in_flight:
                await asyncio.sleep(TOLD_PAUSE_S)

    def _rested(self, key: Key) -> None:
        latest = self._resting.pop(key)
        if latest is not None:
            self.submit([latest])

    async def _carry_out(self, effect: Write) -> None:
        told = {"kind": type(effect).__name__, "about": identity(effect)[1]}
        for attempt in range(1, TRIES + 1):
            try:
                await self._write(effect)
                log.debug("effect", **told)
                return
            except NotLeading as error:
                log.debug("effect_left", why=error.why, **told)
                return
            except _MOOT as error:
                log.debug("effect_moot", why=str(error), **told)
                return
            except errors.ApiError as error:
                if isinstance(effect, Evict) and _held_by_budget(error):
                    log.info("eviction_refused", error=str(error), **told)
                    self.refused(effect.pod.uid, error.message)
                    return
                if not isinstance(error, _PASSES) or attempt == TRIES:
                    log.warning("effect_failed", error=str(error), tries=attempt, **told)
                    self._failed(told["kind"])
                    return
            await asyncio.sleep(PAUSE_S * 2 ** (attempt - 1))

    async def _write(self, effect: Write) -> None:
        match effect:
            case Requeue(pod, node, gated, nominate):
                await self._wake(pod, node if nominate else "", gated=gated)
            case SetAnnotation(pod, key, value, version):
                only: dict[str, str] = {"resourceVersion": version} if version else {}
                await self._patch(pod, {key: value}, None, **only)
            case Report(pod, reason, warning):
                await self._tell(_reference(pod), reason, warning=warning)
            case Complaint(about, reason):
                await self._tell(about, reason)
            case ReportOwner(namespace, owner, reason):
                about = Reference(owner.api_version, owner.kind, owner.name, namespace, owner.uid)
                await self._tell(about, reason)
            case Fault(subject, why=reason):
                blamed = faults.about(subject)
                if blamed is not None:
                    await self._tell(blamed, reason)
            case Evict(pod, reason, insist, grace_s):
                await self._evict(pod, insist=insist, grace_s=grace_s)
                self.submit([Report(pod, reason)])
            case Scale() | Unscale():
                await self._scale(effect)
            case GroupStatus():
                written = await self._statuses.write(effect)
                if effect.reason is not None and effect.phase in TOLD_ON_GROUPS:
                    self.submit([Complaint(about, effect.reason) for about in written])
            case ClassStatus():
                await status.write_class(self._client, effect)
            case QueueStatus():
                await status.write_queue(self._client, effect)

    async def _tell(self, about: Reference, reason: Reason, *, warning: bool = True) -> None:
        self._permission.require()  # else the recorder takes it for told
        await self._events.post(about, reason.code, str(reason), kind="Warning" if warning else "Normal")

    async def _wake(self, pod: PodRef, node: str, *, gated: bool) -> None:
        if node or not gated:
            now = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")
            await self._patch(pod, {names.WAKE: now}, {"status": {"nominatedNodeName": node}} if node else {})
        if gated:  # the last to do: from then on kube-scheduler takes the pod
            gates = [{"$patch": "delete", "name": names.PLAN_GATE}]
            body = {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": gates}}
            await self._client.patch(paths.pod(pod.namespace, pod.name), body, content_type=STRATEGIC_PATCH)

    async def _patch(
        self, pod: PodRef, annotations: dict[str, Any], status: dict[str, Any] | None = None, **preconditions: str
    ) -> None:
        """Patch annotations of the pod with this UID, and its status; another pod of the same name is a Conflict."""
        metadata = {"uid": pod.uid, **preconditions, "annotations": annotations}
        path, params = paths.pod(pod.namespace, pod.name, "status"), {"fieldManager": names.EXTENDER}
        await self._client.patch(path, {"metadata": metadata, **(status or {})}, params=params)

    async def _evict(self, pod: PodRef, *, insist: bool, grace_s: int | None) -> None:
        """Evict the pod with this UID, with its own grace period if none is given."""
        only: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        only |= {"gracePeriodSeconds": grace_s} if grace_s is not None else {}
        metadata = {"namespace": pod.namespace, "name": pod.name}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": only}
        try:
            await self._client.post(paths.pod(pod.namespace, pod.name, "eviction"), body)
        except errors.ApiError as error:
            if not (insist and _held_by_budget(error)):
                raise
            log.info("eviction_insisted", pod=str(pod), uid=pod.uid, error=str(error))
            await self._client.delete(
                paths.pod(pod.namespace, pod.name), {"kind": "DeleteOptions", "apiVersion": "v1", **only}
            )

    async def _scale(self, said: Scale | Unscale) -> None:
        """Make or delete a ScaleIn or ScaleOut, which asks ET-operator to resize a TrainingJob."""
        kind, namespace = said.scaler.kind, said.scaler.namespace
        where = {"group_version": training.API_VERSION, "plural": training.PLURALS[kind], "namespace": namespace}
        if isinstance(said, Scale):
            await self._client.post(paths.path(**where), training.body(said.scaler))
        else:
            only = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": said.scaler.uid}}
            await self._client.delete(paths.path(**where, name=said.scaler.name), only)


def _held_by_budget(error: errors.ApiError) -> bool:
    """Whether a disruption budget forbids an eviction, or several select the pod, which no eviction passes (500).

    Source: registry/core/pod/storage eviction.go.
    """
    if isinstance(error, errors.TooMany):
        return error.disruption_budget
    return isinstance(error, errors.Unavailable) and "PodDisruptionBudget" in error.message


def _reference(pod: PodRef) -> Reference:
    return Reference("v1", "Pod", pod.name, pod.namespace, pod.uid)

"""Puts annotations right: a pod whose allocation does not say what it was given gets one that does.

That covers pods that were adopted or moved in Allocate, pods taken over from another plugin, and annotations that
somebody edited later.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from math import inf
from typing import Literal, NamedTuple

import structlog

from deviceplugin import adopt, gpushare
from deviceplugin.cluster import Cluster
from deviceplugin.metrics import Metrics
from deviceplugin.offer import Offer
from deviceplugin.record import Record
from protos.contract import allocation, names
from protos.contract.ask import AskError
from protos.contract.books import NodeBooks
from protos.contract.objects import Pod
from protos.kube import errors

log = structlog.get_logger()

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
"""Between two writes to one pod: doubled from write to write, for nobody is served by two who write against each other,
nor by a write that the API server refuses each time."""
Cause = Literal["adopted", "moved", "taken-over", "restored"]
EVENTS: dict[Cause, str] = {
    "adopted": "GpuAdopted",
    "moved": "GpuMoved",
    "taken-over": "GpuTakenOver",
    "restored": "GpuAllocationRestored",
}


class _Pace(NamedTuple):
    """When a pod may be written to again, in seconds of the event loop."""

    due: float
    pause: float

    def after(self, now: float) -> _Pace:
        """After a write: a pod that was left in peace for the longest pause begins anew."""
        calm = now - self.due > LONGEST_PAUSE_S
        pause = FIRST_PAUSE_S if calm else min(2 * self.pause, LONGEST_PAUSE_S)
        return _Pace(now + pause, pause)


NO_PACE = _Pace(-inf, FIRST_PAUSE_S)


class Corrections:
    """The pods whose annotation is looked at, one by one, in the order in which they came up."""

    def __init__(self, cluster: Cluster, offer: Offer, record: Record, metrics: Metrics, *, standalone: bool) -> None:
        self.cluster, self.offer, self.record, self.metrics = cluster, offer, record, metrics
        self.standalone = standalone
        self._waiting: dict[tuple[str, str], None] = {}
        self._news = asyncio.Event()
        self._causes: dict[str, tuple[Cause, str]] = {}
        self._paces: dict[str, _Pace] = {}
        self._failing: dict[str, str] = {}

    def look(self, pod: Pod) -> None:
        """See whether this pod's annotation tells the truth, soon."""
        if self.record.given(pod.metadata.uid):
            self._waiting[pod.metadata.namespace, pod.metadata.name] = None
            self._news.set()

    def look_at_all(self) -> None:
        for pod in self.cluster.pods.values():
            self.look(pod)

    def because(self, pod: Pod, cause: Cause, why: str) -> None:
        """This pod is known to need a correction: its Event says why."""
        self._causes[pod.metadata.uid] = (cause, why)
        self.look(pod)

    def forget(self, uid: str) -> None:
        self._causes.pop(uid, None)
        self._failing.pop(uid, None)
        self._paces.pop(uid, None)

    async def run(self) -> None:
        """Work for ever."""
        while True:
            self._news.clear()
            pause = await self._round()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()

    async def _round(self) -> float | None:
        """Correct those whose turn it is; the seconds until it is another's, None if none waits."""
        clock = asyncio.get_running_loop().time
        batch, self._waiting = self._waiting, {}
        soonest: float | None = None
        for name in batch:
            pod = self.cluster.pods.get(name)
            pace = self._paces.get(pod.metadata.uid, NO_PACE) if pod else NO_PACE
            if pod is None or (pace.due <= clock() and await self._correct(pod)):
                continue
            due = self._paces[pod.metadata.uid].due
            soonest = due if soonest is None else min(soonest, due)
            self._waiting[name] = None
        return None if soonest is None else max(0.0, soonest - clock())

    async def _correct(self, pod: Pod) -> bool:
        """Write what is missing; False if that must be tried again."""
        uid = pod.metadata.uid
        wanted = self._annotations(pod)
        if not wanted:
            return True
        self._paces[uid] = self._paces.get(uid, NO_PACE).after(asyncio.get_running_loop().time())
        try:
            await self.cluster.annotate_pod(pod, wanted)
        except (errors.NotFound, errors.Conflict):
            return True
        except errors.ApiError as error:
            if self._failing.get(uid) != str(error):
                log.warning("correction_failed", pod=_name(pod), error=str(error))
            self.metrics.corrections.labels("failed").inc()
            if uid not in self._paces:
                return True  # it went meanwhile
            self._failing[uid] = str(error)
            return False
        self._failing.pop(uid, None)
        if names.ALLOCATION in wanted:
            default: Cause = "taken-over" if self.record.origin(uid) == "taken-over" else "restored"
            cause, why = self._causes.pop(uid, (default, ""))
            await self._tell(pod, cause, why)
        return True

    def _annotations(self, pod: Pod) -> dict[str, str]:
        inventory, resources = self.offer.inventory, self.offer.sharing.resources
        try:
            claim = adopt.bound(pod, resources, self.record.given(pod.metadata.uid))
        except AskError:
            return {}
        if claim is None:
            return {}
        truth = adopt.corrected(claim, inventory)
        wanted = {} if truth is None else {names.ALLOCATION: allocation.encode(truth)}
        if self.offer.sharing.gpushare:
            shares = adopt.shares_of(claim.ask, claim.given, NodeBooks(inventory))
            wanted |= gpushare.assigned(pod.metadata.annotations, shares, inventory, time.time_ns())
        return wanted

    async def _tell(self, pod: Pod, cause: Cause, why: str) -> None:
        given = self.record.given(pod.metadata.uid)
        log.info("allocation_written", pod=_name(pod), uid=pod.metadata.uid, cause=cause, why=why, gpus=dict(given))
        self.metrics.corrections.labels(cause).inc()
        if cause == "taken-over":
            self.metrics.takeovers.inc()
        if self.standalone and cause == "adopted":
            return
        held = {uuid for uuids in given.values() for uuid in uuids}
        indexes = [str(gpu.index) for gpu in self.offer.inventory.gpus if gpu.uuid in held]
        place = f"GPU {', '.join(indexes)} of this node"
        sentence = {
            "adopted": f"given {place}: {why}",
            "moved": f"moved to {place}: {why}",
            "taken-over": f"taken over on {place}, which another device plugin had given it",
            "restored": f"the annotation {names.ALLOCATION} was put back: it has {place}",
        }[cause]
        await self.cluster.tell(pod, EVENTS[cause], sentence, "Warning" if cause in ("moved", "restored") else "Normal")


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"

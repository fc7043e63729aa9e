"""Corrects annotations: a pod whose allocation does not say which GPUs it was given gets one that does.

That covers pods that were adopted or moved in Allocate, pods taken over from another plugin, and annotations that a
client edited later.
"""

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
from protos.contract import allocation, mig, names
from protos.contract.ask import AskError
from protos.contract.books import NodeBooks
from protos.contract.objects import Pod
from protos.kube import errors

log = structlog.get_logger()

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
"""Between two writes to one pod, doubled from write to write: another client may edit the annotation each time, or the
API server may refuse each write."""
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

    def after(self, now: float) -> "_Pace":
        """The pace after a write; it starts again if the pod needed no write for the longest pause."""
        calm = now - self.due > LONGEST_PAUSE_S
        pause = FIRST_PAUSE_S if calm else min(2 * self.pause, LONGEST_PAUSE_S)
        return _Pace(now + pause, pause)


NO_PACE = _Pace(-inf, FIRST_PAUSE_S)


class Corrections:
    """The pods whose annotation is checked, one by one, first come first served."""

    def __init__(self, cluster: Cluster, offer: Offer, record: Record, metrics: Metrics, *, standalone: bool) -> None:
        self.cluster, self.offer, self.record, self.metrics = cluster, offer, record, metrics
        self.standalone = standalone
        self._waiting: dict[tuple[str, str], None] = {}
        self._news = asyncio.Event()
        self._causes: dict[str, tuple[Cause, str]] = {}
        self._paces: dict[str, _Pace] = {}
        self._failing: dict[str, str] = {}

    def look(self, pod: Pod) -> None:
        """Have this pod's annotation checked soon."""
        if self.record.given(pod.metadata.uid):
            self._waiting[pod.metadata.namespace, pod.metadata.name] = None
            self._news.set()

    def look_at_all(self) -> None:
        for pod in self.cluster.pods.values():
            self.look(pod)

    def because(self, pod: Pod, cause: Cause, why: str) -> None:
        """Note why this pod needs a correction, for its Event."""
        self._causes[pod.metadata.uid] = (cause, why)
        self.look(pod)

    def forget(self, uid: str) -> None:
        self._causes.pop(uid, None)
        self._failing.pop(uid, None)
        self._paces.pop(uid, None)

    async def run(self) -> None:
        """Check and correct for ever."""
        while True:
            self._news.clear()
            pause = await self._round()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()

    async def _round(self) -> float | None:
        """Correct the pods that are due; returns the seconds until the next is due, None if none waits."""
        clock = asyncio.get_running_loop().time
        batch, self._waiting = self._waiting, {}
        soonest = inf
        for name in batch:
            pod = self.cluster.pods.get(name)
            if pod is None:
                continue
            if self._paces.get(pod.metadata.uid, NO_PACE).due <= clock() and await self._correct(pod):
                continue
            soonest = min(soonest, self._paces[pod.metadata.uid].due)
            self._waiting[name] = None
        return None if soonest == inf else max(0.0, soonest - clock())

    async def _correct(self, pod: Pod) -> bool:
        """Write what is missing; False if that must be tried again."""
        meta = pod.metadata
        wanted = self._annotations(pod)
        if not wanted:
            return True
        self._paces[meta.uid] = self._paces.get(meta.uid, NO_PACE).after(asyncio.get_running_loop().time())
        try:
            await self.cluster.annotate_pod(pod, wanted)
        except (errors.NotFound, errors.Conflict):
            return True
        except errors.ApiError as error:
            if self._failing.get(meta.uid) != str(error):
                log.warning("correction_failed", pod=f"{meta.namespace}/{meta.name}", error=str(error))
            self.metrics.corrections.labels("failed").inc()
            if meta.uid not in self._paces:
                return True  # the pod was forgotten meanwhile
            self._failing[meta.uid] = str(error)
            return False
        self._failing.pop(meta.uid, None)
        if names.ALLOCATION in wanted:
            default: Cause = "taken-over" if self.record.taken_over(meta.uid) else "restored"
            await self._tell(pod, *self._causes.pop(meta.uid, (default, "")))
        return True

    def _annotations(self, pod: Pod) -> dict[str, str]:
        inventory, resources = self.offer.inventory, self.offer.sharing.resources
        try:
            claim = adopt.claim_of(pod, resources, self.record.given(pod.metadata.uid))
        except AskError:
            return {}
        if claim is None:
            return {}
        correct = adopt.corrected(claim, inventory)
        wanted = {} if correct is None else {names.ALLOCATION: allocation.encode(correct)}
        if self.offer.sharing.gpushare:
            shares = adopt.shares_of(claim.ask, claim.given, NodeBooks(inventory))
            wanted |= gpushare.assigned(pod.metadata.annotations, shares, inventory, time.time_ns())
        return wanted

    async def _tell(self, pod: Pod, cause: Cause, why: str) -> None:
        meta, given = pod.metadata, self.record.given(pod.metadata.uid)
        name = f"{meta.namespace}/{meta.name}"
        log.info("allocation_written", pod=name, uid=meta.uid, cause=cause, why=why, gpus=dict(given))
        self.metrics.corrections.labels(cause).inc()
        if cause == "taken-over":
            self.metrics.takeovers.inc()
        if self.standalone and cause == "adopted":
            return
        held = {uuid for uuids in given.values() for uuid in uuids}
        indexes = [mig.shown(gpu.index) for gpu in self.offer.inventory.gpus if gpu.uuid in held]
        gpus = f"GPU {', '.join(indexes)} of this node"
        sentence = {
            "adopted": f"given {gpus}: {why}",
            "moved": f"moved to {gpus}: {why}",
            "taken-over": f"taken over on {gpus}, which another device plugin had given to the pod",
            "restored": f"the annotation {names.ALLOCATION} was corrected: the pod has {gpus}",
        }[cause]
        await self.cluster.tell(pod, EVENTS[cause], sentence, "Warning" if cause in ("moved", "restored") else "Normal")

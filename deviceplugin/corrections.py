"""Puts annotations right: a pod whose allocation does not say what it was given gets one that does.

That covers pods that were adopted or moved in Allocate, pods taken over from another plugin, and annotations that
somebody edited later.
"""

from __future__ import annotations

import asyncio
import time
from typing import Literal

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

RETRY_S = 1.0
Cause = Literal["adopted", "moved", "taken-over", "restored"]
EVENTS: dict[Cause, str] = {
    "adopted": "GpuAdopted",
    "moved": "GpuMoved",
    "taken-over": "GpuTakenOver",
    "restored": "GpuAllocationRestored",
}


class Corrections:
    """The pods whose annotation is looked at, one by one, in the order in which they came up."""

    def __init__(self, cluster: Cluster, offer: Offer, record: Record, metrics: Metrics, *, standalone: bool) -> None:
        self.cluster, self.offer, self.record, self.metrics = cluster, offer, record, metrics
        self.standalone = standalone
        self._waiting: dict[tuple[str, str], None] = {}
        self._news = asyncio.Event()
        self._causes: dict[str, tuple[Cause, str]] = {}
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

    async def run(self) -> None:
        """Work for ever."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                batch, self._waiting = self._waiting, {}
                pods = [pod for name in batch if (pod := self.cluster.pods.get(name)) is not None]
                failed = [pod for pod in pods if not await self._correct(pod)]
                if failed:
                    await asyncio.sleep(RETRY_S)
                for pod in failed:
                    self.look(pod)

    async def _correct(self, pod: Pod) -> bool:
        """Write what is missing; False if that must be tried again."""
        uid = pod.metadata.uid
        wanted = self._annotations(pod)
        if not wanted:
            return True
        try:
            await self.cluster.annotate_pod(pod, wanted)
        except (errors.NotFound, errors.Conflict):
            return True
        except errors.ApiError as error:
            if self._failing.get(uid) != str(error):
                log.warning("correction_failed", pod=_name(pod), error=str(error))
            self._failing[uid] = str(error)
            self.metrics.corrections.labels("failed").inc()
            return False
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

"""The kubelet's two questions: which device IDs would suit (GetPreferredAllocation), what a container gets (Allocate).

Both find out first which container is meant, and calls come one after another. The first container of a pod decides
which GPUs all of them get.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from deviceplugin import adopt, devices
from deviceplugin.answers import Style, answer
from deviceplugin.candidates import Candidate, Listed
from deviceplugin.corrections import Corrections
from deviceplugin.identify import Identifier, RefusedError
from deviceplugin.metrics import Metrics
from deviceplugin.offer import Offer
from deviceplugin.record import Given
from protos.contract import names, objects
from protos.contract.allocation import Share
from protos.contract.ask import AskError
from protos.contract.books import NodeBooks
from protos.contract.reason import Reason
from protos.kube import errors
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api

log = structlog.get_logger()

HOLD_S = 10.0
"""The longest that the kubelet is kept waiting: meanwhile it does nothing else."""
KNOW_S = 8.0
"""Patience at start until the pods of the node are known."""


class Rules(NamedTuple):
    """How containers are answered on this node."""

    style: Style = Style()
    single: bool = False
    """A container may have one replica of a GPU at most."""


class Allocator:
    """Answers for all resources of the node."""

    def __init__(
        self,
        identify: Identifier,
        offer: Offer,
        corrections: Corrections,
        metrics: Metrics,
        rules: Rules,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.cluster, self.record, self.offer, self.corrections = identify.cluster, identify.record, offer, corrections
        self.metrics, self.rules, self.spawn = metrics, rules, spawn
        self._identify = identify
        self._turn = asyncio.Lock()

    async def allocate(self, resource: str, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """What the container that asks this gets; raises RefusedError, in HOLD_S at the latest."""
        try:
            async with asyncio.timeout(HOLD_S), self._turn:
                return await self._allocated(resource, ids)
        except TimeoutError as error:
            reason = Reason("ApiSilent", f"no answer in {HOLD_S:g} s: the API server or the kubelet is too slow")
            self.metrics.refusals.labels(reason.code).inc()
            log.warning("allocate_refused", resource=resource, amount=len(ids), sentence=str(reason))
            raise RefusedError(reason) from error

    async def _allocated(self, resource: str, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        meant, listed = await self._meant(resource, len(ids))
        try:
            shares = await self._shares(meant, resource, len(ids))
        except RefusedError as error:
            self._refused(meant, error.reason)
            raise
        self.record.note(meant.pod.metadata.uid, meant.container, resource)
        self._count_duplicates(resource, ids, listed, meant)
        response = self._answer(meant, shares)
        self.corrections.look(meant.pod)
        meta = meant.pod.metadata
        log.info(
            "allocated",
            pod=f"{meta.namespace}/{meta.name}",
            uid=meta.uid,
            container=meant.container,
            resource=resource,
            amount=len(ids),
            gpus=[share.index for share in shares],
        )
        return response

    async def prefer(self, resource: str, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        """IDs on the GPUs that the container will get, as far as that can be told; empty in doubt."""
        async with self._turn:
            guess = await self._identify.guess(resource, size)
            if guess is None:
                return []
            meant, listed = guess
            given = self._intended(meant)
            taken = {i for entry in listed for held in entry.devices.values() for i in held.get(resource, ())}
            return devices.preferred(available, must, size, given.get(meant.container, ()), taken)

    async def _meant(self, resource: str, amount: int) -> tuple[Candidate, tuple[Listed, ...]]:
        try:
            return await self._identify.exactly(resource, amount)
        except RefusedError as error:
            self.metrics.refusals.labels(error.reason.code).inc()
            log.warning("allocate_refused", resource=resource, amount=amount, sentence=str(error.reason))
            raise

    async def _shares(self, meant: Candidate, resource: str, amount: int) -> tuple[Share, ...]:
        """The GPUs of this container; the first container of a pod decides for all of them. Raises RefusedError."""
        replicas = self.offer.sharing.replicas
        if self.rules.single and resource in replicas and amount > 1:
            raise RefusedError(Reason("OneReplica", f"a container may ask one {resource} at most on this node"))
        claim = self._claim(meant.pod)
        if meant.container in claim.given:
            found = adopt.shares_of(claim.ask, claim.given, NodeBooks(self.offer.inventory))
            return found[meant.container]
        await self._know_the_node()
        decision = self._decide(claim)
        if decision.how != "annotated" or decision.refusal:
            await self._look_again(claim)
            decision = self._decide(claim)
        if decision.refusal:
            raise RefusedError(decision.refusal)
        self.record.fix(claim.uid, decision.given)
        self.metrics.placements.labels(decision.how).inc()
        if decision.how != "annotated":
            self.corrections.because(meant.pod, decision.how, decision.why)
        return decision.shares[meant.container]

    async def _know_the_node(self) -> None:
        """Wait until all pods of the node are known, which is so but for the first moments."""
        try:
            async with asyncio.timeout(KNOW_S):
                await self.cluster.pods_listed.wait()
        except TimeoutError as error:
            sentence = "the pods of this node cannot be listed: the API server does not answer, or does not allow it"
            raise RefusedError(Reason("NodeUnknown", sentence)) from error

    def _claim(self, pod: objects.Pod) -> adopt.Bound:
        try:
            claim = adopt.bound(pod, self.offer.sharing.resources, self.record.given(pod.metadata.uid))
        except AskError as error:
            raise RefusedError(error.reason) from error
        if claim is None:
            raise RefusedError(Reason("PodEnded", "the pod has ended"))
        return claim

    def _decide(self, claim: adopt.Bound) -> adopt.Decision:
        return adopt.decide(claim, self._others(claim.uid), self.offer.inventory, self._cordoned())

    def _others(self, uid: str) -> list[adopt.Bound]:
        pods = [pod for pod in self.cluster.pods.values() if pod.metadata.uid != uid]
        active = [pod for pod in pods if not self.record.refused(pod.metadata.uid)]
        given = {pod.metadata.uid: self.record.given(pod.metadata.uid) for pod in active}
        return adopt.everyone(active, self.offer.sharing.resources, given)

    async def _look_again(self, claim: adopt.Bound) -> None:
        """The pods in the way may have ended without our knowing yet."""
        uids = adopt.blockers(claim, self._others(claim.uid))
        wanted = [name for name, pod in self.cluster.pods.items() if pod.metadata.uid in uids]
        try:
            await self.cluster.refresh(wanted)
        except errors.ApiError as error:
            log.warning("blockers_not_read", error=str(error))

    def _intended(self, meant: Candidate) -> Given:
        try:
            claim = self._claim(meant.pod)
        except RefusedError:
            return {}
        return claim.given if meant.container in claim.given else self._decide(claim).given

    def _answer(self, meant: Candidate, shares: Sequence[Share]) -> api.ContainerAllocateResponse:
        claim = self._claim(meant.pod)
        ask = claim.ask.container(meant.container)
        if ask is None:
            raise RefusedError(Reason("AskUnknown", f"container {meant.container} asks for no GPU"))
        labels = self.cluster.node.metadata.labels if self.cluster.node else {}
        no_isolation = labels.get(names.CGPU_DISABLE_LABEL) == "true"
        style = msgspec.structs.replace(self.rules.style, no_isolation=no_isolation)
        return answer(ask, shares, self.offer.inventory, style)

    def _cordoned(self) -> frozenset[str]:
        text = self.cluster.node.metadata.annotations.get(names.CORDONED_GPUS, "") if self.cluster.node else ""
        return frozenset(part.strip() for part in text.split(",") if part.strip())

    def _refused(self, meant: Candidate, reason: Reason) -> None:
        self.record.refuse(meant.pod.metadata.uid)
        self.metrics.refusals.labels(reason.code).inc()
        meta = meant.pod.metadata
        log.warning("allocate_refused", pod=f"{meta.namespace}/{meta.name}", reason=reason.code, sentence=str(reason))
        self.spawn(self.cluster.tell(meant.pod, reason.code, str(reason), "Warning"))

    def _count_duplicates(self, resource: str, ids: Sequence[str], listed: Iterable[Listed], meant: Candidate) -> None:
        own = (meant.pod.metadata.namespace, meant.pod.metadata.name)
        others = (entry for entry in listed if entry.name != own)
        held = {i for entry in others for by in entry.devices.values() for i in by.get(resource, ())}
        twice = held.intersection(ids)
        if twice:
            self.metrics.duplicates.inc(len(twice))
            log.warning("duplicate_devices", resource=resource, count=len(twice), example=min(twice))

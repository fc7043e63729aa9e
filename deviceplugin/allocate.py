"""The kubelet's two questions: which device IDs suit a container (GetPreferredAllocation), what it gets (Allocate).

Both first find out which container is meant, and calls run one after another. The first container of a pod decides
which GPUs all of its containers get.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import structlog

from deviceplugin import adopt, devices
from deviceplugin.answers import Style, answer
from deviceplugin.candidates import Candidate, Listed
from deviceplugin.corrections import Corrections
from deviceplugin.identify import Identifier, RefusedError
from deviceplugin.isolation import demands
from deviceplugin.library import contract as library
from deviceplugin.library.keeper import Keeper
from deviceplugin.library.regions import Owner
from deviceplugin.metrics import Metrics
from deviceplugin.mps import answers as mps
from deviceplugin.mps.partner import Partner
from deviceplugin.offer import Offer
from deviceplugin.partitioner.made import NOTHING_MADE, Made, made
from deviceplugin.partitioner.partitions import Partitions, not_made
from deviceplugin.record import Given
from protos.contract import cordon, mig, names, objects
from protos.contract.allocation import Share
from protos.contract.ask import AskError
from protos.contract.books import NodeBooks
from protos.contract.reason import Reason
from protos.kube import errors
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api

log = structlog.get_logger()

HOLD_S = 10.0
"""The longest time that the kubelet waits for an answer: it does nothing else meanwhile."""
KNOW_S = 8.0
"""Patience at start until the pods of the node are listed."""


class Limiters(NamedTuple):
    """Who else limits containers on this node; None where that is not set up."""

    mps: Partner | None = None
    library: Keeper | None = None
    partitions: Partitions | None = None


NOBODY = Limiters()


class Allocator:
    """Answers the kubelet for all resources of the node, one call at a time."""

    def __init__(
        self,
        identify: Identifier,
        offer: Offer,
        corrections: Corrections,
        metrics: Metrics,
        style: Style,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        limiters: Limiters = NOBODY,
    ) -> None:
        """`spawn` runs a task whose end the kubelet does not wait for."""
        self.cluster, self.record, self.offer, self.corrections = identify.cluster, identify.record, offer, corrections
        self.metrics, self.style, self.spawn, self.limiters = metrics, style, spawn, limiters
        self._identify = identify
        self._turn = asyncio.Lock()

    async def allocate(self, resource: str, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """The answer for the container that asks for these IDs; raises RefusedError, in HOLD_S at the latest."""
        try:
            async with asyncio.timeout(HOLD_S), self._turn:
                return await self._allocated(resource, ids)
        except TimeoutError as error:
            reason = Reason("ApiSilent", f"no answer in {HOLD_S:g} s: the API server or the kubelet is too slow")
            self._count_refusal(reason, resource=resource, amount=len(ids))
            raise RefusedError(reason) from error

    async def _allocated(self, resource: str, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        try:
            meant, listed = await self._identify.exactly(resource, len(ids))
        except RefusedError as error:
            self._count_refusal(error.reason, resource=resource, amount=len(ids))
            raise
        meta = meant.pod.metadata
        try:
            claim = self._claim(meant.pod)
            shares = await self._shares(meant, claim, resource, len(ids))
            made = await self._made(shares)
            pipes = self.limiters.mps.admit(meta.uid, meant.container, shares) if self.limiters.mps else None
            self._check_cap(claim, meant.container, shares, pipes)
            region = await self._region(Owner(meta.uid, meant.container), shares)
        except RefusedError as error:
            self.record.refuse(meta.uid)
            self._count_refusal(error.reason, pod=f"{meta.namespace}/{meta.name}", reason=error.reason.code)
            self.spawn(self.cluster.tell(meant.pod, error.reason.code, str(error.reason), "Warning"))
            raise
        limit = demands.limit_mib(shares, self.offer.inventory)
        self.record.limit(meta.uid, meant.container, limit)
        self._note(meant, resource, ids, listed, shares)
        labels = self.cluster.node.metadata.labels if self.cluster.node else {}
        no_isolation = labels.get(names.CGPU_DISABLE_LABEL) == "true"
        ask = claim.ask.container(meant.container)
        given = answer(
            ask,
            shares,
            self.offer.inventory,
            self.style,
            limit_mib=limit,
            no_isolation=no_isolation,
            nodes={**self.offer.nodes, **made.nodes},
            made=made.gpus,
        )
        if pipes is not None:
            mps.add(given, pipes)
        if region is not None:
            self.record.limit_by_library(meta.uid, meant.container, region.mib)
            library.add(given, region)
        return given

    async def _made(self, shares: Sequence[Share]) -> Made:
        """The instances that are made on demand for these shares; raises RefusedError."""
        places = [share.uuid for share in shares if mig.place(share.uuid) is not None]
        if not places:
            return NOTHING_MADE
        if self.limiters.partitions is None:
            raise not_made("this node makes none on demand")
        return made(self.offer.inventory, await self.limiters.partitions.have(places))

    async def _region(self, owner: Owner, shares: Sequence[Share]) -> library.Given | None:
        """What the container gets of the library, None if that does not limit it; raises RefusedError."""
        mib = demands.limit_mib(shares, self.offer.inventory, "library")
        if not mib or self.limiters.library is None:
            return None
        return await self.limiters.library.give(owner, shares, mib, self.offer.inventory)

    def _count_refusal(self, refusal: Reason, **about: object) -> None:
        self.metrics.refusals.labels(refusal.code).inc()
        log.warning("allocate_refused", **about, sentence=str(refusal))

    async def prefer(self, resource: str, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        """IDs on the GPUs that the container will get, as far as they are known; empty in doubt."""
        async with self._turn:
            guess = await self._identify.guess(resource, size)
            if guess is None:
                return []
            meant, listed = guess
            gpus = self._intended(meant).get(meant.container, ())
            return devices.preferred(available, must, size, gpus, _held(listed, resource))

    async def _shares(self, meant: Candidate, claim: adopt.Claim, resource: str, amount: int) -> tuple[Share, ...]:
        """The GPUs of this container; the first container of a pod decides for all of them. Raises RefusedError."""
        if self.style.single and resource in self.offer.sharing.replicas and amount > 1:
            raise RefusedError(Reason("OneReplica", f"a container may ask one {resource} at most on this node"))
        if meant.container in claim.given:
            shares = adopt.shares_of(claim.ask, claim.given, NodeBooks(self.offer.inventory))
            self._check_isolation(claim, shares)
            return shares[meant.container]
        await self._know_the_node()
        decision = self._decide(claim)
        if decision.how != "annotated" or decision.refusal:
            await self._read_blockers(claim)
            decision = self._decide(claim)
        self._check_isolation(claim, decision.shares)
        if decision.refusal:
            raise RefusedError(decision.refusal)
        self.record.fix(claim.uid, decision.given)
        self.metrics.placements.labels(decision.how).inc()
        if decision.how != "annotated":
            self.corrections.because(meant.pod, decision.how, decision.why)
        return decision.shares[meant.container]

    def _check_isolation(self, claim: adopt.Claim, shares: Mapping[str, Sequence[Share]]) -> None:
        """Raise RefusedError if the pod demands more isolation than the node gives its shares."""
        if (refusal := demands.refusal(claim, shares, self.offer.inventory)) is not None:
            raise RefusedError(refusal)

    def _check_cap(self, claim: adopt.Claim, container: str, shares: Sequence[Share], pipes: mps.Pipes | None) -> None:
        """Raise RefusedError if the pod demands a cap of compute, and the daemon of MPS sets none for this container.

        The inventory may be seconds old: MPS may have gone since.
        """
        if demands.needs_cap(claim, container, shares, self.offer.inventory) and (pipes is None or pipes.own_limits):
            raise RefusedError(Reason("NoIsolation", "the pod demands a cap of compute, and MPS serves it none now"))

    async def _know_the_node(self) -> None:
        """Wait until all pods of the node are listed, which takes time only after a start. Raises RefusedError."""
        try:
            async with asyncio.timeout(KNOW_S):
                await self.cluster.pods_listed.wait()
        except TimeoutError as error:
            sentence = "the pods of this node cannot be listed: the API server does not answer, or does not allow it"
            raise RefusedError(Reason("NodeUnknown", sentence)) from error

    def _claim(self, pod: objects.Pod) -> adopt.Claim:
        try:
            claim = adopt.claim_of(pod, self.offer.sharing.resources, self.record.given(pod.metadata.uid))
        except AskError as error:
            raise RefusedError(error.reason) from error
        if claim is None:
            raise RefusedError(Reason("PodEnded", "the pod has ended"))
        return claim

    def _decide(self, claim: adopt.Claim) -> adopt.Decision:
        text = self.cluster.node.metadata.annotations.get(names.CORDONED_GPUS, "") if self.cluster.node else ""
        return adopt.decide(claim, self._others(claim.uid), self.offer.inventory, cordon.marks(text))

    def _others(self, uid: str) -> list[adopt.Claim]:
        pods = [pod for pod in self.cluster.pods.values() if pod.metadata.uid != uid]
        active = (pod for pod in pods if not self.record.refused(pod.metadata.uid))
        return adopt.claims(active, self.offer.sharing.resources, self.record)

    async def _read_blockers(self, claim: adopt.Claim) -> None:
        """Read the pods in the way: they may have ended without our knowledge."""
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

    def _note(
        self, meant: Candidate, resource: str, ids: Sequence[str], listed: Sequence[Listed], shares: Sequence[Share]
    ) -> None:
        """Record and log what is answered."""
        meta = meant.pod.metadata
        self.record.note(meta.uid, meant.container, resource, ids)
        others = (entry for entry in listed if entry.name != (meta.namespace, meta.name))
        twice = _held(others, resource).intersection(ids)
        if twice:
            self.metrics.duplicates.inc(len(twice))
            log.warning("duplicate_devices", resource=resource, count=len(twice), example=min(twice))
        self.corrections.look(meant.pod)
        log.info(
            "allocated",
            pod=f"{meta.namespace}/{meta.name}",
            uid=meta.uid,
            container=meant.container,
            resource=resource,
            amount=len(ids),
            gpus=[mig.shown(share.index) for share in shares],
        )


def _held(listed: Iterable[Listed], resource: str) -> set[str]:
    """The device IDs of this resource that the kubelet has given to these pods."""
    return {i for entry in listed for devices in entry.devices.values() for i in devices.get(resource, ())}

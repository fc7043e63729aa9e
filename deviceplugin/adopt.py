"""Which GPUs a pod of this node gets, and which annotation is correct for it. Pure.

The annotation decides as long as its GPUs have room beside what was answered before. Otherwise (no extender placed the
pod, or a GPU is full, held whole, sick or gone) other GPUs of this node are chosen and the annotation is corrected.
A pod that fits on no GPUs is refused.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from deviceplugin.record import Given, Record
from protos.contract import allocation, codec, mig, names, resize
from protos.contract.allocation import Allocation, Share
from protos.contract.ask import AskError, Demand, PodAsk, held, parse
from protos.contract.ask_words import wanted
from protos.contract.books import NodeBooks
from protos.contract.choose import choose
from protos.contract.inventory import HEALTHY, Gpu, Inventory
from protos.contract.misfit import misfit
from protos.contract.objects import ENDED, Pod
from protos.contract.quantity import amount_of_memory
from protos.contract.reason import Reason


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of this node that asks for GPUs: what it asks, what was answered, what its annotation says."""

    uid: str
    ask: PodAsk
    given: Given = {}
    allocation: Allocation | None = None
    problem: str = ""
    """What is wrong with the annotation."""
    running: bool = False
    """Containers may be running, so the pod holds GPUs even if it is unknown which."""
    gpu_class: str = ""
    """The GpuClass that the pod names: only the extender knows its GPUs."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs for every container of a pod, or the reason why there are none."""

    shares: dict[str, tuple[Share, ...]] = {}
    how: Literal["annotated", "adopted", "moved"] = "annotated"
    refusal: Reason | None = None
    why: str = ""
    """Why the annotation was not followed."""

    @property
    def given(self) -> Given:
        return _uuids(self.shares)


def claim_of(pod: Pod, resources: names.Resources, given: Given) -> Claim | None:
    """The pod's claim on GPUs, None if it asks for none or has ended.

    Raises AskError unless the pod already runs or was given GPUs: then it holds them whatever it asks.
    """
    if pod.status.phase in ENDED:
        return None
    running = any(
        status.state.running for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)
    )
    ask = held(pod, resources) if running or given else parse(pod, resources)
    if ask is None:
        return None
    if (resized := resize.of_pod(pod)) is not None:
        ask = resize.booked(ask, resized.booked)
    annotated, problem = None, ""
    try:
        annotated = allocation.decode(pod.metadata.annotations.get(names.ALLOCATION))
    except codec.ContractError as error:
        problem = str(error)
    return Claim(
        uid=pod.metadata.uid,
        ask=ask,
        given=given,
        allocation=annotated,
        problem=problem,
        running=running,
        gpu_class=pod.metadata.annotations.get(names.GPU_CLASS, ""),
    )


def claims(pods: Iterable[Pod], resources: names.Resources, record: Record) -> list[Claim]:
    """The claims of all pods; a pod whose request is malformed was never admitted and holds nothing."""
    found = []
    for pod in pods:
        try:
            claim = claim_of(pod, resources, record.given(pod.metadata.uid))
        except AskError:
            continue
        if claim is not None:
            found.append(claim)
    return found


def decide(claim: Claim, others: Sequence[Claim], inventory: Inventory, cordoned: Collection[str] = ()) -> Decision:
    """GPUs for a pod of which no container was answered yet."""
    why = claim.problem or "no extender placed it"
    if claim.allocation is not None:
        answered = books(inventory, cordoned, others, annotated=False)
        why = _obstacle(claim.ask, claim.allocation.containers, answered)
        if not why:
            return Decision(shares=shares_of(claim.ask, _uuids(claim.allocation.containers), answered))
    if claim.gpu_class:
        sentence = f"only gangshare's scheduler knows which GPUs are of class {claim.gpu_class}"
        return Decision(refusal=Reason("ClassUnknown", sentence, why), why=why)
    free = books(inventory, cordoned, others, annotated=True)
    choice = choose(claim.ask, free)
    if choice is None:
        sentence = f"no GPU of this node has enough free for {wanted(claim.ask)}"
        return Decision(refusal=Reason("NodeFull", sentence, misfit(claim.ask, free)), why=why)
    return Decision(shares=choice.shares, how="moved" if claim.allocation else "adopted", why=why)


def books(inventory: Inventory, cordoned: Collection[str], pods: Iterable[Claim], *, annotated: bool) -> NodeBooks:
    """What these pods hold. With `annotated` also pods without an answer, on the GPUs of their annotations.

    A pod that may be running on unknown GPUs is charged on every GPU that it could be on.
    """
    found = NodeBooks(msgspec.structs.replace(inventory, state="ready"), cordoned)
    for pod in pods:
        if pod.given:
            known = PodAsk(containers=tuple(c for c in pod.ask.containers if c.name in pod.given))
            found.place(pod.uid, known, _allocation(shares_of(known, pod.given, found), inventory))
        elif pod.running:
            found.place(pod.uid, pod.ask, pod.allocation)
        elif annotated and pod.allocation is not None:
            charges = found.charges(pod.ask, pod.allocation.containers)
            if charges is not None:
                found.hold(pod.uid, pod.ask, charges)
    return found


def blockers(claim: Claim, others: Iterable[Claim]) -> set[str]:
    """UIDs of the pods that may be in this pod's way: they are read again before this pod is moved."""
    annotated = claim.allocation.uuids() if claim.allocation else frozenset()
    found = set()
    for pod in others:
        held = {uuid for uuids in pod.given.values() for uuid in uuids}
        held |= pod.allocation.uuids() if pod.allocation else frozenset()
        if not annotated or not held or annotated & held:
            found.add(pod.uid)
    return found


def shares_of(ask: PodAsk, given: Given, ledger: NodeBooks) -> dict[str, tuple[Share, ...]]:
    """The shares of the containers whose GPUs are known, with the amounts that are charged."""
    found = {}
    for container in ask.containers:
        shares = []
        for uuid in given.get(container.name, ()):
            book = ledger.gpus.get(uuid)
            gpu = book.gpu if book else Gpu(index=0, uuid=uuid, mem=0)  # only the UUID of a GPU that left is known
            charge = ledger.amounts(container, gpu) or Demand(0, 0, bool(container.whole))
            shares.append(Share(uuid, gpu.index, charge.mem, charge.slices, charge.whole))
        if shares:
            found[container.name] = tuple(shares)
    return found


def corrected(claim: Claim, inventory: Inventory) -> Allocation | None:
    """The allocation that says what was answered, None if the annotation already says it.

    Also None while nothing was answered, or while the GPUs of some container are unknown.
    """
    annotated = _uuids(claim.allocation.containers) if claim.allocation else {}
    known = {c.name: claim.given.get(c.name) or annotated.get(c.name, ()) for c in claim.ask.containers}
    if not claim.given or not all(known.values()):
        return None
    if {name: frozenset(uuids) for name, uuids in annotated.items()} == {n: frozenset(u) for n, u in known.items()}:
        return None
    return _allocation(shares_of(claim.ask, known, NodeBooks(inventory)), inventory, claim.allocation)


def _uuids(shares: Mapping[str, Sequence[Share]]) -> dict[str, tuple[str, ...]]:
    return {container: tuple(share.uuid for share in own) for container, own in shares.items()}


def _allocation(
    shares: dict[str, tuple[Share, ...]], inventory: Inventory, before: Allocation | None = None
) -> Allocation:
    """These shares, with all else that the allocation said before."""
    return Allocation(
        v=codec.VERSION,
        unit_mib=inventory.unit_mib,
        slices_per_gpu=inventory.slices_per_gpu,
        containers=shares,
        group=before.group if before else None,
        isolation=before.isolation if before else None,
    )


def _suited(ask: PodAsk, annotated: Mapping[str, Sequence[Share]], ledger: NodeBooks) -> bool:
    """Whether each container may have its GPUs: of MIG instances only those that satisfy it."""
    return all(
        ledger.amounts(container, ledger.gpus[share.uuid].gpu) is not None
        for container in ask.containers
        for share in annotated[container.name]
        if share.uuid in ledger.gpus
    )


def _obstacle(ask: PodAsk, annotated: Mapping[str, Sequence[Share]], ledger: NodeBooks) -> str:
    """Why the annotation cannot be followed, "" if it can."""
    charges = ledger.charges(ask, annotated)
    if charges is None or not _suited(ask, annotated, ledger):
        return "its annotation does not name the GPUs that it asks for"
    for uuid, demand in charges.items():
        book = ledger.gpus.get(uuid)
        if book is None:
            return f"this node has no GPU {uuid}"
        if book.gpu.health != HEALTHY:
            return f"GPU {mig.shown(book.gpu.index)} is {book.gpu.health}"
        if not book.fits(demand):
            mem = amount_of_memory(book.mem_free, ask.unit_mib)
            free = "is held whole" if book.wholes else f"has {mem} and {book.slices_free} slices free"
            return f"GPU {mig.shown(book.gpu.index)} {free}"
    return ""

"""Decides which allocations, reservations and nominations are trusted, by the field ownership in managedFields.

The rules of allocations are in `protos.contract.ownership`. A reservation is always written through the status
subresource.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import msgspec

from protos.contract import allocation, codec, names
from protos.contract.allocation import Allocation, Share
from protos.contract.ask import PodAsk
from protos.contract.bounds import CONTAINERS, GPUS_PER_NODE
from protos.contract.inventory import Inventory
from protos.contract.objects import Pod
from protos.contract.ownership import allocation_by_us, owners, read

RESERVERS = ((names.EXTENDER, "status"), (names.DEFRAG, "status"))
"""(manager, subresource) that may reserve: the extender, and operators by `gangshare defrag --apply`."""


NOMINATOR = (names.EXTENDER, "status")
"""(manager, subresource) that nominates for us."""


class WrittenAllocation(msgspec.Struct, frozen=True):
    """The annotations of a bound pod: an allocation, a problem, or neither if there are none."""

    allocation: Allocation | None = None
    text: str | None = None
    problem: str = ""
    """`forged`, `malformed` or `newer`, with the details after a colon."""


def claim(pod: Pod, known: str | None, *, settled: bool) -> WrittenAllocation:
    """Read a bound pod's allocation; `known` is the text that this process wrote or trusted before.

    `settled`: the pod was known to be bound before. Until then an allocation without owner came with the Binding, from
    this extender or an earlier leader; a bound pod gets no further Binding.
    """
    text = pod.metadata.annotations.get(names.ALLOCATION)
    if text is None:
        return WrittenAllocation(problem="forged: removed") if settled and known is not None else WrittenAllocation()
    if text != known and not allocation_by_us(pod, settled=settled):
        return WrittenAllocation(problem=f"forged: {text[:80]}")
    try:
        return WrittenAllocation(allocation.decode(text), text)
    except codec.NewerVersionError as error:
        return WrittenAllocation(problem=f"newer: {error}")
    except codec.ContractError as error:
        return WrittenAllocation(problem=f"malformed: {error}")


def of_gang(pod: Pod, known: str | None, *, settled: bool) -> WrittenAllocation:
    """Read the allocation of a bound pod that requests no GPUs: it names the gang of its start, and no GPU."""
    written = claim(pod, known, settled=settled)
    found = written.allocation
    if found is not None and (found.containers or found.group is None):
        return WrittenAllocation(problem="forged: a pod that asks no GPUs has none")
    return written


def reserver(pod: Pod) -> str:
    """The trusted manager that wrote the pod's reservation, "" if there is none."""
    found = set(owners(read(pod.metadata.managed_fields), names.RESERVATION))
    if not found or not found <= set(RESERVERS):
        return ""
    return names.EXTENDER if found == {RESERVERS[0]} else names.DEFRAG


def nominated_by_us(pod: Pod) -> bool:
    """Whether an extender, and nobody else, wrote the pod's nominated node."""
    entries = read(pod.metadata.managed_fields) or ()
    return {(entry.manager, entry.subresource) for entry in entries if entry.fields.status.nominated} == {NOMINATOR}


def from_gpushare(pod: Pod, ask: PodAsk, inventory: Inventory) -> Allocation | None:
    """The allocation of a pod that gpushare placed: its IDX annotation names one GPU by minor number.

    ACK's scheduler.framework.gpushare.allocation ({container index: {GPU index: units}}) takes precedence, as in
    gpushare's own inspect command.
    """
    minors = _minors(pod, ask)
    by_minor = {gpu.minor: gpu for gpu in inventory.gpus}
    if minors is None or any(minor not in by_minor for given in minors.values() for minor in given):
        return None
    containers = {}
    for container in ask.containers:
        gpus = [by_minor[minor] for minor in minors.get(container.name, ())]
        containers[container.name] = tuple(Share(g.uuid, g.index, container.mem, container.slices) for g in gpus)
    return Allocation(codec.VERSION, inventory.unit_mib, inventory.slices_per_gpu, containers)


_Number = Annotated[str, msgspec.Meta(pattern="^[0-9]{1,5}$")]
_plan = msgspec.json.Decoder(
    Annotated[
        dict[_Number, Annotated[dict[_Number, msgspec.Raw], msgspec.Meta(max_length=GPUS_PER_NODE.most)]],
        msgspec.Meta(max_length=CONTAINERS.most),
    ]
)


def _minors(pod: Pod, ask: PodAsk) -> dict[str, list[int]] | None:
    """Minor numbers of GPUs by container, None if the annotations are missing or malformed."""
    annotations, containers = pod.metadata.annotations, pod.spec.containers
    plan, index = annotations.get(names.ALIYUN_ALLOCATION), annotations.get(names.ALIYUN_IDX)
    with suppress(msgspec.DecodeError, ValueError, IndexError, RecursionError):
        if plan is not None:
            return {containers[int(c)].name: [int(g) for g in gpus] for c, gpus in _plan.decode(plan).items()}
        if index is not None and int(index) >= 0:
            return {container.name: [int(index)] for container in ask.containers}
    return None

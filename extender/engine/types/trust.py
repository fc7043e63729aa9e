"""Which annotations of ours are believed: allocations, and reservations.

A Binding's annotations leave no trace in managedFields, while a client that sets or edits the annotation owns it
there, and the maker of a pod owns its containers: a list in which nobody does was emptied. So an owned allocation is
believed only if the device plugin or the extender wrote it through the status subresource, which users may not patch.
A reservation is always written in that way. Source: kube-apiserver assignPod / setPodNodeAndMetadata; server-side apply
field ownership.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from protos.contract import allocation, codec, names
from protos.contract.allocation import Allocation, Share
from protos.contract.ask import PodAsk
from protos.contract.bounds import CONTAINERS, GPUS_PER_NODE
from protos.contract.inventory import Inventory
from protos.contract.objects import Pod

WRITERS = ((names.PLUGIN, "status"), (names.EXTENDER, "status"))
"""(manager, subresource) of those who may write an allocation after the bind: the plugin corrects, we put back."""


RESERVERS = ((names.EXTENDER, "status"), (names.DEFRAG, "status"))
"""(manager, subresource) of those who may ask for room: the extender, and operators by `gangshare defrag --apply`."""


class WrittenAllocation(msgspec.Struct, frozen=True):
    """What a bound pod's annotations say: an allocation, or the problem with them (neither: they say nothing)."""

    allocation: Allocation | None = None
    text: str | None = None
    problem: str = ""
    """`forged`, `malformed` or `newer`, with the details after a colon."""


def claim(pod: Pod, known: str | None, *, settled: bool) -> WrittenAllocation:
    """Read a bound pod's allocation; `known` is the text that this process wrote or believed before.

    `settled`: the pod was known to be bound before. Until then an allocation that nobody owns came with the Binding,
    ours or that of another extender which led before us; afterwards there is no further Binding.
    """
    text = pod.metadata.annotations.get(names.ALLOCATION)
    if text is None:
        return WrittenAllocation(problem="forged: removed") if settled and known is not None else WrittenAllocation()
    if text != known and not _written_by_us(pod, settled):
        return WrittenAllocation(problem=f"forged: {text[:80]}")
    try:
        return WrittenAllocation(allocation.decode(text), text)
    except codec.NewerVersionError as error:
        return WrittenAllocation(problem=f"newer: {error}")
    except codec.ContractError as error:
        return WrittenAllocation(problem=f"malformed: {error}")


def of_gang(pod: Pod, known: str | None, *, settled: bool) -> WrittenAllocation:
    """The same for a pod that asks no GPUs: its allocation names the gang that it started with, and no GPU."""
    told = claim(pod, known, settled=settled)
    found = told.allocation
    if found is not None and (found.containers or found.group is None):
        return WrittenAllocation(problem="forged: a pod that asks no GPUs has none")
    return told


def _written_by_us(pod: Pod, settled: bool) -> bool:
    entries = _read(pod.metadata.managed_fields)
    owners = _owners(entries, names.ALLOCATION)
    return all(owner in WRITERS for owner in owners) if owners else not settled and _made(entries)


def written_by_us(pod: Pod) -> bool:
    """Whether the allocation on a pod was written after its Binding, by the plugin or by an extender."""
    owners = field_owners(pod.metadata.managed_fields, names.ALLOCATION)
    return bool(owners) and all(owner in WRITERS for owner in owners)


def _made(entries: Sequence[_Entry] | None) -> bool:
    """Whether somebody owns the containers, as the maker of every pod does; else the list was emptied by somebody."""
    return any(entry.fields.spec.containers for entry in entries or ())


def reserver(pod: Pod) -> str:
    """The manager who wrote the pod's reservation, "" if it is believed of nobody."""
    owners = set(field_owners(pod.metadata.managed_fields, names.RESERVATION))
    if not owners or not owners <= set(RESERVERS):
        return ""
    return names.EXTENDER if owners == {RESERVERS[0]} else names.DEFRAG


class _Metadata(msgspec.Struct):
    annotations: dict[str, msgspec.Raw] = msgspec.field(name="f:annotations", default={})


class _Spec(msgspec.Struct):
    containers: msgspec.Raw = msgspec.field(name="f:containers", default=msgspec.Raw())


class _Fields(msgspec.Struct):
    metadata: _Metadata = msgspec.field(name="f:metadata", default_factory=_Metadata)
    spec: _Spec = msgspec.field(name="f:spec", default_factory=_Spec)


class _Entry(msgspec.Struct):
    manager: str = ""
    subresource: str = ""
    fields: _Fields = msgspec.field(name="fieldsV1", default_factory=_Fields)


_entries = msgspec.json.Decoder(list[_Entry])
NOBODY_KNOWN = ("", "")
"""The owner of what cannot be read."""


def field_owners(managed_fields: msgspec.Raw, annotation: str) -> list[tuple[str, str]]:
    """(manager, subresource) of everyone who owns this annotation by metadata.managedFields."""
    return _owners(_read(managed_fields), annotation)


def _read(managed_fields: msgspec.Raw) -> Sequence[_Entry] | None:
    """The entries, None if they cannot be read: users may write that list themselves, as deeply nested as they like."""
    if not managed_fields:
        return ()
    try:
        return _entries.decode(managed_fields)
    except (msgspec.DecodeError, RecursionError):
        return None


def _owners(entries: Sequence[_Entry] | None, annotation: str) -> list[tuple[str, str]]:
    if entries is None:
        return [NOBODY_KNOWN]
    owned = f"f:{annotation}"
    return [(entry.manager, entry.subresource) for entry in entries if owned in entry.fields.metadata.annotations]


def from_gpushare(pod: Pod, ask: PodAsk, inventory: Inventory) -> Allocation | None:
    """The allocation of a pod that gpushare placed: its IDX annotation names one GPU by minor number.

    ACK's scheduler.framework.gpushare.allocation ({container index: {GPU index: units}}) goes first, as in gpushare's
    own inspect command.
    """
    annotations = pod.metadata.annotations
    minors = _minors(annotations.get(names.ALIYUN_ALLOCATION), annotations.get(names.ALIYUN_IDX), pod, ask)
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


def _minors(plan: str | None, index: str | None, pod: Pod, ask: PodAsk) -> dict[str, list[int]] | None:
    try:
        if plan is not None:
            order = [container.name for container in pod.spec.containers]
            by_position = {int(c): [int(g) for g in gpus] for c, gpus in _plan.decode(plan).items()}
            return {order[position]: gpus for position, gpus in by_position.items() if position >= 0}
        if index is not None and int(index) >= 0:
            return {container.name: [int(index)] for container in ask.containers}
    except (msgspec.DecodeError, ValueError, IndexError, RecursionError):
        return None
    return None

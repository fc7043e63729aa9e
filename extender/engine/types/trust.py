"""Decides which allocations, reservations and nominations are trusted, by the field ownership in managedFields.

A Binding's annotations have no owner there. A client that sets an annotation owns it, and the creator of a pod owns its
containers: if no entry owns these, a client has emptied the list. So an allocation with an owner is trusted only if the
device plugin or the extender wrote it through the status subresource, which users may not patch. A reservation is
always written in that way. Source: kube-apiserver assignPod / setPodNodeAndMetadata; server-side apply field ownership.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import msgspec

from protos.contract import allocation, codec, names
from protos.contract.allocation import Allocation, Share
from protos.contract.ask import PodAsk
from protos.contract.bounds import CONTAINERS, GPUS_PER_NODE
from protos.contract.inventory import Inventory
from protos.contract.objects import Pod

WRITERS = ((names.PLUGIN, "status"), (names.EXTENDER, "status"))
"""(manager, subresource) that may write an allocation after the bind: the plugin corrects, the extender restores."""
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
    if text != known and not written_by_us(pod, settled=settled):
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


def written_by_us(pod: Pod, *, settled: bool = True) -> bool:
    """Whether the allocation was written by the plugin or an extender, or (not `settled`) with the Binding."""
    entries = _read(pod.metadata.managed_fields)
    owners = _owners(entries, names.ALLOCATION)
    if not owners and not settled:  # if no entry owns the containers, a client has emptied the list
        return any(entry.fields.spec.containers for entry in entries or ())
    return bool(owners) and all(owner in WRITERS for owner in owners)


def reserver(pod: Pod) -> str:
    """The trusted manager that wrote the pod's reservation, "" if there is none."""
    owners = set(field_owners(pod.metadata.managed_fields, names.RESERVATION))
    if not owners or not owners <= set(RESERVERS):
        return ""
    return names.EXTENDER if owners == {RESERVERS[0]} else names.DEFRAG


def nominated_by_us(pod: Pod) -> bool:
    """Whether an extender, and nobody else, wrote the pod's nominated node."""
    entries = _read(pod.metadata.managed_fields) or ()
    owners = {(entry.manager, entry.subresource) for entry in entries if entry.fields.status.nominated}
    return owners == {NOMINATOR}


class _Metadata(msgspec.Struct):
    annotations: dict[str, msgspec.Raw] = msgspec.field(name="f:annotations", default={})


class _Spec(msgspec.Struct):
    containers: msgspec.Raw = msgspec.field(name="f:containers", default=msgspec.Raw())


class _Status(msgspec.Struct):
    nominated: msgspec.Raw = msgspec.field(name="f:nominatedNodeName", default=msgspec.Raw())


class _Fields(msgspec.Struct):
    metadata: _Metadata = msgspec.field(name="f:metadata", default_factory=_Metadata)
    spec: _Spec = msgspec.field(name="f:spec", default_factory=_Spec)
    status: _Status = msgspec.field(name="f:status", default_factory=_Status)


class _Entry(msgspec.Struct):
    manager: str = ""
    subresource: str = ""
    fields: _Fields = msgspec.field(name="fieldsV1", default_factory=_Fields)


_entries = msgspec.json.Decoder(list[_Entry])
UNKNOWN_OWNER = ("", "")
"""Stands for the owners in an unreadable list."""


def field_owners(managed_fields: msgspec.Raw, annotation: str) -> list[tuple[str, str]]:
    """(manager, subresource) of all owners of an annotation by metadata.managedFields."""
    return _owners(_read(managed_fields), annotation)


def _read(managed_fields: msgspec.Raw) -> Sequence[_Entry] | None:
    """The entries, None if they are unreadable: users may write the list, however deeply nested."""
    if not managed_fields:
        return ()
    try:
        return _entries.decode(managed_fields)
    except (msgspec.DecodeError, RecursionError):
        return None


def _owners(entries: Sequence[_Entry] | None, annotation: str) -> list[tuple[str, str]]:
    if entries is None:
        return [UNKNOWN_OWNER]
    owned = f"f:{annotation}"
    return [(entry.manager, entry.subresource) for entry in entries if owned in entry.fields.metadata.annotations]


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

"""Which allocation annotations are believed.

A Binding's annotations leave no trace in managedFields, while a client that sets or edits the annotation owns it
there. So an owned allocation is believed only if the device plugin or the extender wrote it through the status
subresource, which users may not patch. Source: kube-apiserver assignPod / setPodNodeAndMetadata; server-side apply
field ownership.
"""

from __future__ import annotations

import json

import msgspec

from protos.contract import allocation, codec, names
from protos.contract.allocation import Allocation, Share
from protos.contract.ask import PodAsk
from protos.contract.inventory import Inventory
from protos.contract.objects import Pod

WRITERS = ((names.PLUGIN, "status"), (names.EXTENDER, "status"))
"""(manager, subresource) of those who may write an allocation after the bind: the plugin corrects, we put back."""


class Claim(msgspec.Struct, frozen=True):
    """What a bound pod's annotations say: an allocation, or the problem with them (neither: they say nothing)."""

    allocation: Allocation | None = None
    text: str | None = None
    problem: str = ""
    """`forged`, `malformed` or `newer`, with the details after a colon."""


def claim(pod: Pod, known: str | None, *, settled: bool) -> Claim:
    """Read a bound pod's allocation; `known` is the text that this process wrote or believed before.

    `settled`: the pod was known to be bound before. Until then an allocation that nobody owns came with the Binding,
    ours or that of another extender which led before us; afterwards there is no further Binding.
    """
    text = pod.metadata.annotations.get(names.ALLOCATION)
    if text is None:
        return Claim(problem="forged: removed") if settled and known is not None else Claim()
    if text != known and not _written_by_us(pod, settled):
        return Claim(problem=f"forged: {text[:80]}")
    try:
        return Claim(allocation.decode(text), text)
    except codec.NewerVersionError as error:
        return Claim(problem=f"newer: {error}")
    except codec.ContractError as error:
        return Claim(problem=f"malformed: {error}")


def of_gang(pod: Pod, known: str | None, *, settled: bool) -> Claim:
    """The same for a pod that asks no GPUs: its allocation names the gang that it started with, and no GPU."""
    told = claim(pod, known, settled=settled)
    found = told.allocation
    if found is not None and (found.containers or found.group is None):
        return Claim(problem="forged: a pod that asks no GPUs has none")
    return told


def _written_by_us(pod: Pod, settled: bool) -> bool:
    owners = field_owners(pod.metadata.managed_fields, names.ALLOCATION)
    return all(owner in WRITERS for owner in owners) if owners else not settled


class _Metadata(msgspec.Struct):
    annotations: dict[str, msgspec.Raw] = msgspec.field(name="f:annotations", default={})


class _Fields(msgspec.Struct):
    metadata: _Metadata = msgspec.field(name="f:metadata", default_factory=_Metadata)


class _Entry(msgspec.Struct):
    manager: str = ""
    subresource: str = ""
    fields: _Fields = msgspec.field(name="fieldsV1", default_factory=_Fields)


_entries = msgspec.json.Decoder(list[_Entry])
NOBODY_KNOWN = ("", "")
"""The owner of what cannot be read."""


def field_owners(managed_fields: msgspec.Raw, annotation: str) -> list[tuple[str, str]]:
    """(manager, subresource) of everyone who owns this annotation by metadata.managedFields.

    Users may write that list themselves, as deeply nested as they like.
    """
    if not managed_fields:
        return []
    try:
        entries = _entries.decode(managed_fields)
    except (msgspec.DecodeError, RecursionError):
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


def _minors(plan: str | None, index: str | None, pod: Pod, ask: PodAsk) -> dict[str, list[int]] | None:
    try:
        if plan is not None:
            by_position = {int(c): [int(g) for g in gpus] for c, gpus in json.loads(plan).items()}
            order = [container.name for container in pod.spec.containers]
            return {order[position]: gpus for position, gpus in by_position.items() if position >= 0}
        if index is not None and int(index) >= 0:
            return {container.name: [int(index)] for container in ask.containers}
    except (ValueError, TypeError, AttributeError, IndexError, RecursionError):
        return None
    return None

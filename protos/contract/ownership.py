"""Who wrote an annotation, by metadata.managedFields of its pod. Pure.

A Binding's annotations have no owner there. A client that sets an annotation owns it, and the creator of a pod owns its
containers: if no entry owns these, a client has emptied the list. So an allocation with an owner is trusted only if the
device plugin or the extender wrote it through the status subresource, which users may not patch. Source:
kube-apiserver assignPod / setPodNodeAndMetadata; server-side apply field ownership.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from protos.contract import names
from protos.contract.objects import Pod

WRITERS = ((names.PLUGIN, "status"), (names.EXTENDER, "status"))
"""(manager, subresource) that may write an allocation after the bind: the plugin corrects, the extender restores."""
RESIZER = (names.EXTENDER, "status")
"""(manager, subresource) that answers wishes for other amounts of GPU memory."""
UNKNOWN_OWNER = ("", "")
"""Stands for the owners in an unreadable list."""


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


class Entry(msgspec.Struct):
    """One writer and its fields."""

    manager: str = ""
    subresource: str = ""
    fields: _Fields = msgspec.field(name="fieldsV1", default_factory=_Fields)


_entries = msgspec.json.Decoder(list[Entry])


def read(managed_fields: msgspec.Raw) -> Sequence[Entry] | None:
    """The entries, None if they are unreadable: users may write the list, however deeply nested."""
    if not managed_fields:
        return ()
    try:
        return _entries.decode(managed_fields)
    except (msgspec.DecodeError, RecursionError):
        return None


def owners(entries: Sequence[Entry] | None, annotation: str) -> list[tuple[str, str]]:
    """(manager, subresource) of all owners of an annotation."""
    if entries is None:
        return [UNKNOWN_OWNER]
    owned = f"f:{annotation}"
    return [(entry.manager, entry.subresource) for entry in entries if owned in entry.fields.metadata.annotations]


def allocation_by_us(pod: Pod, *, settled: bool = True) -> bool:
    """Whether the allocation was written by the plugin or an extender, or (not `settled`) with the Binding."""
    entries = read(pod.metadata.managed_fields)
    found = owners(entries, names.ALLOCATION)
    if not found and not settled:  # if no entry owns the containers, a client has emptied the list
        return any(entry.fields.spec.containers for entry in entries or ())
    return bool(found) and all(owner in WRITERS for owner in found)


def by_extender(pod: Pod, annotation: str) -> bool:
    """Whether an extender, and nobody else, wrote the annotation through the status subresource."""
    return set(owners(read(pod.metadata.managed_fields), annotation)) == {RESIZER}

"""GpuClasses: followed where their definition is, and told how many GPUs are of each.

One that cannot be read is told to the engine as well, since pods wait for it, and to its owner by an Event.
"""

import datetime as dt
from collections.abc import Iterable
from typing import Any

import msgspec

from extender.cluster.feed import Kind
from extender.cluster.group_status import Condition, conditions
from extender.cluster.optional import Complain, Source
from extender.engine.effects import ClassGone, ClassSeen, ClassStatus, Event
from protos.contract import gpu_class, names
from protos.contract.gpu_class import API_VERSION, KIND, PLURAL, GpuClass
from protos.contract.reason import Reason
from protos.kube import paths
from protos.kube.changes import Ref
from protos.kube.client import ApiClient
from protos.kube.events import Reference

UNREADABLE = "ClassUnreadable"
ACCEPTED = "Accepted"


def source(complain: Complain) -> Source:
    """The kind; `complain` is told of objects that cannot be read."""
    return Source(API_VERSION, PLURAL, KIND, gpu_class.decode, _Declared(complain))


class _Declared(Kind):
    """The classes that there are."""

    def __init__(self, complain: Complain) -> None:
        self._complain = complain
        self._known: set[str] = set()

    def seen(self, ref: Ref, found: GpuClass) -> Event:
        self._known.add(found.name)
        if found.problem:
            self._complain(Reference(API_VERSION, KIND, ref.name, uid=ref.uid), Reason(UNREADABLE, found.problem))
        return ClassSeen(found)

    def gone(self, ref: Ref) -> Event:
        self._known.discard(ref.name)
        return ClassGone(ref.name)

    def unreadable(self, ref: Ref, error: Exception) -> None:
        self._complain(Reference(API_VERSION, KIND, ref.name, uid=ref.uid), Reason(UNREADABLE, str(error)))

    def forgotten(self) -> Iterable[Event]:
        gone = [ClassGone(name) for name in sorted(self._known)]
        self._known.clear()
        return gone


class _Object(msgspec.Struct, frozen=True):
    status: dict[str, Any] | None = None


_objects = msgspec.json.Decoder(_Object)


async def write_status(client: ApiClient, said: ClassStatus) -> None:
    """Say this in the status of its class; what is there already is not written again. Raises the request's errors."""
    where = {"group_version": API_VERSION, "plural": PLURAL, "name": said.name}
    before = (await client.fetch(paths.path(**where), _objects)).status or {}
    accepted = Condition(ACCEPTED, not said.problem, UNREADABLE if said.problem else ACCEPTED, said.problem)
    now = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    wanted = {
        "gpus": said.gpus,
        "freeGpus": said.free,
        "nodes": said.nodes,
        "conditions": conditions([accepted], before, now, always=True),
    }
    changed = {key: value for key, value in wanted.items() if before.get(key) != value}
    if changed:
        path = paths.path(**where, subresource="status")
        await client.patch(path, {"status": changed}, params={"fieldManager": names.EXTENDER})

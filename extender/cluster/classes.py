"""GpuClasses: followed where their definition is, and told how many GPUs are of each.

One that cannot be read is told to the engine as well, since pods wait for it, and to its owner by an Event.
"""

from collections.abc import Mapping
from typing import Any

from extender.cluster.optional import Complain, Declared, Source
from extender.cluster.status import Condition, Json, conditions, write
from extender.engine.types.effects import ClassStatus
from extender.engine.types.events import ClassGone, ClassSeen, Event
from protos.contract import gpu_class
from protos.contract.gpu_class import API_VERSION, KIND, PLURAL, GpuClass
from protos.contract.reason import Reason
from protos.kube.changes import Ref
from protos.kube.client import ApiClient
from protos.kube.events import Reference

UNREADABLE = "ClassUnreadable"
ACCEPTED = "Accepted"


def source(complain: Complain) -> Source:
    """The kind; `complain` is told of objects that cannot be read."""
    return Source(API_VERSION, PLURAL, KIND, gpu_class.decode, _Declared(complain))


class _Declared(Declared):
    """The classes that there are."""

    def __init__(self, complain: Complain) -> None:
        self._complain = complain

    def seen(self, ref: Ref, found: GpuClass) -> Event:
        if found.problem:
            self._complain(Reference(API_VERSION, KIND, ref.name, uid=ref.uid), Reason(UNREADABLE, found.problem))
        return ClassSeen(found)

    def gone(self, ref: Ref) -> Event:
        return ClassGone(ref.name)

    def unreadable(self, ref: Ref, error: Exception) -> None:
        self._complain(Reference(API_VERSION, KIND, ref.name, uid=ref.uid), Reason(UNREADABLE, str(error)))


async def write_status(client: ApiClient, said: ClassStatus) -> None:
    """Say this in the status of its class; what is there already is not written again. Raises the request's errors."""
    where = {"group_version": API_VERSION, "plural": PLURAL, "name": said.name}
    accepted = Condition(ACCEPTED, not said.problem, UNREADABLE if said.problem else ACCEPTED, said.problem)
    counts = {"gpus": said.gpus, "freeGpus": said.free, "nodes": said.nodes}

    def status(before: Mapping[str, Any], now: str) -> Json:
        return {**counts, "conditions": conditions([accepted], before, now, always=True)}

    await write(client, where, status)

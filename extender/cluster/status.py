"""Writes the status of our objects: GpuClasses and Queues here, PodGroups in `group_status`.

Only fields that differ from the status as it is are written.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from extender.engine.types.effects import ClassStatus, QueueStatus
from protos.contract import gpu_class, names, queue
from protos.contract.objects import ObjectMeta
from protos.contract.printable import printable
from protos.kube import paths
from protos.kube.client import ApiClient

Json = dict[str, Any]
Fields = Callable[[Mapping[str, Any], str], Json]
"""From the status as it is and the time (RFC 3339): the fields that it should have."""
BY_US = {"fieldManager": names.EXTENDER}
CLASS_UNREADABLE, QUEUE_UNREADABLE = "ClassUnreadable", "QueueUnreadable"
ACCEPTED, PLACED, MISPLACED = "Accepted", "Placed", "Misplaced"
WITHIN, EXCEEDED = "WithinCapability", "CapabilityExceeded"


class _Object(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    status: Json | None = None


_objects = msgspec.json.Decoder(_Object)


class Condition(NamedTuple):
    """One condition without its time."""

    type: str
    true: bool
    reason: str
    message: str


def conditions(wanted: Iterable[Condition], before: Mapping[str, Any], now: str, *, always: bool = False) -> list[Json]:
    """These conditions, beside the conditions of others in the status `before`.

    A condition whose value does not change keeps its time. One that was never true is shown only with `always`.
    """
    listed = before.get("conditions")
    others = [condition for condition in listed if isinstance(condition, dict)] if isinstance(listed, list) else []
    by_type: dict[str, Json] = {str(condition.get("type")): condition for condition in others}
    for condition in wanted:
        former = by_type.get(condition.type, {})
        if not (condition.true or former or always):
            continue
        value = "True" if condition.true else "False"
        time = former.get("lastTransitionTime") if former.get("status") == value else None
        fields = {"status": value, "reason": condition.reason, "message": printable(condition.message)}
        by_type[condition.type] = {"type": condition.type, **fields, "lastTransitionTime": time or now}
    return list(by_type.values())


async def unwritten(client: ApiClient, where: Mapping[str, str], fields: Fields) -> tuple[str, Json]:
    """The UID of an object (arguments of `paths.path`), and the fields that its status lacks; raises request errors."""
    found = await client.fetch(paths.path(**where), _objects)
    before = found.status or {}
    wanted = fields(before, f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}")
    return found.metadata.uid, {key: value for key, value in wanted.items() if before.get(key) != value}


async def write(client: ApiClient, said: ClassStatus | QueueStatus) -> None:
    """Write the status of a GpuClass or a Queue; raises the request's errors."""

    def fields(before: Mapping[str, Any], now: str) -> Json:
        return _class(said, before, now) if isinstance(said, ClassStatus) else _queue(said, before, now)

    kind = gpu_class if isinstance(said, ClassStatus) else queue
    where = {"group_version": kind.API_VERSION, "plural": kind.PLURAL, "name": said.name}
    _, changed = await unwritten(client, where, fields)
    if changed:
        await client.patch(paths.path(**where, subresource="status"), {"status": changed}, params=BY_US)


def _class(said: ClassStatus, before: Mapping[str, Any], now: str) -> Json:
    wanted = [_unless(said.problem, ACCEPTED, CLASS_UNREADABLE)]
    counts = {"gpus": said.gpus, "freeGpus": said.free, "nodes": said.nodes}
    return {**counts, "conditions": conditions(wanted, before, now, always=True)}


def _queue(said: QueueStatus, before: Mapping[str, Any], now: str) -> Json:
    wanted = [
        _unless(said.problem, ACCEPTED, QUEUE_UNREADABLE),
        _unless(said.misplaced, PLACED, MISPLACED),
        _unless(said.exceeded, WITHIN, EXCEEDED),
    ]
    return {
        "allocated": _merged(said.allocated, before.get("allocated")),
        "requested": _merged(said.requested, before.get("requested")),
        "fairShare": _merged(said.fair_share, before.get("fairShare")),
        "share": said.share,
        "waiting": said.waiting,
        "running": said.running,
        "state": "Closed" if said.closed else "Open",
        "conditions": conditions(wanted, before, now, always=True),
    }


def _unless(problem: str, kind: str, code: str) -> Condition:
    """A condition of this kind that is true unless there is a problem, whose reason is `code`."""
    return Condition(kind, not problem, code if problem else kind, problem)


def _merged(said: dict[str, str], before: object) -> dict[str, str | None]:
    """The amounts as a merge patch, which removes those that are not said any more."""
    gone = before.keys() - said.keys() if isinstance(before, dict) else ()
    return {**said, **dict.fromkeys(sorted(gone))}

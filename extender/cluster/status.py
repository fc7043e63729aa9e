"""The status of objects of optional kinds: their conditions, and what of it is not written yet.

`write_class` and `write_queue` say how a GpuClass and a Queue stand, `group_status` how a gang does.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from extender.engine.types.effects import ClassStatus, QueueStatus
from protos.contract import gpu_class, names, queue
from protos.contract.printable import printable
from protos.kube import paths
from protos.kube.client import ApiClient

Json = dict[str, Any]
Said = Callable[[Mapping[str, Any], str], Json]
"""Of the status as it is and the time (RFC 3339): the fields that are to be there."""
BY_US = {"fieldManager": names.EXTENDER}
CLASS_UNREADABLE, QUEUE_UNREADABLE = "ClassUnreadable", "QueueUnreadable"
ACCEPTED, PLACED, MISPLACED = "Accepted", "Placed", "Misplaced"
WITHIN, EXCEEDED = "WithinCapability", "CapabilityExceeded"


class _Meta(msgspec.Struct, frozen=True):
    uid: str = ""


class There(msgspec.Struct, frozen=True):
    """An object as it is: its UID and its status."""

    metadata: _Meta = _Meta()
    status: Json | None = None


_objects = msgspec.json.Decoder(There)


class Condition(NamedTuple):
    """One condition, but for its time."""

    type: str
    true: bool
    reason: str
    message: str


def conditions(wanted: Iterable[Condition], before: Mapping[str, Any], now: str, *, always: bool = False) -> list[Json]:
    """These conditions beside those of others in the status `before`; one that does not turn keeps its time.

    One that was never true is shown only `always`.
    """
    there = before.get("conditions")
    found = [known for known in there if isinstance(known, dict)] if isinstance(there, list) else []
    made: dict[str, Json] = {str(known.get("type")): known for known in found}
    for condition in wanted:
        former = made.get(condition.type, {})
        if not (condition.true or former or always):
            continue
        value = "True" if condition.true else "False"
        time = former.get("lastTransitionTime") if former.get("status") == value else None
        fields = {"status": value, "reason": condition.reason, "message": printable(condition.message)}
        made[condition.type] = {"type": condition.type, **fields, "lastTransitionTime": time or now}
    return list(made.values())


async def read(client: ApiClient, where: Mapping[str, str]) -> There:
    """The object there (arguments of `paths.path`); raises the request's errors."""
    return await client.fetch(paths.path(**where), _objects)


def unwritten(there: There, said: Said) -> Json:
    """Of what is to be said of an object what its status does not say already."""
    before = there.status or {}
    wanted = said(before, f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}")
    return {key: value for key, value in wanted.items() if before.get(key) != value}


async def write_class(client: ApiClient, said: ClassStatus) -> None:
    """Say in the status of a GpuClass how many GPUs are of it; raises the request's errors."""
    told = [_unless(said.problem, ACCEPTED, CLASS_UNREADABLE)]
    counts = {"gpus": said.gpus, "freeGpus": said.free, "nodes": said.nodes}

    def status(before: Mapping[str, Any], now: str) -> Json:
        return {**counts, "conditions": conditions(told, before, now, always=True)}

    await _write(client, gpu_class.API_VERSION, gpu_class.PLURAL, said.name, status)


async def write_queue(client: ApiClient, said: QueueStatus) -> None:
    """Say in the status of a Queue how it stands; raises the request's errors."""
    told = [
        _unless(said.problem, ACCEPTED, QUEUE_UNREADABLE),
        _unless(said.misplaced, PLACED, MISPLACED),
        _unless(said.exceeded, WITHIN, EXCEEDED),
    ]

    def status(before: Mapping[str, Any], now: str) -> Json:
        return {
            "allocated": _merged(said.allocated, before.get("allocated")),
            "requested": _merged(said.requested, before.get("requested")),
            "fairShare": _merged(said.fair_share, before.get("fairShare")),
            "share": said.share,
            "waiting": said.waiting,
            "running": said.running,
            "state": "Closed" if said.closed else "Open",
            "conditions": conditions(told, before, now, always=True),
        }

    await _write(client, queue.API_VERSION, queue.PLURAL, said.name, status)


def _unless(problem: str, kind: str, code: str) -> Condition:
    """A condition of this kind that is true unless there is a problem, which has this code."""
    return Condition(kind, not problem, code if problem else kind, problem)


def _merged(said: dict[str, str], before: object) -> dict[str, str | None]:
    """As a merge patch: what is not said any more is taken away."""
    gone = before.keys() - said.keys() if isinstance(before, dict) else ()
    return {**said, **dict.fromkeys(sorted(gone))}


async def _write(client: ApiClient, api_version: str, plural: str, name: str, said: Said) -> None:
    """Say this in the object's status; what is there already is not written again."""
    where = {"group_version": api_version, "plural": plural, "name": name}
    changed = unwritten(await read(client, where), said)
    if changed:
        await client.patch(paths.path(**where, subresource="status"), {"status": changed}, params=BY_US)

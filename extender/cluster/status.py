"""The status of an object of an optional kind: its conditions, and what of it is not written yet."""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from protos.contract import names
from protos.contract.printable import printable
from protos.kube import paths
from protos.kube.client import ApiClient

Json = dict[str, Any]
Said = Callable[[Mapping[str, Any], str], Json]
"""Of the status as it is and the time (RFC 3339): the fields that are to be there."""
BY_US = {"fieldManager": names.EXTENDER}


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


async def write(client: ApiClient, where: Mapping[str, str], said: Said) -> None:
    """Say this in the object's status; what is there already is not written again. Raises the request's errors."""
    changed = unwritten(await read(client, where), said)
    if changed:
        await client.patch(paths.path(**where, subresource="status"), {"status": changed}, params=BY_US)

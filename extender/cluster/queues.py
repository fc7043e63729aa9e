"""Queues, ours and others': followed where their definitions are, and ours told how they stand.

One that cannot be read is told to the engine as well, for which it stays what it was, and to its owner by an Event.
"""

from collections.abc import Mapping
from typing import Any

from extender.cluster.optional import Complain, Declared, Source
from extender.cluster.status import Condition, Json, conditions, write
from extender.engine.types.effects import QueueStatus
from extender.engine.types.events import Event, QueueGone, QueueSeen
from protos.contract import bounds, queue
from protos.contract.queue import API_VERSION, PLURAL, SOURCES, Queue
from protos.contract.reason import Reason
from protos.kube.changes import Ref
from protos.kube.client import ApiClient
from protos.kube.events import Reference

UNREADABLE = "QueueUnreadable"
ACCEPTED, PLACED, MISPLACED = "Accepted", "Placed", "Misplaced"
WITHIN, EXCEEDED = "WithinCapability", "CapabilityExceeded"


def sources(complain: Complain) -> list[Source]:
    """All kinds; `complain` is told of objects that cannot be read."""
    return [_source(kind, complain) for kind in SOURCES]


def _source(kind: queue.Source, complain: Complain) -> Source:
    def decode(raw: bytes) -> Queue:
        return queue.decode(kind, raw)

    return Source(kind.api_version, kind.plural, kind.kind, decode, _Declared(kind, complain))


class _Declared(Declared):
    """The queues of one kind."""

    def __init__(self, kind: queue.Source, complain: Complain) -> None:
        self._kind, self._complain = kind, complain
        self._taken: set[str] = set()
        """Queues that the engine was told of."""

    def seen(self, ref: Ref, found: Queue) -> Event | None:
        if found.name not in self._taken and len(self._taken) >= bounds.QUEUES.most:
            self._complain(self._about(ref), Reason(UNREADABLE, bounds.QUEUES.exceeded(len(self._taken) + 1)))
            return None
        self._taken.add(found.name)
        if found.problem:
            self._complain(self._about(ref), Reason(UNREADABLE, found.problem))
        return QueueSeen(found)

    def gone(self, ref: Ref) -> Event:
        name = self._kind.name(ref.namespace, ref.name)
        self._taken.discard(name)
        return QueueGone(self._kind.api_version, name)

    def unreadable(self, ref: Ref, error: Exception) -> None:
        self._complain(self._about(ref), Reason(UNREADABLE, str(error)))

    def _about(self, ref: Ref) -> Reference:
        return Reference(self._kind.api_version, self._kind.kind, ref.name, ref.namespace, ref.uid)


async def write_status(client: ApiClient, said: QueueStatus) -> None:
    """Say this in the status of its Queue; what is there already is not written again. Raises the request's errors."""
    where = {"group_version": API_VERSION, "plural": PLURAL, "name": said.name}
    told = [
        Condition(ACCEPTED, not said.problem, UNREADABLE if said.problem else ACCEPTED, said.problem),
        Condition(PLACED, not said.misplaced, MISPLACED if said.misplaced else PLACED, said.misplaced),
        Condition(WITHIN, not said.exceeded, EXCEEDED if said.exceeded else WITHIN, said.exceeded),
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

    await write(client, where, status)


def _merged(said: dict[str, str], before: object) -> dict[str, str | None]:
    """As a merge patch: what is not said any more is taken away."""
    gone = before.keys() - said.keys() if isinstance(before, dict) else ()
    return {**said, **dict.fromkeys(sorted(gone))}

"""How a queue stands, written into the status of its Queue."""

from collections.abc import Mapping
from typing import Any

from extender.cluster.status import Condition, Json, conditions, write
from extender.engine.types.effects import QueueStatus
from protos.contract.queue import API_VERSION, PLURAL
from protos.kube.client import ApiClient

UNREADABLE = "QueueUnreadable"
ACCEPTED, PLACED, MISPLACED = "Accepted", "Placed", "Misplaced"
WITHIN, EXCEEDED = "WithinCapability", "CapabilityExceeded"


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

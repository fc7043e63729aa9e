"""Other schedulers that serve the scheduler names of ours: while one of them renews its Lease, we place no pods.

Two schedulers of one name would both place its pods, and a gang split between them would never be complete.
"""

import asyncio
import time
from collections.abc import Iterable

import structlog

from protos.kube import errors, lease
from protos.kube.client import ApiClient
from protos.kube.lease import Sight

LOOK_S = 5.0
"""Seconds between two reads of a Lease."""
RENEWED_S = 30.0
"""A scheduler counts as gone so many seconds after the last renewal that we saw (Volcano renews every 10 s)."""

log = structlog.get_logger(__name__)


class Rivals:
    """Watches the Leases of such schedulers, given as (namespace, name)."""

    def __init__(self, client: ApiClient, leases: Iterable[tuple[str, str]]) -> None:
        self._client = client
        self._sights = {where: Sight() for where in leases}
        self._unread: set[tuple[str, str]] = set()

    def why(self) -> str:
        """The sentence about a rival that renews its Lease, "" if there is none."""
        now = time.monotonic()
        for (namespace, name), sight in self._sights.items():
            if sight.renewed_within(RENEWED_S, now):
                return f"another scheduler serves the same pods: {sight.holder} renews the Lease {namespace}/{name}"
        return ""

    async def run(self) -> None:
        """Read the Leases for ever."""
        while self._sights:
            for where, sight in self._sights.items():
                await self._look(where, sight)
            await asyncio.sleep(LOOK_S)

    async def _look(self, where: tuple[str, str], sight: Sight) -> None:
        asked_at = time.monotonic()
        try:
            sight.see(await lease.read(self._client, *where), asked_at)
        except errors.NotFound:
            sight.see(None, asked_at)
        except errors.ApiError as error:
            if where not in self._unread:
                log.warning("rival_lease_not_read", lease="/".join(where), error=str(error))
            self._unread.add(where)

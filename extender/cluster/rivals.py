"""Other schedulers that serve the names of ours: while one of them renews its Lease, we place nothing.

Two schedulers of one name would both place its pods, and a gang between them would never be whole.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

import structlog

from protos.kube import errors, lease
from protos.kube.client import ApiClient
from protos.kube.lease import Sight

LOOK_S = 5.0
"""Seconds between two looks at a Lease."""
RENEWED_S = 30.0
"""Seconds since the last renewal that was seen, after which a scheduler counts as gone (Volcano renews every 10 s)."""

log = structlog.get_logger(__name__)


class Rivals:
    """The Leases of such schedulers, as (namespace, name)."""

    def __init__(
        self, client: ApiClient, leases: Iterable[tuple[str, str]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._clock = client, clock
        self._sights: Mapping[tuple[str, str], Sight] = {where: Sight() for where in leases}
        self._unread: set[tuple[str, str]] = set()

    def why(self) -> str:
        """Who else serves our names, "" if nobody does."""
        now = self._clock()
        for (namespace, name), sight in self._sights.items():
            if sight.renewed_within(RENEWED_S, now):
                return f"another scheduler serves the same pods: {sight.holder} renews the Lease {namespace}/{name}"
        return ""

    async def run(self) -> None:
        """Look, for ever."""
        while self._sights:
            for where, sight in self._sights.items():
                await self._look(where, sight)
            await asyncio.sleep(LOOK_S)

    async def _look(self, where: tuple[str, str], sight: Sight) -> None:
        asked_at = self._clock()
        try:
            sight.see(await lease.read(self._client, *where), asked_at)
        except errors.NotFound:
            sight.see(None, asked_at)
        except errors.ApiError as error:
            if where not in self._unread:
                log.warning("rival_lease_not_read", lease="/".join(where), error=str(error))
            self._unread.add(where)

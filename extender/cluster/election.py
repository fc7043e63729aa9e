"""Who acts where the extender stands apart from any scheduler: its replicas elect one by a Lease of their own."""

import asyncio
import time
from collections.abc import Callable

import structlog

from extender.cluster.leadership import NotLeading
from protos.kube import errors
from protos.kube.client import ApiClient
from protos.kube.lease import Election, Terms

log = structlog.get_logger(__name__)


class OwnLease:
    """Stands for election, for ever, and answers like `LeaseWatch`."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        name: str,
        identity: str,
        terms: Terms | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._election = Election(client, namespace=namespace, name=name, identity=identity, clock=clock, terms=terms)
        self._clock = clock
        self._trouble = "the Lease was not seen yet"
        self._next = asyncio.Event()
        self.terms = 0
        """How often we were elected."""

    @property
    def leads(self) -> bool:
        return self._election.leads(self._clock())

    @property
    def ours(self) -> bool:
        return self.leads

    def why_not(self) -> str:
        return self._trouble or "another extender holds the Lease"

    def require(self) -> None:
        if not self.leads:
            raise NotLeading(self.why_not())

    async def settled(self) -> bool:
        return self.leads

    def look_soon(self) -> None:
        """Trying earlier would win nothing: the Lease is free when its holder was silent for its duration."""

    async def looked(self) -> None:
        """Wait until the election was stood for once more."""
        await self._next.wait()

    async def run(self) -> None:
        """Acquire and renew, for ever; given back in the end, so that nobody has to wait."""
        try:
            while True:
                await self._stand()
                self._next.set()
                self._next = asyncio.Event()
                await asyncio.sleep(self._election.terms.retry_s)
        finally:
            await self._election.release()

    async def _stand(self) -> None:
        led = self.leads
        try:
            await self._election.step()
            self._trouble = ""
        except errors.ApiError as error:
            log.warning("lease_failed", error=str(error))
            self._trouble = str(error)
        if self.leads and not led:
            self.terms += 1
        if self.leads != led:
            log.info("leadership", leads=self.leads, why="elected" if self.leads else self.why_not())

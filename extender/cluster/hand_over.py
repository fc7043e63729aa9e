"""A Lease that passes to the next extender only when the former one has no Binding under way.

kube-scheduler gives its Lease up as soon as it is told to stop, and another one leads within two seconds. By then the
API server may not have carried out all Bindings of the former extender. So a new leader reads the cluster only once it
holds this Lease: the former holder released it, or did not renew it for its duration.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable

import structlog

from protos.kube import errors
from protos.kube.client import ApiClient
from protos.kube.lease import Election, Terms

SUFFIX = "-extender"
"""The Lease has the name of kube-scheduler's Lease with this suffix."""
SOON_S = 0.2
"""Seconds between two attempts while the Lease is wanted and another's."""
LANDING_S = 65.0
"""Seconds after which the API server has dropped a request that it did not answer (its own limit is 60 s)."""
FIRST_S = 2.0
"""Seconds for which the first list of the cluster waits for the Lease; a Lease that comes later takes one list more."""

log = structlog.get_logger(__name__)


class HandOver:
    """The Lease as one extender sees it."""

    def __init__(
        self,
        client: ApiClient,
        where: tuple[str, str],
        identity: str,
        renew_deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`where`: namespace and name of kube-scheduler's Lease; `renew_deadline_s`: of its leader election."""
        namespace, scheduler = where
        # in the proportion of kube-scheduler's defaults: 15, 10 and 2 s
        terms = Terms(math.ceil(1.5 * renew_deadline_s), renew_deadline_s, renew_deadline_s / 5)
        name = f"{scheduler}{SUFFIX}"
        self._election = Election(client, namespace=namespace, name=name, identity=identity, clock=clock, terms=terms)
        self._clock, self._trouble, self._taken = clock, "", asyncio.Event()

    @property
    def held(self) -> bool:
        return self._election.leads(self._clock())

    @property
    def term(self) -> int | None:
        """It changes whenever the Lease comes from another extender; None: this extender does not hold it."""
        return self._election.transitions if self.held else None

    def why_not(self) -> str:
        """Why the cluster may not be read yet, "" if it may."""
        if self.held:
            return ""
        if self._trouble:
            return self._trouble
        holder, lease = self._election.holder or "nobody", f"{self._election.namespace}/{self._election.name}"
        return f"Bindings of the former leader may be under way: {holder} holds the Lease {lease}"

    async def taken(self) -> None:
        """Wait for the Lease for a moment."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._taken.wait(), FIRST_S)

    async def run(self, wanted: Callable[[], bool], busy: Callable[[], bool]) -> None:
        """Hold the Lease while it is `wanted`, or Bindings are under way (`busy`), but these no longer than LANDING_S.

        For ever. On cancellation it is released, unless Bindings are under way: then others wait for its duration.
        """
        look_at = wanted_at = 0.0
        try:
            while True:
                wanted_at = self._clock() if wanted() else wanted_at
                wants = wanted() or (self.held and busy() and self._clock() < wanted_at + LANDING_S)
                if wants != self.held or self._clock() >= look_at:
                    await self._look(wants)
                    look_at = self._clock() + self._election.terms.retry_s
                await asyncio.sleep(SOON_S)
        finally:
            if not busy():
                await self._election.release()

    async def _look(self, wants: bool) -> None:
        try:
            if wants and await self._election.step():
                self._taken.set()
            if not wants:
                await self._election.observe()
                await self._election.release()
            self._trouble = ""
        except errors.ApiError as error:
            if not self._trouble:
                log.warning("lease_not_taken", lease=self._election.name, error=str(error))
            self._trouble = str(error)

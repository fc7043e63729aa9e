"""Who acts: this process writes only while its own scheduler holds the scheduler's Lease, and renewed it lately.

The Lease is looked at once a second. A look that shows another renewTime than the look before proves one thing: the
Lease was renewed after the earlier look was *asked*. From that moment, on our monotonic clock, it counts for
renewDeadline. So neither the clocks of other machines nor an answer that waited in a buffer while this process was
stopped can make an old renewal look new. Source: client-go tools/leaderelection (a holder that cannot renew within
renewDeadline gives up; another takes over no earlier than leaseDuration after the last renewal it saw).
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from protos.kube import errors, lease
from protos.kube.client import ApiClient
from protos.kube.lease import LeaseSpec

LOOK_S = 1.0
"""Seconds between looks at the Lease."""
SOON_S = 0.2
"""The same while something waits for it, and the least there is."""
SETTLE_S = 4.0
"""How long a write waits for the first proof of a renewal: two of the scheduler's renewals (retryPeriod is 2 s)."""

log = structlog.get_logger(__name__)


class NotLeading(errors.ApiError):
    """Nothing was written, since the Lease is not surely ours."""

    def __init__(self, why: str) -> None:
        super().__init__("not leading", message=why)
        self.why = why


class Permission(Protocol):
    """Whether this process may write."""

    def require(self) -> None:
        """Raise NotLeading unless it may be written now; asked right before each write is sent."""
        ...

    async def settled(self) -> bool:
        """Whether it may be written, after a short wait where that is about to be known."""
        ...


class Alone:
    """The permission of a process that has no rival."""

    def require(self) -> None:
        return

    async def settled(self) -> bool:
        return True


class Leadership:
    """What the looks at the Lease so far add up to. Pure but for the clock."""

    def __init__(self, identity_prefix: str, renew_deadline_s: float, clock: Callable[[], float] = time.monotonic):
        self._prefix, self._deadline_s, self.clock = identity_prefix, renew_deadline_s, clock
        self._spec = LeaseSpec()
        self._asked_at: float | None = None
        self._renewed_at: float | None = None
        self.trouble = ""
        """Why the last look failed, "" if it did not."""
        self.terms = 0
        """How often the Lease turned to us after having been another's or nobody's, as far as we saw."""

    @property
    def ours(self) -> bool:
        """Whether our scheduler held the Lease at the last look, renewed or not."""
        return (self._spec.holder_identity or "").startswith(self._prefix)

    @property
    def leads(self) -> bool:
        """Whether it may be written now."""
        return self.ours and self._renewed_at is not None and self.clock() - self._renewed_at < self._deadline_s

    @property
    def may_settle(self) -> bool:
        """Whether the next looks may well show that it may be written."""
        return not self.leads and (self.ours or self._asked_at is None)

    def why_not(self) -> str:
        """Why it may not be written, for people."""
        holder = self._spec.holder_identity
        if self._asked_at is None or (self.trouble and not self.leads):
            return self.trouble or "the scheduler's Lease was not seen yet"
        if not self.ours:
            return f"the scheduler's Lease is held by {holder}" if holder else "nobody holds the scheduler's Lease"
        if self._renewed_at is None:
            return f"the scheduler's Lease names {holder}, but was not seen renewed yet"
        return f"{holder} did not renew the scheduler's Lease within {self._deadline_s:g} s"

    def saw(self, spec: LeaseSpec, asked_at: float) -> None:
        """Take in a look at the Lease that was asked at this time of our clock."""
        before, was_ours, self.trouble = self._spec, self.ours, ""
        self._spec = spec
        passed = (spec.lease_transitions or 0) - (before.lease_transitions or 0)
        if self.ours and (not was_ours or passed > 1):
            self.terms += 1
        if spec.holder_identity != before.holder_identity and not was_ours:
            self._renewed_at = None
        if self._asked_at is not None and spec.renew_time != before.renew_time:
            self._renewed_at = self._asked_at
        self._asked_at = asked_at


class LeaseWatch(Leadership):
    """Looks at the scheduler's Lease, for ever, and answers from what it saw."""

    def __init__(
        self, client: ApiClient, namespace: str, name: str, identity_prefix: str, renew_deadline_s: float
    ) -> None:
        super().__init__(identity_prefix, renew_deadline_s)
        self._client, self._namespace, self._name = client, namespace, name
        self._wanted = asyncio.Event()
        self._next = asyncio.Event()

    def require(self) -> None:
        if not self.leads:
            raise NotLeading(self.why_not())

    async def settled(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while self.may_settle:
                    self.look_soon()
                    await self.looked()
        return self.leads

    def look_soon(self) -> None:
        """Ask for a look earlier than the next second; cheap to call often."""
        self._wanted.set()

    async def looked(self) -> None:
        """Wait until the Lease was looked at once more."""
        await self._next.wait()

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            self._wanted.clear()
            await self._look()
            self._next.set()
            self._next = asyncio.Event()
            await asyncio.sleep(SOON_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), LOOK_S - SOON_S)

    async def _look(self) -> None:
        led, asked_at = self.leads, self.clock()
        try:
            spec = (await lease.read(self._client, self._namespace, self._name)).spec
        except errors.NotFound:
            spec = LeaseSpec()
        except errors.ApiError as error:
            if not self.trouble:
                log.warning("lease_not_read", error=str(error))
            self.trouble = str(error)
            return
        self.saw(spec, asked_at)
        if led != self.leads:
            why = self.why_not() if led else "the Lease was seen renewed"
            log.info("leadership", leads=self.leads, why=why)

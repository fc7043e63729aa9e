"""Which replica acts: this process writes only while its own scheduler holds and renews the scheduler's Lease.

`LeaseWatch` reads the Lease once a second. A read that shows another renewTime than the read before proves one thing:
the Lease was renewed after the earlier read was *sent*. From that moment, on our monotonic clock, the proof counts for
renewDeadline. So neither the clocks of other machines nor an answer that waited in a buffer while this process was
stopped can make an old renewal look new. Source: client-go tools/leaderelection (a holder that cannot renew within
renewDeadline gives up; another takes over no earlier than leaseDuration after the last renewal it saw).

An extender without a kube-scheduler beside it is elected by a Lease of its own: `OwnLease`.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, Protocol

import structlog

from protos.kube import errors, lease
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from protos.kube.lease import Election, LeaseSpec

LOOK_S = 1.0
"""Seconds between two reads of the Lease."""
SOON_S = 0.2
"""The same while a request waits for it; reads are never closer together."""
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
        """Raise NotLeading if this process may not write now; called right before each write is sent."""
        ...

    async def settled(self) -> bool:
        """Whether this process may write, after a short wait if that will be known soon."""
        ...


class Alone:
    """The permission of the only replica."""

    def require(self) -> None:
        return

    async def settled(self) -> bool:
        return True


class PermittedClient(ApiClient):
    """An ApiClient whose writes raise NotLeading unless this process may write at that moment.

    The check comes right before each request is sent, after it waited for its turn, its connection or a Retry-After.
    """

    def __init__(self, credentials: Credentials, permission: Permission, **options: Any) -> None:
        super().__init__(credentials, **options)
        self._permission = permission

    def _about_to_send(self, method: str, target: str) -> None:
        if method != "GET":
            self._permission.require()
            log.debug("write", method=method, path=target)


class Leadership:
    """What the reads of the Lease so far prove. Pure but for the clock."""

    def __init__(self, identity_prefix: str, renew_deadline_s: float, clock: Callable[[], float] = time.monotonic):
        self._prefix, self._deadline_s, self.clock = identity_prefix, renew_deadline_s, clock
        self._spec = LeaseSpec()
        self._asked_at: float | None = None
        self._renewed_at: float | None = None
        self.trouble = ""
        """Why the last read failed, "" if it did not."""
        self.terms = 0
        """How often the Lease became ours after it was another's or free, as far as we saw."""

    @property
    def ours(self) -> bool:
        """Whether our scheduler held the Lease at the last read, renewed or not."""
        return (self._spec.holder_identity or "").startswith(self._prefix)

    @property
    def leads(self) -> bool:
        """Whether this process may write now."""
        return self.ours and self._renewed_at is not None and self.clock() - self._renewed_at < self._deadline_s

    def why_not(self) -> str:
        """Why this process may not write, for people."""
        holder = self._spec.holder_identity
        if self._asked_at is None or (self.trouble and not self.leads):
            return self.trouble or "the scheduler's Lease was not seen yet"
        if not self.ours:
            return f"the scheduler's Lease is held by {holder}" if holder else "the scheduler's Lease has no holder"
        if self._renewed_at is None:
            return f"the scheduler's Lease names {holder}, but was not seen renewed yet"
        return f"{holder} did not renew the scheduler's Lease within {self._deadline_s:g} s"

    def saw(self, spec: LeaseSpec, asked_at: float) -> None:
        """Take in a read of the Lease that was sent at this time of our clock."""
        before, was_ours, self.trouble = self._spec, self.ours, ""
        self._spec = spec
        transitions = (spec.lease_transitions or 0) - (before.lease_transitions or 0)
        if self.ours and (not was_ours or transitions > 1):
            self.terms += 1
        if spec.holder_identity != before.holder_identity and not was_ours:
            self._renewed_at = None
        if self._asked_at is not None and spec.renew_time != before.renew_time:
            self._renewed_at = self._asked_at
        self._asked_at = asked_at


class LeaseWatch(Leadership):
    """Reads the scheduler's Lease, for ever, and answers from what it read."""

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
                while not self.leads and (self.ours or self._asked_at is None):
                    self.look_soon()
                    await self.looked()
        return self.leads

    def look_soon(self) -> None:
        """Ask for a read before the next second; cheap to call often."""
        self._wanted.set()

    async def looked(self) -> None:
        """Wait for the next read of the Lease."""
        await self._next.wait()

    async def run(self) -> None:
        """Read for ever."""
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
            log.info("leadership", leads=self.leads, why=self.why_not() if led else "the Lease was seen renewed")


class OwnLease:
    """Stands for election, for ever, with the interface of `LeaseWatch`."""

    def __init__(self, client: ApiClient, namespace: str, name: str, identity: str) -> None:
        clock = time.monotonic
        self._election = Election(client, namespace=namespace, name=name, identity=identity, clock=clock)
        self._trouble = "the Lease was not seen yet"
        self._next = asyncio.Event()
        self.terms = 0
        """How often we were elected."""

    @property
    def leads(self) -> bool:
        return self._election.leads(time.monotonic())

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
        """An earlier try would win nothing: the Lease is free once its holder was silent for its duration."""

    async def looked(self) -> None:
        """Wait for the next try."""
        await self._next.wait()

    async def run(self) -> None:
        """Acquire and renew, for ever; on cancellation the Lease is released, so that no replica has to wait."""
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

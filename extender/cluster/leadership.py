"""Which replica acts: this process writes only while its own scheduler holds and renews the scheduler's Lease.

`LeaseWatch` reads the Lease once a second. A read that shows another renewTime than the read before proves one thing:
the Lease was renewed after the earlier read was *sent*. From that moment, on our monotonic clock, the proof counts for
renewDeadline. So neither the clocks of other machines nor an answer that waited in a buffer while this process was
stopped can make an old renewal look new. Source: client-go tools/leaderelection (a holder that cannot renew within
renewDeadline gives up; another takes over no earlier than leaseDuration after the last renewal it saw).

A new leader waits until the former one has no Binding under way: `hand_over`.

An extender without a kube-scheduler beside it is elected by a Lease of its own: `OwnLease`. While another scheduler
serves the same pods, no replica acts: `Rivals`.
"""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

import structlog

from extender.cluster.hand_over import HandOver
from protos.kube import errors, lease
from protos.kube.client import ApiClient
from protos.kube.lease import Election, LeaseSpec, Sight

LOOK_S = 1.0
"""Seconds between two reads of the Lease."""
SOON_S = 0.2
"""The same while a request waits for it; reads are never closer together."""
SETTLE_S = 4.0
"""How long a write waits for the first proof of a renewal: two of the scheduler's renewals (retryPeriod is 2 s)."""
RIVAL_LOOK_S = 5.0
"""Seconds between two reads of a rival's Lease."""
RIVAL_RENEWED_S = 30.0
"""A rival counts as gone so many seconds after the last renewal that we saw (Volcano renews every 10 s)."""
UNSEEN = "the Lease was not seen yet"

log = structlog.get_logger(__name__)


class NotLeading(errors.ApiError):
    """Nothing was written, since the Lease is not surely ours."""

    def __init__(self, why: str) -> None:
        super().__init__("not leading", message=f"nothing was written: {why}")


class Permission:
    """Whether this process may write. This is the permission of the only replica, which always may."""

    @property
    def leads(self) -> bool:
        """Whether this process may write now."""
        return True

    def why_not(self) -> str:
        """Why this process may not write, for people."""
        return ""

    def require(self) -> None:
        """Raise NotLeading if this process may not write now; called right before each write is sent."""
        if not self.leads:
            raise NotLeading(self.why_not())

    async def settled(self) -> None:
        """Wait for a moment if it will soon be known whether this process may write."""


class Candidate(Permission, ABC):
    """The permission of one of several replicas, by a Lease at which it looks again and again."""

    def __init__(self) -> None:
        self.terms = 0
        """How often the Lease became ours after it was another's or free, as far as we saw."""
        self.trouble = UNSEEN
        """Why the last look failed, "" if it did not."""
        self.busy: Callable[[], bool] = lambda: False
        """Whether Bindings of this process are under way; then it does not say that it has stopped leading."""
        self._next = asyncio.Event()

    @property
    def ours(self) -> bool:
        """Whether the Lease was ours at the last look, renewed or not."""
        return self.leads

    @property
    def term(self) -> object:
        """It changes with each term: then the cluster must be read anew."""
        return self.terms

    def not_handed_over(self) -> str:
        """Why a leader must wait before it reads the cluster, "" if it need not."""
        return ""

    async def handed_over(self) -> None:
        """Wait for a moment for what the former leader has to hand over, if we lead."""

    def look_soon(self) -> None:
        """Ask for an earlier look, if one may show more; cheap to call often."""

    async def looked(self) -> None:
        """Wait for the next look at the Lease."""
        await self._next.wait()

    @abstractmethod
    async def run(self) -> None:
        """Look for ever."""

    @abstractmethod
    async def _see(self) -> None:
        """Take in the Lease as it is; raises the errors of a request."""

    async def _look(self) -> None:
        led = self.leads
        try:
            await self._see()
        except errors.ApiError as error:
            if self.trouble in ("", UNSEEN):
                log.warning("lease_not_read", error=str(error))
            self.trouble = str(error)
        if led != self.leads:
            log.info("leadership", leads=self.leads, why=self.why_not() if led else "the Lease was seen renewed")
        self._next.set()
        self._next = asyncio.Event()


class LeaseWatch(Candidate):
    """Reads the scheduler's Lease, for ever, and answers from what the reads so far prove."""

    def __init__(
        self,
        client: ApiClient,
        where: tuple[str, str],
        identity_prefix: str,
        renew_deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`where`: namespace and name of the Lease."""
        super().__init__()
        self._hand_over = HandOver(client, where, identity_prefix, renew_deadline_s, clock)
        self._client, self._where = client, where
        self._prefix, self._deadline_s, self._clock = identity_prefix, renew_deadline_s, clock
        self._spec = LeaseSpec()
        self._asked_at: float | None = None
        self._renewed_at: float | None = None
        self._wanted = asyncio.Event()

    @property
    def ours(self) -> bool:
        return (self._spec.holder_identity or "").startswith(self._prefix)

    @property
    def leads(self) -> bool:
        return self.ours and self._renewed_at is not None and self._clock() - self._renewed_at < self._deadline_s

    def why_not(self) -> str:
        holder = self._spec.holder_identity
        if self.trouble and not self.leads:
            return self.trouble
        if not self.ours:
            return f"the scheduler's Lease is held by {holder}" if holder else "the scheduler's Lease has no holder"
        if self._renewed_at is None:
            return f"the scheduler's Lease names {holder}, but was not seen renewed yet"
        return f"{holder} did not renew the scheduler's Lease within {self._deadline_s:g} s"

    @property
    def term(self) -> object:
        return self.terms, self._hand_over.term

    def not_handed_over(self) -> str:
        return self._hand_over.why_not()

    async def handed_over(self) -> None:
        if self.ours:
            await self._hand_over.taken()

    @property
    def _unsettled(self) -> bool:
        return not self.leads and (self.ours or self._asked_at is None)

    async def settled(self) -> None:
        if not self._unsettled:  # before each write, and a timeout takes longer than to look
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while self._unsettled:
                    self.look_soon()
                    await self.looked()

    def look_soon(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hand_over.run(lambda: self.ours, self.busy))
            tasks.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            self._wanted.clear()
            await self._look()
            await asyncio.sleep(SOON_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), LOOK_S - SOON_S)

    async def _see(self) -> None:
        asked_at = self._clock()
        found = await lease.read(self._client, *self._where)
        self.saw(found.spec if found else LeaseSpec(), asked_at)

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


class OwnLease(Candidate):
    """Stands for election, for ever. An earlier look would win nothing: the holder must be silent for a while first."""

    def __init__(self, client: ApiClient, where: tuple[str, str], identity: str) -> None:
        super().__init__()
        namespace, name = where
        clock = time.monotonic
        self._election = Election(client, namespace=namespace, name=name, identity=identity, clock=clock)

    @property
    def leads(self) -> bool:
        return self._election.leads(time.monotonic())

    def why_not(self) -> str:
        return self.trouble or "another extender holds the Lease"

    async def run(self) -> None:
        """Acquire and renew, for ever.

        On cancellation the Lease is released, so that no replica has to wait, unless Bindings are under way.
        """
        try:
            while True:
                await self._look()
                await asyncio.sleep(self._election.terms.retry_s)
        finally:
            if not self.busy():
                await self._election.release()

    async def _see(self) -> None:
        led = self.leads
        await self._election.step()
        self.trouble = ""
        if self.leads and not led:
            self.terms += 1


class Rivals:
    """Watches the Leases (NAMESPACE/NAME) of other schedulers that serve the scheduler names of ours.

    While one of them renews its Lease, we place no pods. Two schedulers of one name would both place its pods, and a
    gang split between them would never be complete.
    """

    def __init__(self, client: ApiClient, leases: Iterable[str]) -> None:
        self._client = client
        self._sights = {where: Sight() for where in leases}
        self._unread: set[str] = set()

    def why(self) -> str:
        """The sentence about a rival that renews its Lease, "" if there is none."""
        now = time.monotonic()
        for where, sight in self._sights.items():
            if sight.renewed_within(RIVAL_RENEWED_S, now):
                return f"another scheduler serves the same pods: {sight.holder} renews the Lease {where}"
        return ""

    async def run(self) -> None:
        """Read the Leases for ever."""
        while self._sights:
            for where, sight in self._sights.items():
                await self._look(where, sight)
            await asyncio.sleep(RIVAL_LOOK_S)

    async def _look(self, where: str, sight: Sight) -> None:
        asked_at = time.monotonic()
        try:
            sight.see(await lease.read(self._client, *where.split("/")), asked_at)
        except errors.ApiError as error:
            if where not in self._unread:
                log.warning("rival_lease_not_read", lease=where, error=str(error))
            self._unread.add(where)

"""Leases (coordination.k8s.io/v1): their holders by the local clock, and leader election.

Clocks of machines differ, so the times in a Lease are never compared with local time. The time since its last observed
change counts, by the local monotonic clock. A holder without an observed renewal may be long dead.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from protos.kube import errors
from protos.kube.client import ApiClient, decoded
from protos.kube.paths import path

log = structlog.get_logger()
GROUP = "coordination.k8s.io/v1"


class LeaseMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The metadata of a Lease; resource_version is the precondition of an update.

    An update replaces the whole object, so the fields of other writers are kept.
    """

    name: str
    namespace: str
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[Any] = []
    finalizers: list[str] = []


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The holder, and times as written by it. The last two fields are for coordinated elections (KEP-4355)."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(msgspec.Struct, frozen=True, rename="camel"):
    """A coordination.k8s.io/v1 Lease."""

    metadata: LeaseMeta
    spec: LeaseSpec = LeaseSpec()
    api_version: str = GROUP
    kind: str = "Lease"


_leases = msgspec.json.Decoder(Lease)


async def read(client: ApiClient, namespace: str, name: str) -> Lease | None:
    """The present Lease, None if there is none; raises the other errors of a request."""
    try:
        return await client.fetch(path(GROUP, "leases", namespace=namespace, name=name), _leases)
    except errors.NotFound:
        return None


class Sight:
    """The observations of one Lease with local times; needs every state that was read or watched."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self._since = 0.0
        self._moved = False

    def see(self, lease: Lease | None, now: float) -> None:
        """Add a state (None: no such Lease); `now` is the monotonic time before the request was sent."""
        before, self.lease = self.lease, lease
        if before is None or lease is None or before.spec != lease.spec:
            self._since, self._moved = now, before is not None

    @property
    def holder(self) -> str:
        """The holder's identity, "" without one."""
        return (self.lease.spec.holder_identity or "") if self.lease else ""

    def unchanged_s(self, now: float) -> float:
        """Seconds since the first observation of the present state."""
        return now - self._since

    def renewed_within(self, seconds: float, now: float) -> bool:
        """Whether the holder acquired or renewed it within these seconds; a first observation does not count."""
        return bool(self.holder) and self._moved and self.unchanged_s(now) < seconds


@dataclass(frozen=True)
class Terms:
    """The times of an election, in seconds; the defaults are kube-scheduler's."""

    duration_s: int = 15
    """Other candidates take over a Lease that did not change for so long."""
    renew_deadline_s: float = 10.0
    """The leader stops after so long without a renewal; less than the duration."""
    retry_s: float = 2.0
    """Between two attempts."""


class Election:
    """Leadership by a Lease; check `leads(now)` before every write."""

    def __init__(
        self,
        client: ApiClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float],
        terms: Terms | None = None,
    ) -> None:
        self.client, self.namespace, self.name, self.identity = client, namespace, name, identity
        self.clock, self.terms = clock, terms or Terms()
        self._sight = Sight()
        self._renewed: float | None = None

    def leads(self, now: float) -> bool:
        """Whether this process certainly holds the Lease at `now`."""
        return self._renewed is not None and now - self._renewed < self.terms.renew_deadline_s

    @property
    def holder(self) -> str:
        """The holder's identity when it was last seen, "" without one."""
        return self._sight.holder

    @property
    def transitions(self) -> int:
        """How often the Lease changed hands, when it was last seen."""
        lease = self._sight.lease
        return (lease.spec.lease_transitions or 0) if lease else 0

    async def observe(self) -> float:
        """Read the Lease; returns the time at which the request was sent. Raises request errors."""
        now = self.clock()
        self._sight.see(await read(self.client, self.namespace, self.name), now)
        return now

    async def step(self) -> bool:
        """Try to acquire or renew; return whether this process leads. Raises request errors except Conflict."""
        now = await self.observe()
        if self._free(now):
            await self._take(now)
        else:
            self._renewed = None
        return self.leads(self.clock())

    async def release(self) -> None:
        """Release a held Lease, so that other candidates need not wait; errors are only logged."""
        lease, self._renewed = self._sight.lease, None
        if lease is None or self._sight.holder != self.identity:
            return
        empty = msgspec.structs.replace(lease.spec, holder_identity="", lease_duration_seconds=1)
        try:
            await self._put(msgspec.structs.replace(lease, spec=empty), self.clock())
        except errors.ApiError as error:
            log.warning("lease_not_released", namespace=self.namespace, name=self.name, error=str(error))

    def _free(self, now: float) -> bool:
        """Whether this process or none holds it, or its holder did not renew it for its duration."""
        lease = self._sight.lease
        if lease is None or self._sight.holder in ("", self.identity):
            return True
        return self._sight.unchanged_s(now) >= (lease.spec.lease_duration_seconds or self.terms.duration_s)

    async def _take(self, now: float) -> None:
        lease, wall = self._sight.lease, f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        before = lease.spec if lease else LeaseSpec()
        ours = before.holder_identity == self.identity
        spec = msgspec.structs.replace(
            before,
            holder_identity=self.identity,
            lease_duration_seconds=self.terms.duration_s,
            acquire_time=before.acquire_time if ours else wall,
            renew_time=wall,
            lease_transitions=(before.lease_transitions or 0) + (0 if ours or lease is None else 1),
        )
        try:
            if lease is None:
                made = Lease(LeaseMeta(self.name, self.namespace), spec)
                where = path(GROUP, "leases", namespace=self.namespace)
                answer = await self.client.post(where, made, urgent=True)
                self._sight.see(decoded(f"POST {where}", answer, _leases), now)
            else:
                await self._put(msgspec.structs.replace(lease, spec=spec), now)
        except (errors.Conflict, errors.NotFound):
            self._renewed = None
            return
        self._renewed = now

    async def _put(self, lease: Lease, now: float) -> None:
        where = path(GROUP, "leases", namespace=self.namespace, name=self.name)
        answer = await self.client.put(where, lease, urgent=True)
        self._sight.see(decoded(f"PUT {where}", answer, _leases), now)

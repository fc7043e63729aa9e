"""Decides which gangs ask an autoscaler for capacity, by a ProvisioningRequest, and which requests are over.

A gang asks once and as a whole, if its plan has failed for lack of capacity for a while. That some members fit on no
present node is no obstacle: other nodes are just what it asks for. A gang that its queue does not admit, or that lacks
a member, does not ask. Nor does one for which others are being evicted.

Its members name the request from the first look on, also before there is one: an autoscaler adds no nodes for such pods
one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from extender.engine.gangs.planner import GangPlanner, smallest_start
from extender.engine.gangs.reporter import ref
from extender.engine.state.reservations import Reservations
from extender.engine.state.roster import GangInfo, Roster
from extender.engine.types import refusals
from extender.engine.types.effects import PodRef
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.members import Stage
from gangfilter.table import Phase
from protos.contract import provisioning
from protos.contract.bounds import PROVISIONING_OPEN
from protos.contract.provisioning import Request
from protos.contract.reason import Reason

BACKOFF_S, LONGEST_S = 60.0, 1800.0
"""Seconds from a failed request to the next one; doubled for each further one, and the longest. As in Kueue."""
SHORT = (refusals.GANG_NO_ROOM, refusals.gang_cannot_fit.code)
"""Codes of gangs that lack capacity, and nothing else."""
KEEPS = (Phase.ASSEMBLING, Phase.STARTING, Phase.BINDING)
"""Phases in which a request stays: the gang is about to start, or may be back in a moment."""
SAYS = {
    "": Reason("ProvisioningRequested", "no autoscaler has taken it yet"),
    "Accepted": Reason("ProvisioningAccepted", "an autoscaler looks for capacity"),
    "Provisioned": Reason("ProvisioningDone", "the capacity is there or on its way"),
    "Failed": Reason("ProvisioningFailed", "there is no such capacity; it asks again later"),
    "BookingExpired": Reason("ProvisioningExpired", "the capacity was not used in time; it asks again later"),
    "CapacityRevoked": Reason("ProvisioningRevoked", "the capacity was taken away; it asks again later"),
}
"""By the state of a request. Each has a code of its own: of one code, a pod gets an Event in 30 seconds at most."""


class Ask(msgspec.Struct, frozen=True):
    """Create this request for the members of a gang, and delete the one `before`."""

    request: Request
    kinds: tuple[str, ...]
    """API versions of the gang's PodGroups."""
    pod_sets: tuple[tuple[PodRef, int], ...]
    """A member of each pod set, and how many are like it."""
    before: Request | None


class Orders(msgspec.Struct):
    """What is to be done."""

    asks: list[Ask] = []
    over: list[Request] = []
    """Requests to delete."""
    consumers: list[tuple[Request, PodRef]] = []
    """Members, each with the request that it consumes, or will consume."""
    about: dict[str, PodRef] = {}
    """A member of the gang of each request, by the request's UID: it gets the Events."""


class Provisioning:
    """The gangs that lack capacity, since when, and what became of their requests."""

    def __init__(
        self, roster: Roster, planner: GangPlanner, reservations: Reservations, after_s: float, most: int
    ) -> None:
        """A gang asks after `after_s` seconds, for at most `most` pods."""
        self._roster, self._planner, self._reservations = roster, planner, reservations
        self._after_s, self._most = after_s, most
        self._since: dict[GroupKey, float] = {}
        self._named: set[GroupKey] = set()
        """Gangs that lack capacity and whose members name a request."""
        self._open: dict[tuple[str, str], Request] = {}

    def told(self, key: GroupKey) -> str:
        """What became of the gang's request, "" if it has none."""
        request = self._open.get((key.namespace, key.name))
        return said(request).sentence if request is not None else ""

    def lacking(self) -> list[GangInfo]:
        """The gangs that lack capacity now."""
        return [known for known in self._roster.known.values() if self._lacks(known)]

    def look(self, found: Iterable[Request], now: float) -> Orders:
        """What is to be done now, given all requests of extenders."""
        self._open, earlier = provisioning.newest(found)
        orders = Orders(over=earlier)
        if not (self._roster.leading and self._roster.replayed):
            return Orders()
        lacking = {known.gang.key: known for known in self.lacking()}
        self._since = {key: self._since.get(key, now) for key in lacking}
        orders.over += [request for request in self._open.values() if self._is_over(request, lacking)]
        room = PROVISIONING_OPEN.most - sum(request.state not in provisioning.OVER for request in self._open.values())
        for key in sorted(lacking, key=lambda key: (self._since[key], key)):
            known, request = lacking[key], self._open.get((key.namespace, key.name))
            if request is not None and (member := next(_idle(known.gang), None)) is not None:
                orders.about[request.uid] = member
            if request is not None and request.state not in provisioning.OVER:
                continue
            if room > 0 and self._due(key, request, now) and (ask := self._ask(known, request)) is not None:
                orders.asks.append(ask)
                room -= 1
        orders.consumers += self._consumers(lacking)
        return orders

    def _consumers(self, lacking: dict[GroupKey, GangInfo]) -> Iterator[tuple[Request, PodRef]]:
        """The members of gangs that ask, or will ask once they have lacked capacity for long enough."""
        self._named.intersection_update(lacking)
        for key, known in lacking.items():
            request = self._open.get((key.namespace, key.name))
            if request is None and key not in self._named and self._ask(known, None) is None:
                continue
            self._named.add(key)
            consumed = request or _request(key, 1)
            yield from ((consumed, pod) for pod in _idle(known.gang))

    def _lacks(self, known: GangInfo) -> bool:
        reason = known.reason
        return known.gang.phase is Phase.WAITING and reason is not None and reason.code in SHORT

    def _is_over(self, request: Request, lacking: dict[GroupKey, GangInfo]) -> bool:
        """Whether the gang has started, has no member left, or waits for something else than capacity."""
        key = GroupKey(request.namespace, request.group)
        known = self._roster.known.get(key)
        if known is None or not known.gang.members:
            return True
        if key in lacking or known.gang.phase in KEEPS:
            return False
        return known.gang.phase is not Phase.WAITING or known.reason is not None

    def _due(self, key: GroupKey, request: Request | None, now: float) -> bool:
        if request is None:
            return now >= self._since[key] + self._after_s
        pause = min(BACKOFF_S * 2.0 ** min(request.attempt - 1, 10), LONGEST_S)
        return now >= self._roster.clock(request.changed, now) + pause

    def _ask(self, known: GangInfo, before: Request | None) -> Ask | None:
        """The request for the smallest start; None if the gang waits for a queue or for evictions, or is too large."""
        gang = known.gang
        if self._planner.withheld(gang) is not None:
            return None
        seats, _ = smallest_start(gang, list(self._planner.seats(gang)))
        if not 0 < len(seats) <= self._most or any(self._reservations.of(seat.uid) for seat in seats):
            return None
        like = Counter((seat.role, seat.ask, seat.requests, seat.constraints) for seat in seats)
        if len(like) > provisioning.POD_SETS:
            return None
        first = {(seat.role, seat.ask, seat.requests, seat.constraints): seat.uid for seat in reversed(seats)}
        request = _request(gang.key, before.attempt + 1 if before is not None else 1)
        pod_sets = tuple((ref(gang, gang.members[first[likeness]]), count) for likeness, count in like.items())
        return Ask(request, tuple(known.declared), pod_sets, before)


def said(request: Request) -> Reason:
    """What became of a request."""
    word = SAYS[request.state]
    message = f" ({request.message})" if request.message else ""
    return msgspec.structs.replace(word, sentence=f"ProvisioningRequest {request.name}: {word.sentence}{message}")


def _request(key: GroupKey, attempt: int) -> Request:
    """A request that is to be made."""
    called = provisioning.name(key.namespace, key.name, attempt)
    return Request(namespace=key.namespace, name=called, uid="", group=key.name, attempt=attempt)


def _idle(gang: Gang) -> Iterator[PodRef]:
    return (ref(gang, member) for member in gang.at(Stage.IDLE))

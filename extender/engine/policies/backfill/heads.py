"""Who comes first in each queue of those for whom there is no room, if they have waited for a while."""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator
from functools import partial
from typing import NamedTuple

from extender.engine.planning.attempt import LOOK, STEP
from extender.engine.planning.solver import Wanted
from extender.engine.policies.context import PolicyContext
from extender.engine.queueing.line import Turn
from extender.engine.queueing.queue_node import LocalQueue
from extender.engine.queueing.turns import QueueRank
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo
from extender.engine.state.seats import Seat
from extender.engine.types import refusals
from gangfilter.gang import Gang
from gangfilter.table import Phase

MOST = 4
"""Room is kept for so many at most."""
WAITS = "waiting", "held"
"""A pod in these states has no node yet."""
LOOKED_AT = 4
"""What it costs to look at one that waits, in `attempt.LOOK`s."""


class QueuePosition(NamedTuple):
    """Where one stands in line."""

    local_queue: LocalQueue | None
    """In which queue; None: in none."""
    turn: Turn


class Head(NamedTuple):
    """One that comes first in its queue."""

    place: QueuePosition
    who: str
    """`gang NAMESPACE/NAME`, or a pod's NAMESPACE/NAME."""
    since: float
    """Since when it waits."""
    of: GangInfo | PodState


class Heads:
    """Finds them, and tells where anybody stands."""

    def __init__(self, context: PolicyContext) -> None:
        self._context = context
        self._ledger, self._gangs = context.ledger, context.gangs

    # -- where they stand

    def of_gang(self, gang: Gang) -> QueuePosition:
        """Where a gang stands."""
        return QueuePosition(self._context.tenancy.admission.local_queue(gang), self._context.order.of_gang(gang))

    def queue(self, place: QueuePosition) -> object:
        """The queue that one stands in; None if in none."""
        return self._context.tenancy.queues.at(place.local_queue) if place.local_queue is not None else None

    def of_pod(self, pod: PodState) -> QueuePosition:
        """Where a pod stands that goes singly."""
        return QueuePosition(self._context.tenancy.queues.of(pod.ref.uid), self._context.order.of_pod(pod))

    def before(self, one: QueuePosition, other: QueuePosition) -> bool:
        """Whether one stands before the other, as their queues stand at this moment."""
        return self._rank(one) < self._rank(other)

    def waiting(self, of: GangInfo | PodState) -> QueuePosition | None:
        """Where one stands that waits, whatever for: a gang, or a pod that goes singly; None of everybody else."""
        if isinstance(of, GangInfo):
            return self.of_gang(of.gang) if of.gang.phase is Phase.WAITING else None
        return self.of_pod(of) if self._goes_singly(of) else None

    def everybody(self) -> Iterator[QueuePosition | None]:
        """Where all stand that wait, in no order; None for each that is looked at and does not."""
        for known in list(self._gangs.roster.known.values()):
            yield self.waiting(known)
        for uid in list(self._context.running_pods.pending):
            pod = self._ledger.pods.get(uid)
            yield self.waiting(pod) if pod is not None else None

    def _rank(self, place: QueuePosition) -> tuple[QueueRank, Turn]:
        local_queue = place.local_queue
        return self._context.tenancy.admission.queue_rank(local_queue) if local_queue is not None else (), place.turn

    # -- who comes first

    def first(
        self, now: float, after_s: float, but: Container[object], kept: Container[str]
    ) -> Generator[int, None, list[Head]]:
        """The first of each queue that have waited so long, `but` for some, or for all of some queues, in their order.

        For those in `kept` room is kept already: they may be about to start. Work is told in `attempt.LOOK`s.
        """
        best: dict[object, Head] = {}
        before = now - after_s
        every = self._context.pending(
            "heads", partial(self._gang_head, before, now, kept), partial(self._pod_head, before, kept)
        )
        for number, found in enumerate(every):
            if number % STEP == 0:
                yield STEP * LOOKED_AT * LOOK
            queue = self.queue(found.place) if found is not None else None
            if found is not None and found.who not in but and queue not in but:
                best[queue] = min(found, best.get(queue, found), key=lambda head: head.place.turn)
        return sorted(best.values(), key=lambda head: self._rank(head.place))[:MOST]

    def _gang_head(self, before: float, now: float, kept: Container[str], known: GangInfo) -> Head | None:
        gang, who = known.gang, f"gang {known.gang.key}"
        if gang.phase is not Phase.WAITING or gang.born > before:
            return None
        short = known.reason is not None and known.reason.code == refusals.GANG_NO_ROOM and gang.may_plan(now)
        comes = who in kept and not refusals.for_queue(known.reason)
        return Head(self.of_gang(gang), who, gang.born, known) if short or comes else None

    def _pod_head(self, before: float, kept: Container[str], uid: str) -> Head | None:
        pod = self._ledger.pods.get(uid)
        if pod is not None and self._is_short(pod, kept) and (since := self._context.order.since(pod)) <= before:
            return Head(self.of_pod(pod), str(pod.ref), since, pod)
        return None

    def _is_short(self, pod: PodState, kept: Container[str]) -> bool:
        """Whether a pod that goes singly has found no room, or has some kept that it has not come to yet."""
        if not self._goes_singly(pod):
            return False
        if pod.refusal is None:
            return str(pod.ref) in kept
        return pod.refusal.code in refusals.FOR_ROOM

    def _goes_singly(self, pod: PodState) -> bool:
        """Whether a pod waits and is in no gang."""
        return pod.state in WAITS and pod.ask is not None and self._gangs.roster.of(pod.ref.uid) is None

    # -- what they want

    def waits(self, head: Head) -> bool:
        """Whether it still waits."""
        if isinstance(head.of, GangInfo):
            gang = head.of.gang
            return gang.phase is Phase.WAITING and self._gangs.roster.known.get(gang.key) is head.of
        return head.of.state in WAITS and self._ledger.pods.get(head.of.ref.uid) is head.of

    def wanted(self, head: Head) -> Wanted | None:
        """What room it needs; None if it waits no more, or others make room for it."""
        if not self.waits(head):
            return None
        if isinstance(head.of, GangInfo):
            _, seats, free = self._gangs.planner.asked(head.of.gang)
        else:
            seats, free = (Seat.of(head.of),), ()
        if not seats or any(self._context.reservations.of(seat.uid) is not None for seat in seats):
            return None
        return Wanted(tuple(seats), free)

    def needs(self, pod: PodState) -> bool:
        """Whether a gang that runs cannot do without this member: nobody goes before it."""
        known = self._gangs.roster.of(pod.ref.uid)
        return known is not None and known.gang.phase is Phase.DEGRADED

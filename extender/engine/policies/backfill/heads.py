"""The heads of queues: the first workload of each queue that does not fit, if it has waited for a while."""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator
from functools import partial
from typing import NamedTuple

from extender.engine.planning.attempt import LOOK, STEP
from extender.engine.planning.solver import Wanted
from extender.engine.policies.context import PolicyContext
from extender.engine.queueing.line import Turn
from extender.engine.queueing.order import QueueRank
from extender.engine.queueing.queue_node import LocalQueue, QueueNode
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo
from extender.engine.state.seats import Seat
from extender.engine.types import refusals
from gangfilter.gang import Gang
from gangfilter.table import Phase

MOST = 4
"""Most heads for which nodes are reserved."""
WAITS = "waiting", "held"
"""The states of a pod that has no node yet."""
LOOKED_AT = 4
"""Cost of looking at a pending workload."""


Rank = tuple[QueueRank, Turn]
"""The rank of the queue, and the turn in it."""


class QueuePosition(NamedTuple):
    """The place of a workload in line."""

    local_queue: LocalQueue | None
    """None: it is in no queue."""
    turn: Turn


class Head(NamedTuple):
    """The first workload of a queue."""

    place: QueuePosition
    who: str
    """`gang NAMESPACE/NAME`, or a pod's NAMESPACE/NAME."""
    since: float
    """Since when it waits."""
    of: GangInfo | PodState


class Heads:
    """Finds the heads, and the place of any pending workload in line."""

    def __init__(self, context: PolicyContext) -> None:
        self._context = context
        self._ledger, self._gangs = context.ledger, context.gangs

    # -- places in line

    def of_gang(self, gang: Gang) -> QueuePosition:
        return QueuePosition(self._context.tenancy.admission.local_queue(gang), self._context.order.of_gang(gang))

    def of_pod(self, pod: PodState) -> QueuePosition:
        """The place of a single pod."""
        return QueuePosition(self._context.tenancy.queues.of(pod.ref.uid), self._context.order.of_pod(pod))

    def queue(self, place: QueuePosition) -> QueueNode | None:
        """The queue of this place; None if in none."""
        return self._context.tenancy.queues.at(place.local_queue) if place.local_queue is not None else None

    def waiting(self, of: GangInfo | PodState) -> QueuePosition | None:
        """The place of a pending gang or single pod, whatever it waits for; None for any other."""
        if isinstance(of, GangInfo):
            return self.of_gang(of.gang) if of.gang.phase is Phase.WAITING else None
        return self.of_pod(of) if self._is_single(of) else None

    def everybody(self) -> Iterator[QueuePosition | None]:
        """The places of all pending workloads, unordered; None for each workload that is not pending."""
        for known in list(self._gangs.roster.known.values()):
            yield self.waiting(known)
        for uid in self._context.pending_singles:
            pod = self._ledger.pods.get(uid)
            yield self.waiting(pod) if pod is not None else None

    def rank(self, place: QueuePosition) -> Rank:
        """The rank of this place among all places, by the ranks that queues have now; the lowest is first."""
        local_queue = place.local_queue
        return self._context.tenancy.admission.queue_rank(local_queue) if local_queue is not None else (), place.turn

    # -- heads

    def first(
        self, now: float, after_s: float, but: Container[object], kept: Container[str]
    ) -> Generator[int, None, list[Head]]:
        """The heads that have waited so long, in order, `but` for some workloads or queues.

        Workloads in `kept` have a reservation already and may be about to start.
        """
        best: dict[object, Head] = {}
        before = now - after_s
        every = self._context.pending(
            "heads", partial(self._gang_head, before, now, kept), partial(self._pod_head, before, kept)
        )
        for number, head in enumerate(every):
            if number % STEP == 0:
                yield STEP * LOOKED_AT * LOOK
            queue = self.queue(head.place) if head is not None else None
            if head is not None and head.who not in but and queue not in but:
                best[queue] = min(head, best.get(queue, head), key=lambda each: each.place.turn)
        return sorted(best.values(), key=lambda head: self.rank(head.place))[:MOST]

    def _gang_head(self, before: float, now: float, kept: Container[str], known: GangInfo) -> Head | None:
        gang, who = known.gang, f"gang {known.gang.key}"
        if gang.phase is not Phase.WAITING or gang.born > before:
            return None
        short = known.reason is not None and known.reason.code in refusals.GANG_SHORT and gang.may_plan(now)
        comes = who in kept and not refusals.for_queue(known.reason)
        return Head(self.of_gang(gang), who, gang.born, known) if short or comes else None

    def _pod_head(self, before: float, kept: Container[str], uid: str) -> Head | None:
        pod = self._ledger.pods.get(uid)
        if pod is not None and self._is_short(pod, kept) and (since := self._context.order.since(pod)) <= before:
            return Head(self.of_pod(pod), str(pod.ref), since, pod)
        return None

    def _is_short(self, pod: PodState, kept: Container[str]) -> bool:
        """Whether a single pod found no room, or has a reservation and has not come yet."""
        if not self._is_single(pod):
            return False
        if pod.refusal is None:
            return str(pod.ref) in kept
        return pod.refusal.code in refusals.FOR_ROOM and self._context.cannot_fit.of(pod) is None

    def _is_single(self, pod: PodState) -> bool:
        return pod.state in WAITS and pod.ask is not None and self._gangs.roster.of(pod.ref.uid) is None

    # -- what heads need

    def waits(self, head: Head) -> bool:
        """Whether the head is still pending."""
        if isinstance(head.of, GangInfo):
            gang = head.of.gang
            return gang.phase is Phase.WAITING and self._gangs.roster.known.get(gang.key) is head.of
        return head.of.state in WAITS and self._ledger.pods.get(head.of.ref.uid) is head.of

    def wanted(self, head: Head) -> Wanted | None:
        """What the head needs; None if it is not pending any more, or other pods make room for it."""
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
        """Whether a running gang is below its minimum without this member; then no workload goes before it."""
        known = self._gangs.roster.of(pod.ref.uid)
        return known is not None and known.gang.phase is Phase.DEGRADED

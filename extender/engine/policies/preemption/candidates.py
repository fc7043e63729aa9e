"""Who waits and may take the room of others: gangs that do not fit, and single pods that have found no node."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Literal

import msgspec

from extender.engine.planning.attempt import LOOK, STEP
from extender.engine.planning.solver import Wanted, reopen
from extender.engine.policies.context import PolicyContext
from extender.engine.policies.preemption.attempt import Preemptor
from extender.engine.queueing.line import Turn
from extender.engine.queueing.queue_node import LocalQueue
from extender.engine.queueing.tenancy import Tenancy
from extender.engine.queueing.turns import QueueRank
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo
from extender.engine.state.seats import Seat
from extender.engine.types import refusals
from gangfilter.group import GroupKey
from gangfilter.members import SETTLED
from gangfilter.minimum import minimum
from gangfilter.table import Phase
from protos.contract.reason import Reason

PAUSE_S, PAUSE_MOST_S = 1.0, 60.0
"""Seconds after a search, or a preemption that came to nothing, until the next for the same; doubled each time."""
LAPSED_S, LAPSED_MOST_S = 300.0, 3600.0
"""The same after others were evicted and nobody came for their room: kube-scheduler knows why, and we do not."""
DOUBLINGS = 16
"""How often that is doubled."""
FORGOTTEN, FORGET_S = 4, 2 * PAUSE_MOST_S
"""So many at a time are dropped of those who could have been looked for since so many seconds, and were not."""
RESTS = 4096
"""Of so many it is known at most when it is worth looking again."""
SEEN = 6
"""What it costs to look at one that waits, in `attempt.LOOK`s."""
PASSED = 0.125
"""As how many of those one counts that waits for something else, or not at all."""
Key = GroupKey | tuple[int, int, LocalQueue | None]
"""A gang, or all single pods that are alike (by the hash of their likeness), of one priority and in one queue."""
Moment = tuple[int, int, int, int, int]
"""What the cluster is like: it changes with anything that may let somebody fit."""
Chosen = tuple[Key, Preemptor, Wanted]
How = Literal["done", "coming", "vain", "lapsed"]
"""What came of it: a start; enough becomes free without preemption; no victims, or not evicted; evicted in vain."""
Waiting = tuple[QueueRank, Turn, Key, GangInfo | PodState]
"""Who comes first sorts first, as in line."""


class Backoff(msgspec.Struct):
    """When it is worth looking again for somebody."""

    pause: float = PAUSE_S
    lapses: int = 0
    """How often in a row others were evicted in vain."""
    again_at: float = 0.0
    sure_at: float = 0.0
    """From then on, whatever has changed: those who had only just started have run long enough."""
    moment: Moment = (-1, -1, -1, -1, -1)
    told: str = ""
    """What forbids it, as it was told last."""


class CandidateFilter:
    """Who may find anybody to take the room of, as things stand when this is made; told fast."""

    def __init__(self, tenancy: Tenancy, lowest: int | None, spare: Mapping[str, int]) -> None:
        """`lowest` priority there is; by queue the lowest of its gangs that can spare somebody."""
        self._tenancy, self._lowest, self._spare = tenancy, lowest, spare
        self._some_over: bool | None = None
        self._known: dict[LocalQueue, tuple[QueueRank, bool]] = {}

    def line(self, local_queue: LocalQueue, priority: int) -> QueueRank | None:
        """The turn of the queue of these pods; None if nobody is below them, nor any queue owes theirs anything."""
        if local_queue not in self._known:
            self._known[local_queue] = self._tenancy.admission.queue_rank(local_queue), self._reclaims(local_queue)
        turn, reclaims = self._known[local_queue]
        if reclaims or (self._lowest is not None and priority > self._lowest):
            return turn
        spare = self._spare.get(self._tenancy.queues.at(local_queue).name)
        return turn if spare is not None and priority >= spare else None

    def _reclaims(self, local_queue: LocalQueue) -> bool:
        queues = self._tenancy.queues
        if self._some_over is None:
            self._some_over = any(queue_node.exceeds for queue_node in queues.queue_nodes.values())
        at = queues.at(local_queue)
        return self._some_over and (at.part <= 1 or at.lacks or bool(at.below))


class Candidates:
    """Chooses whom to search for."""

    def __init__(self, context: PolicyContext) -> None:
        self._context = context
        self._gangs, self._running_pods = context.gangs, context.running_pods
        self._rests: dict[Key, Backoff] = {}
        self.seen = 0.0
        """How many were looked at the last time."""

    def first(
        self, now: float, moment: Moment, busy: Iterable[str], *, replayed: bool
    ) -> Generator[int, None, Chosen | None]:
        """Who comes first, as in line; nobody in `busy`. Work is told in `attempt.LOOK`s.

        `replayed`: also such for whom another process has begun to make room.
        """
        best, self.seen = None, 0.0
        lowest = self._context.priorities.lowest(self._running_pods.priorities)
        spare = yield from self._spare()
        busy, chances = frozenset(busy), CandidateFilter(self._context.tenancy, lowest, spare)
        of_pod = partial(self._waiting_pod, chances, busy, replayed)
        every = self._context.pending("candidates", partial(self._waiting_gang, chances, busy, now), of_pod)
        for number, each in enumerate(every if lowest is not None else ()):
            self.seen += 1 if each is not None else PASSED
            if number % STEP == STEP - 1:
                yield STEP * SEEN
            if each is not None and (best is None or _place(each) < _place(best)) and self._due(each[2], now, moment):
                best = each
        if best is None:
            return None
        key, found = best[2:]
        yield LOOK
        asked = None
        with self._context.quarantine.over(found.subject, "candidates"):
            asked = self._gang(found) if isinstance(found, GangInfo) else self._pod(found)
        if asked is None or not self._open_to(asked[0].pods, replayed=replayed):
            self.rest(key, now, moment, 0.0, "vain")
            return None
        return key, *asked

    def _spare(self) -> Generator[int, None, dict[str, int]]:
        """The lowest priority of gangs that can spare somebody, by queue."""
        found: dict[str, int] = {}
        for number, known in enumerate(list(self._gangs.roster.known.values())):
            gang = known.gang
            if gang.phase is Phase.RUNNING and gang.members and gang.count(*SETTLED) > (minimum(gang)[0] or 0):
                queue = self._context.tenancy.queues.at(self._context.tenancy.admission.local_queue(gang)).name
                lowest = self._context.priorities.of(gang, min(member.priority for member in gang.members.values()))
                found[queue] = min(lowest, found.get(queue, lowest))
            if number % STEP == STEP - 1:
                yield STEP * LOOK
        return found

    def _waiting_gang(
        self, chances: CandidateFilter, busy: frozenset[str], now: float, known: GangInfo
    ) -> Waiting | None:
        gang, key = known.gang, known.gang.key
        short = known.reason is not None and known.reason.code in (refusals.GANG_NO_ROOM, *refusals.QUEUE_SHORT)
        if not short or not gang.may_plan(now) or f"gang {key}" in busy or gang in self._gangs.planner.turns:
            return None
        place = self._context.order.of_gang(gang)
        line = chances.line(self._context.tenancy.admission.local_queue(gang), -place.precedence)
        return (line, place, key, known) if line is not None else None

    def _waiting_pod(self, chances: CandidateFilter, busy: frozenset[str], replayed: bool, uid: str) -> Waiting | None:
        pod = self._running_pods.pending.get(uid)
        if pod is None or not pod.info.unschedulable or pod.info.never:
            return None
        local_queue = self._context.tenancy.queues.of(uid)
        line = chances.line(local_queue, pod.priority) if local_queue is not None else None
        if local_queue is None or line is None or not self._is_single(pod, replayed) or str(pod.ref) in busy:
            return None
        place = self._context.order.of_pod(pod)
        return line, place, (hash(Seat.of(pod).likeness), pod.priority, local_queue), pod

    def _is_single(self, pod: PodState, replayed: bool) -> bool:
        if pod.state != "waiting" or isinstance(pod.asked, Reason) or pod.forged:
            return False
        if pod.refusal is not None and refusals.for_queue(pod.refusal) and pod.refusal.code not in refusals.QUEUE_SHORT:
            return False
        return self._gangs.roster.of(pod.ref.uid) is None and self._open_to((pod.ref.uid,), replayed=replayed)

    def _gang(self, known: GangInfo) -> tuple[Preemptor, Wanted] | None:
        gang = known.gang
        if gang.phase is not Phase.WAITING:
            return None
        _, minimum, free = self._gangs.planner.asked(gang)
        pending = self._running_pods.pending
        pods = {seat.uid: pending[seat.uid] for seat in minimum if seat.uid in pending}
        if not minimum or len(pods) < len(minimum) or any(pod.info.never for pod in pods.values()):
            return None
        if self._context.priorities.never(gang):
            return None
        priority = self._context.priorities.of(gang, min(pod.priority for pod in pods.values()))
        by = Preemptor(f"gang {gang.key}", priority, pods)
        return by, Wanted(reopen(self._gangs.planner.view, minimum), free)

    def _pod(self, pod: PodState) -> tuple[Preemptor, Wanted] | None:
        if pod.ref.uid not in self._running_pods.pending:
            return None
        wanted = Wanted(reopen(self._gangs.planner.view, [Seat.of(pod)]))
        return Preemptor(str(pod.ref), pod.priority, {pod.ref.uid: pod}), wanted

    def _open_to(self, uids: Iterable[str], *, replayed: bool) -> bool:
        """Whether no room is kept for these, or such as another process did not finish making."""
        kept = [found for uid in uids if (found := self._context.reservations.of(uid)) is not None]
        ours = all(found.preempting for found in kept)
        return not kept or (ours and replayed and not all(found.complete for found in kept))

    # -- when to look again

    def _due(self, key: Key, now: float, moment: Moment) -> bool:
        """Whether a search is worth it by now."""
        rest = self._rests.get(key)
        return rest is None or (now >= rest.again_at and (rest.moment != moment or now >= rest.sure_at))

    def rest(self, key: Key, now: float, moment: Moment, min_runtime_s: float, how: How) -> Backoff:
        """A search or a preemption is over: let some time pass, the longer the less came of it."""
        self._forget_rested(now)
        rest = self._rests[key] = self._rests.pop(key, Backoff())
        rest.lapses = 0 if how == "done" else rest.lapses + (how == "lapsed")
        pause = min(LAPSED_MOST_S, LAPSED_S * 2.0 ** min(rest.lapses - 1, DOUBLINGS)) if how == "lapsed" else rest.pause
        rest.moment, rest.again_at = moment, now + pause
        rest.sure_at = now + max(pause, min_runtime_s)
        rest.pause = min(PAUSE_MOST_S, 2 * rest.pause) if how == "vain" else PAUSE_S
        return rest

    def _forget_rested(self, now: float) -> None:
        """Drop those who have not been looked for in a long time, and of too many the oldest."""
        for key, rest in list(islice(self._rests.items(), FORGOTTEN)):
            if len(self._rests) >= RESTS or now >= max(rest.again_at, rest.sure_at) + FORGET_S:
                del self._rests[key]


def _place(waiting: Waiting) -> tuple[QueueRank, tuple[int, float, float]]:
    """Where somebody stands; whose places are equal come as they are found."""
    line, turn, _, _ = waiting
    return line, (turn.precedence, turn.rank, turn.since)

"""Keeps the earliest start of those who come first in their queues: EASY backfill in a cluster.

Each of them has nodes on which it will start, and the time. Who stands behind it may go there if it is known to end by
then, or if there is room for it beside. As long as the run times of those who have to end are only guessed, the nodes
stay the same, so that they come free one after the other; and who says nothing of its own run time keeps off them only
while the start is no further away than the first has waited, or a few minutes. One that has not started after twice the
time that it was given at first was given a wrong one: then nothing is kept for its queue for as long again. So no room
is idle for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence

import msgspec

from extender.engine.planning.attempt import TRY
from extender.engine.planning.backfill_guard import BackfillGuard, Kept, nobody
from extender.engine.planning.solver import Wanted, reopen
from extender.engine.planning.what_if import Claim, WhatIfNodes
from extender.engine.policies.backfill.earliest import Earliest, End, EndOf, earliest, ends
from extender.engine.policies.backfill.heads import Head, Heads, QueuePosition
from extender.engine.policies.backfill.reservation import SOON_S, BackfillReservation, FutureNodes
from extender.engine.policies.context import PolicyContext
from extender.engine.queueing.runtimes import end_of_running
from extender.engine.queueing.waking import Waking
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.types.sliced import SLICE, Sliced
from gangfilter.gang import Gang

PAUSE_S, PER_SLICE_S = 1.0, 40e-6 * SLICE
"""Seconds between two reckonings: at least, and for each slice that one took, which is some 20 times that."""
STALE_S = 10.0
"""A reckoning is made anew after so long, whether anything has changed or not: ends that are guessed move on."""
VAIN_S, AGAIN_S = 300.0, 10.0
"""Seconds for which one is passed over that has no room even if all leave, and one that has some already or has none
beside what is kept for others."""
COME_S = 60.0
"""Seconds for which the nodes are kept for one for whom there is room by now: it is about to start, or waits for
something else."""


class Backfill:
    """The starts of those who come first, and what others have to leave them."""

    def __init__(self, context: PolicyContext, waking: Waking) -> None:
        self._context, self._waking = context, waking
        self._ledger, self._gangs, self._running_pods = context.ledger, context.gangs, context.running_pods
        self.heads = Heads(context)
        self._kept: dict[str, BackfillReservation] = {}
        self._rests: dict[object, float] = {}
        """Until when nothing is kept for some, or for anybody of some queues, since that is in vain."""
        self._shut: frozenset[str] = frozenset()
        """The nodes that are kept off by who may run for ever."""
        self._work: Sliced[dict[str, BackfillReservation]] | None = None
        self._slices = 0
        self._look_at, self._stale_at = 0.0, 0.0
        self._turn: tuple[int, int] | None = None
        """How often there may have come room, and anybody, when it was reckoned last."""

    def of(self, who: str) -> BackfillReservation | None:
        """What is kept for this one (`gang NAMESPACE/NAME`, or a pod's NAMESPACE/NAME), None if nothing is."""
        return self._kept.get(who)

    def first(self, queue: object) -> BackfillReservation | None:
        """What is kept for the first in line of this queue, None if nothing is."""
        return next((each for each in self._kept.values() if self.heads.queue(each.head.place) is queue), None)

    def pods(self) -> Iterator[PodState]:
        """The pods that go singly for which something is kept."""
        return (each.head.of for each in self._kept.values() if isinstance(each.head.of, PodState))

    # -- whom they keep off

    def before_gang(self, gang: Gang, now: float) -> Kept:
        """What a gang has to leave on a node when it starts now."""
        if not self._kept:
            return nobody
        expected = self._context.runtimes.of_gang(gang)
        binding = self._binding(self.heads.of_gang(gang), f"gang {gang.key}", now + expected, now)
        return lambda node: _there(binding, node)

    def open_to(self, pod: PodState, now: float) -> Callable[[NodeState], bool] | None:
        """Whether a node is open to a pod that goes singly; None if all are."""
        ask = pod.ask
        if not self._kept or ask is None or self.heads.needs(pod):
            return None
        end = now + self._context.runtimes.of_pod(pod)
        binding = self._binding(self.heads.of_pod(pod), str(pod.ref), end, now)
        if not binding:
            return None
        return lambda node: all(each.admits(ask, pod.requests, node.books) for each in _there(binding, node))

    def _binding(self, place: QueuePosition, who: str, end: float, now: float) -> list[BackfillReservation]:
        """Those that bind one who would end then."""
        return [
            reservation
            for key, reservation in self._kept.items()
            if reservation.binds(end, now) and key != who and self.heads.before(reservation.head.place, place)
        ]

    # -- how they are made

    def tick(self, now: float) -> None:
        """Drop those that are over; begin to reckon anew, if it is time."""
        if not self._context.settings.backfill_delay_s:
            return
        waiting = {who: each for who, each in self._kept.items() if self.heads.waits(each.head)}
        if len(waiting) < len(self._kept):
            self._put(waiting, now)
        if not self._gangs.rounds.leading:
            self._kept, self._work = {}, None
        elif self._work is None and now >= self._look_at and (self._news != self._turn or now >= self._stale_at):
            self._turn, self._slices = self._news, 0
            self._work = Sliced(self._reckoned(now))

    @property
    def _news(self) -> tuple[int, int]:
        return self._ledger.freed, self._running_pods.turn

    def work(self, now: float) -> bool:
        """Do a slice of it; returns whether there is more to do."""
        self._slices += 1
        work, self._work = self._work, None  # unless it goes on
        if work is not None and not work.advance():
            self._work = work
        elif work is not None:
            self._look_at = now + max(PAUSE_S, self._slices * PER_SLICE_S)
            self._stale_at = self._look_at + STALE_S
            self._put(work.outcome or {}, now)
        return self._work is not None

    def _put(self, found: dict[str, BackfillReservation], now: float) -> None:
        """These are kept from now on; who was kept off a node that is open now comes back."""
        before = {name for reservation in self._kept.values() for name in reservation.nodes}
        opened = before.difference(*(reservation.nodes for reservation in found.values()))
        shut = frozenset(n for each in found.values() if each.binds(math.inf, now) for n in each.nodes)
        opened |= self._shut - shut
        for who, reservation in found.items():
            if not reservation.first.last and who in self._kept and self._kept[who].first.last:
                opened.update(reservation.nodes)  # there is room for it, and nobody may have told it so
        self._kept, self._shut = found, shut
        for name in sorted(opened):
            self._waking.room(name)
        self._ledger.freed += bool(opened)

    def _reckoned(self, now: float) -> Generator[int, None, dict[str, BackfillReservation]]:
        self._lapse(now)
        heads = yield from self.heads.first(now, self._context.settings.backfill_delay_s, self._rests, self._kept)
        found: dict[str, BackfillReservation] = {}
        ordered = (yield from ends(self._ledger, list(self._ledger.nodes), self._end_of(now))) if heads else []
        claims: list[Claim] = []
        passed = set()
        for head in heads:
            with self._context.quarantine.over(head.of.subject, "backfill"):
                wanted = self.heads.wanted(head)
                first = (yield from self._earliest(head, wanted, ordered, claims, now)) if wanted is not None else None
                if wanted is None or first is None or not (first.last or head.who in self._kept):
                    never = wanted is not None and first is None and not (claims or self._context.reservations)
                    self._rests[head.who] = now + (VAIN_S if never else AGAIN_S)
                    passed.add(self.heads.queue(head.place))
                    continue
                found[head.who] = reservation = self._reservation(head, wanted, first, found, now)
                pods = self._ledger.pods
                claims += [(pods[uid], assignment) for uid, assignment in first.assignments.items() if uid in pods]
                for name in first.nodes:
                    reservation.guard(name)
                    yield TRY
        if passed:  # the next in such a queue comes first the next time, which is soon; until then all stays
            self._turn = None
            stays = (each for each in self._kept.values() if self.heads.queue(each.head.place) in passed)
            found |= {each.head.who: each for each in stays if each.head.who not in self._rests}
        return found

    def _lapse(self, now: float) -> None:
        """Queues rest whose first did not start when it should have."""
        self._rests = {key: until for key, until in self._rests.items() if now < until}
        for reservation in self._kept.values():
            if now >= reservation.until:
                self._rests[self.heads.queue(reservation.head.place)] = now + reservation.until - reservation.made

    def _earliest(
        self, head: Head, wanted: Wanted, ordered: list[End], claims: Sequence[Claim], now: float
    ) -> Generator[int, None, Earliest | None]:
        """Where it is kept room already, as long as nobody knows better; else wherever it is first."""
        uids = [seat.uid for seat in wanted.seats]
        held = [pod for uid in uids if (pod := self._ledger.pods[uid]).state == "held"]
        others = [*self._context.reservations.claims(uids), *claims]
        what_if = WhatIfNodes(self._ledger, self._running_pods.leaving, held, others)
        view = self._gangs.planner.view
        anywhere = msgspec.structs.replace(wanted, seats=reopen(view, wanted.seats))
        before, found = self._kept.get(head.who), None
        if before is not None:
            nodes = {name: self._ledger.nodes[name] for name in before.nodes if name in self._ledger.nodes}
            near = msgspec.structs.replace(view, nodes=nodes)
            here = [end for end in ordered if end.node in nodes]
            found = yield from earliest(near, what_if, anywhere, here, now)
        if before is None or found is None or (found.sure and found.start > before.first.start):
            found = yield from earliest(view, what_if, anywhere, ordered, now)
        yield from what_if.dissolve()
        return found

    def _reservation(
        self, head: Head, wanted: Wanted, first: Earliest, others: dict[str, BackfillReservation], now: float
    ) -> BackfillReservation:
        seats = {seat.uid: seat for seat in wanted.seats}
        there = {name: [s for o in others.values() for s in o.seats.get(name, ())] for name in first.nodes}
        for uid, assignment in first.assignments.items():
            there[assignment.node].append(seats[uid])
        before = self._kept.get(head.who)
        made, until = now, now + (2 * max(SOON_S, first.start - now) if first.last else COME_S)
        if before is not None and bool(before.first.last) == bool(first.last):  # wherever it is by now
            made, until = before.made, before.until
        ignored = self._gangs.planner.view.ignored
        future_nodes = FutureNodes(self._ledger, self._running_pods, ignored, self._end_of(now))
        return BackfillReservation(head, first, there, made, until, future_nodes)

    def _end_of(self, now: float) -> EndOf:
        def end_of(uid: str) -> tuple[float, bool] | None:
            pod = self._ledger.pods.get(uid)
            if pod is None or not pod.info.on_node:
                return None
            expected = self._context.runtimes.of_pod(pod)
            if expected == math.inf and pod.info.endless:
                return None
            return end_of_running(min(now, pod.info.since), expected, now), expected < math.inf

        return end_of


def _there(binding: Sequence[BackfillReservation], node: NodeState) -> list[BackfillGuard]:
    return [guard for each in binding if (guard := each.guard(node.name)) is not None]

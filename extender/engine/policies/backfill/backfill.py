"""EASY backfill: reserves nodes and a start time for the heads of queues.

A workload behind a head may use these nodes if it is known to end before the start, or if it fits beside the head.
While run times are only guessed, the nodes stay the same, so that they come free one after the other. A workload of
unknown run time keeps off them only while the start is no further away than the head has waited, or a few minutes. If a
head has not started after twice the time that it was given first, that time was wrong. Then nothing is reserved for its
queue for as long again, so that no room stays idle for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

import msgspec

from extender.engine.planning.attempt import TRY, ClusterView
from extender.engine.planning.backfill_guard import BackfillGuard, Kept, unguarded
from extender.engine.planning.solver import Wanted, reopen
from extender.engine.planning.what_if import Claim, WhatIfNodes
from extender.engine.policies.backfill.earliest import Earliest, End, EndOf, earliest, ends
from extender.engine.policies.backfill.heads import Head, Heads, Rank
from extender.engine.policies.backfill.reservation import SOON_S, BackfillReservation
from extender.engine.policies.context import PolicyContext
from extender.engine.queueing.runtimes import end_of_running
from extender.engine.queueing.waking import Waking
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.types.sliced import SLICE, Sliced
from gangfilter.gang import Gang

PAUSE_S, PER_SLICE_S = 1.0, 40e-6 * SLICE
"""Seconds between two computations: at least, and for each slice of the last one, some 20 times its duration."""
STALE_S = 10.0
"""Seconds after which the computation is repeated even if nothing has changed, since guessed ends move on."""
VAIN_S, AGAIN_S = 300.0, 10.0
"""Seconds for which a head is skipped that does not fit even if all pods leave; and one that fits now, or has no room
beside reservations for others."""
COME_S = 60.0
"""Seconds for which the nodes stay reserved once there is room: the head starts soon, or waits for other things."""


class Backfill:
    """The reservations of heads, and what other workloads must leave them."""

    def __init__(self, context: PolicyContext, waking: Waking) -> None:
        self._context, self._waking = context, waking
        self._ledger, self._gangs, self._running_pods = context.ledger, context.gangs, context.running_pods
        self.heads = Heads(context)
        self._kept: dict[str, BackfillReservation] = {}
        """By the head's `who`."""
        self._rests: dict[object, float] = {}
        """Until when nothing is reserved for some heads and queues, since that was in vain."""
        self._shut: frozenset[str] = frozenset()
        """Nodes that are closed to workloads of unknown run time."""
        self._work: Sliced[dict[str, BackfillReservation]] | None = None
        self._slices = 0
        self._look_at, self._stale_at = 0.0, 0.0
        self._turn: tuple[int, int] | None = None
        """The state of the cluster at the last computation: changes as room comes free, and as pods come."""

    def of(self, who: str) -> BackfillReservation | None:
        """The reservation of this workload (`gang NAMESPACE/NAME`, or a pod's NAMESPACE/NAME), None without one."""
        return self._kept.get(who)

    def first(self, queue: object) -> BackfillReservation | None:
        """The reservation of this queue's head, None without one."""
        return next((each for each in self._kept.values() if self.heads.queue(each.head.place) is queue), None)

    def pods(self) -> Iterator[PodState]:
        """The single pods that have a reservation."""
        return (each.head.of for each in self._kept.values() if isinstance(each.head.of, PodState))

    # -- what workloads behind must leave

    def before_gang(self, gang: Gang, now: float) -> Kept:
        """The guards that a gang must respect if it starts now."""
        if not self._kept:
            return unguarded
        end = now + self._context.runtimes.of_gang(gang)
        return self.guards(self.heads.rank(self.heads.of_gang(gang)), f"gang {gang.key}", end, now)

    def guards(self, rank: Rank, who: str, end: float, now: float) -> Kept:
        """The guards that a workload of this rank respects if it starts now and ends then."""
        binding = self._binding(rank, who, end, now)
        return lambda node: _guards(binding, node)

    def open_to(self, pod: PodState, now: float) -> Callable[[NodeState], bool] | None:
        """Whether a node is open to a single pod; None if all nodes are."""
        ask = pod.ask
        if not self._kept or ask is None or self.heads.needs(pod):
            return None
        end = now + self._context.runtimes.of_pod(pod)
        binding = self._binding(self.heads.rank(self.heads.of_pod(pod)), str(pod.ref), end, now)
        if not binding:
            return None
        return lambda node: all(guard.admits(ask, pod.requests, node.books) for guard in _guards(binding, node))

    def _binding(self, rank: Rank, who: str, end: float, now: float) -> list[BackfillReservation]:
        """The reservations that bind a workload that would end then."""
        return [each for key, each in self._before(rank) if each.binds(end, now) and key != who]

    def _before(self, rank: Rank) -> Iterator[tuple[str, BackfillReservation]]:
        """The reservations of heads before this rank."""
        return ((who, each) for who, each in self._kept.items() if self.heads.rank(each.head.place) < rank)

    # -- computation

    def tick(self, now: float) -> None:
        """Drop reservations that are over; begin to compute them again, if it is time."""
        if not self._context.settings.backfill_delay_s:
            return
        waiting = {who: each for who, each in self._kept.items() if self.heads.waits(each.head)}
        if len(waiting) < len(self._kept):
            self._put(waiting, now)
        turn = self._ledger.freed, self._running_pods.turn
        if not self._gangs.rounds.leading:
            self._kept, self._work = {}, None
        elif self._work is None and now >= self._look_at and (turn != self._turn or now >= self._stale_at):
            self._turn, self._slices = turn, 0
            self._work = Sliced(self._computed(now))

    def work(self, now: float) -> bool:
        """Do a slice of the computation; return whether there is more to do."""
        self._slices += 1
        work, self._work = self._work, None  # unless it goes on
        if work is not None and not work.advance():
            self._work = work
        elif work is not None:
            self._look_at = now + max(PAUSE_S, self._slices * PER_SLICE_S)
            self._stale_at = self._look_at + STALE_S
            self._put(work.outcome or {}, now)
        return self._work is not None

    def _put(self, kept: dict[str, BackfillReservation], now: float) -> None:
        """Replace the reservations; pods that were kept off a node that is open now are requeued."""
        before = {name for reservation in self._kept.values() for name in reservation.nodes}
        opened = before.difference(*(reservation.nodes for reservation in kept.values()))
        shut = frozenset(n for each in kept.values() if each.binds(math.inf, now) for n in each.nodes)
        opened |= self._shut - shut
        for who, reservation in kept.items():
            if not reservation.first.last and who in self._kept and self._kept[who].first.last:
                opened.update(reservation.nodes)  # there is room now, and the head may not know it
        self._kept, self._shut = kept, shut
        for name in sorted(opened):
            self._waking.room(name)
        self._ledger.freed += bool(opened)

    def _computed(self, now: float) -> Generator[int, None, dict[str, BackfillReservation]]:
        self._lapse(now)
        heads = yield from self.heads.first(now, self._context.settings.backfill_delay_s, self._rests, self._kept)
        kept: dict[str, BackfillReservation] = {}
        end_of = self._end_of(now)
        ordered = (yield from ends(self._ledger, list(self._ledger.nodes), end_of)) if heads else []
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
                kept[head.who] = reservation = self._reservation(head, wanted, first, kept, now)
                pods = self._ledger.pods
                claims += [(pods[uid], assignment) for uid, assignment in first.assignments.items() if uid in pods]
                for name in first.nodes:
                    reservation.guard(name)
                    yield TRY
        if passed:  # the next workload in such a queue is its head at the next computation; until then all stays
            self._turn = None
            stays = (each for each in self._kept.values() if self.heads.queue(each.head.place) in passed)
            kept |= {each.head.who: each for each in stays if each.head.who not in self._rests}
        return kept

    def _lapse(self, now: float) -> None:
        """Reserve nothing for a while for queues whose head did not start when it should have."""
        self._rests = {key: until for key, until in self._rests.items() if now < until}
        for reservation in self._kept.values():
            if now >= reservation.until:
                self._rests[self.heads.queue(reservation.head.place)] = now + reservation.until - reservation.made

    def _earliest(
        self, head: Head, wanted: Wanted, ordered: list[End], claims: Sequence[Claim], now: float
    ) -> Generator[int, None, Earliest | None]:
        """The start on the nodes reserved already, unless it is known to be later; else on any nodes."""
        uids = [seat.uid for seat in wanted.seats]
        held = [pod for uid in uids if (pod := self._ledger.pods[uid]).state == "held"]
        others = [*self._context.reservations.claims(uids), *claims]
        what_if = WhatIfNodes(self._ledger, self._running_pods.leaving, held, others)
        view = self._gangs.planner.view
        anywhere = msgspec.structs.replace(wanted, seats=reopen(view, wanted.seats))
        before, first = self._kept.get(head.who), None
        if before is not None:
            nodes = {name: self._ledger.nodes[name] for name in before.nodes if name in self._ledger.nodes}
            near = msgspec.structs.replace(view, nodes=nodes)
            here = [end for end in ordered if end.node in nodes]
            first = yield from earliest(near, what_if, anywhere, here, now)
        if before is None or first is None or (first.sure and first.start > before.first.start):
            first = yield from earliest(view, what_if, anywhere, ordered, now)
        yield from what_if.dissolve()
        return first

    def earliest(
        self,
        view: ClusterView,
        wanted: Wanted,
        taken: Sequence[Claim],
        gone: Iterable[str],
        rank: Rank,
        now: float,
    ) -> Generator[int, None, Earliest | None]:
        """The first moment with room for pods that no reservation is for, beside the heads before this rank.

        `taken`: what others get before them, for which the pods in `gone` (UIDs) are evicted.
        """
        pods = self._ledger.pods
        starts = (each.first.assignments.items() for _, each in self._before(rank))
        heads = [(pods[uid], assignment) for start in starts for uid, assignment in start if uid in pods]
        others = [*self._context.reservations.claims(()), *heads, *taken]
        what_if = WhatIfNodes(self._ledger, [*self._running_pods.leaving, *gone], (), others)
        ordered = yield from ends(self._ledger, list(view.nodes), self._end_of(now))
        first = yield from earliest(view, what_if, wanted, ordered, now)
        yield from what_if.dissolve()
        return first

    def _reservation(
        self, head: Head, wanted: Wanted, first: Earliest, others: dict[str, BackfillReservation], now: float
    ) -> BackfillReservation:
        by_uid = {seat.uid: seat for seat in wanted.seats}
        seats = {name: [s for o in others.values() for s in o.seats.get(name, ())] for name in first.nodes}
        for uid, assignment in first.assignments.items():
            seats[assignment.node].append(by_uid[uid])
        before = self._kept.get(head.who)
        made, until = now, now + (2 * max(SOON_S, first.start - now) if first.last else COME_S)
        if before is not None and bool(before.first.last) == bool(first.last):  # even if the nodes are others now
            made, until = before.made, before.until
        return BackfillReservation(self._context, head, first, seats, made, until, self._end_of(now))

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


def _guards(binding: Sequence[BackfillReservation], node: NodeState) -> list[BackfillGuard]:
    return [guard for each in binding if (guard := each.guard(node.name)) is not None]

"""Has those come, or start, for whom all the room is there that is kept for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from extender.engine.gangs.barrier import Barrier
from extender.engine.gangs.gangs import Gangs
from extender.engine.planning.plan import Placement
from extender.engine.state.quarantine import Quarantine
from extender.engine.state.reservation import Reservation
from extender.engine.state.reservations import Reservations
from extender.engine.types.effects import Effect, Requeue
from extender.engine.types.subject import of_gang
from gangfilter.gang import Gang
from gangfilter.group import GroupKey

GATHERED_S = 30.0
"""Seconds that what is asked for the members of a gang, one after the other, may take to be enough for its start."""


class ReservationActivator:
    """Looks at what is kept, whenever something happened: who has all of its room comes for it."""

    def __init__(
        self,
        reservations: Reservations,
        gangs: Gangs,
        barrier: Barrier,
        counters: Counter[tuple[str, str]],
        quarantine: Quarantine,
    ) -> None:
        self._quarantine = quarantine
        self._reservations, self._barrier, self._counters = reservations, barrier, counters
        self._roster, self._planner, self._controller = gangs.roster, gangs.planner, gangs.controller
        self._starts, self._rounds = gangs.starts, gangs.rounds
        self._missing: dict[GroupKey, str] = {}
        """A member of each gang whose room was not complete."""

    def look(self, now: float, *, tick: bool = False) -> list[Effect]:
        """Keep what is reserved; a single pod is woken once its room is complete, a gang starts with all of it."""
        if not self._reservations:
            self._missing.clear()
            return []
        wakes: list[Effect] = []
        gangs: dict[GroupKey, Gang] = {}

        def come(kept: Reservation) -> None:
            pod = kept.pod.ref
            known = self._roster.of(pod.uid) if kept.complete else None
            if known is not None and not self._barrier.single(pod.uid):
                gangs[known.gang.key] = known.gang
            elif kept.assignment is not None and kept.complete and self._reservations.due(pod.uid, now):
                wakes.append(Requeue(pod, kept.assignment.node))

        waiting = self._reservations.keep(now, tick=tick)
        self._quarantine.each(waiting, lambda kept: kept.pod.subject, "reservations", come)
        self._quarantine.each(
            gangs.values(), lambda gang: of_gang(gang.key), "reservations", lambda gang: self._look_at(gang, now)
        )
        self._counters["pod_requeues", ""] += len(wakes)
        return wakes

    def _look_at(self, gang: Gang, now: float) -> None:
        """It starts if nothing of what is kept for it is still missing."""
        if self._lacks(self._missing.get(gang.key, "")):
            return
        missing = next((uid for uid in reversed(gang.members) if self._lacks(uid)), "")
        if missing:
            self._missing[gang.key] = missing
        else:
            self._missing.pop(gang.key, None)
            self._start(gang, [kept for uid in gang.members if (kept := self._kept(uid)) is not None], now)

    def _kept(self, uid: str) -> Reservation | None:
        """What is kept for a member that waits for its gang."""
        kept = self._reservations.of(uid)
        waits = kept is not None and kept.pod.state == "waiting" and not self._barrier.single(uid)
        return kept if waits else None

    def _lacks(self, uid: str) -> bool:
        kept = self._kept(uid)
        return kept is not None and not kept.complete

    def _start(self, gang: Gang, all_of_it: Sequence[Reservation], now: float) -> None:
        assignments = {kept.pod.ref.uid: kept.assignment for kept in all_of_it if kept.assignment is not None}
        here = self._rounds.leading and not self._controller.is_aside(gang)
        if not here or not gang.may_plan(now) or self._planner.withheld(gang) is not None:
            return
        if all(seat.uid in assignments for seat in self._planner.asked(gang, assignments)[1]):  # nobody else is needed
            for uid in assignments:
                self._reservations.lend(uid)
            self._planner.unwant(gang)
            self._starts.take(self._roster.known[gang.key], Placement(assignments), now)
        elif now >= max(kept.complete_at for kept in all_of_it) + GATHERED_S:
            for uid in assignments:
                self._reservations.give_up(uid)  # others came or went: it is planned like any other

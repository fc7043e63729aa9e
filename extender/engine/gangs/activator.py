"""Requeues a pod, or starts a gang, as soon as its reservations are complete."""

from __future__ import annotations

from collections.abc import Sequence

from extender.engine.gangs.gangs import Gangs
from extender.engine.planning.plan import Placement
from extender.engine.state.outbox import Outbox
from extender.engine.state.quarantine import Quarantine
from extender.engine.state.reservation import Reservation
from extender.engine.state.reservations import Reservations
from extender.engine.types.effects import Requeue
from extender.engine.types.subject import of_gang
from gangfilter.gang import Gang
from gangfilter.group import GroupKey

GATHERED_S = 30.0
"""Seconds within which the reservations of a gang's members, made one after the other, must suffice for its start."""


class ReservationActivator:
    """Checks all reservations after each event."""

    def __init__(
        self,
        reservations: Reservations,
        gangs: Gangs,
        quarantine: Quarantine,
        outbox: Outbox,
    ) -> None:
        self._quarantine, self._outbox = quarantine, outbox
        self._reservations = reservations
        self._roster, self._planner, self._controller = gangs.roster, gangs.planner, gangs.controller
        self._starts, self._rounds = gangs.starts, gangs.rounds
        self._missing: dict[GroupKey, str] = {}
        """A member of each gang whose reservation was incomplete at the last check."""

    def look(self, now: float, *, tick: bool = False) -> None:
        """Book what is reserved; requeue single pods and start gangs whose reservations are complete."""
        if not self._reservations:
            self._missing.clear()
            return
        gangs: dict[GroupKey, Gang] = {}

        def activate(reservation: Reservation) -> None:
            pod, assignment = reservation.pod.ref, reservation.assignment
            known = self._roster.of(pod.uid) if reservation.complete else None
            if known is not None and not self._roster.single(pod.uid):
                gangs[known.gang.key] = known.gang
            elif assignment is not None and reservation.complete and self._reservations.due(pod.uid, now):
                self._outbox.put(Requeue(pod, assignment.node))

        pending = self._reservations.keep(now, tick=tick)
        self._quarantine.each(pending, lambda reservation: reservation.pod.subject, "reservations", activate)
        self._quarantine.each(
            gangs.values(), lambda gang: of_gang(gang.key), "reservations", lambda gang: self._look_at(gang, now)
        )

    def _look_at(self, gang: Gang, now: float) -> None:
        """Start the gang if all its reservations are complete."""
        if self._lacks(self._missing.get(gang.key, "")):
            return
        missing = next((uid for uid in reversed(gang.members) if self._lacks(uid)), "")
        if missing:
            self._missing[gang.key] = missing
        else:
            self._missing.pop(gang.key, None)
            self._start(gang, [found for uid in gang.members if (found := self._reservation(uid)) is not None], now)

    def _reservation(self, uid: str) -> Reservation | None:
        """The reservation of a member that waits for its gang."""
        found = self._reservations.of(uid)
        waits = found is not None and found.pod.state == "waiting" and not self._roster.single(uid)
        return found if waits else None

    def _lacks(self, uid: str) -> bool:
        reservation = self._reservation(uid)
        return reservation is not None and not reservation.complete

    def _start(self, gang: Gang, reservations: Sequence[Reservation], now: float) -> None:
        assignments = {each.pod.ref.uid: each.assignment for each in reservations if each.assignment is not None}
        here = self._rounds.leading and not self._controller.is_aside(gang)
        if not here or not gang.may_plan(now) or self._planner.withheld(gang) is not None:
            return
        if all(
            seat.uid in assignments for seat in self._planner.asked(gang, assignments)[1]
        ):  # they suffice for a start
            for uid in assignments:
                self._reservations.lend(uid)
            self._planner.unwant(gang)
            self._starts.take(self._roster.known[gang.key], Placement(assignments), now)
        elif now >= max(each.complete_at for each in reservations) + GATHERED_S:
            for uid in assignments:
                self._reservations.give_up(uid)  # members have changed: the gang is planned like others

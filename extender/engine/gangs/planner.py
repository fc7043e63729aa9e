"""Plans gangs one after the other, in the order of their turns, and says why the others are not planned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from extender.engine.gangs.assignments import Assignments
from extender.engine.gangs.models import Models
from extender.engine.gangs.reporter import GangReporter
from extender.engine.placement.indexes import Indexes
from extender.engine.planning.attempt import ClusterView
from extender.engine.planning.backfill_guard import Kept
from extender.engine.planning.one_model import Mixture
from extender.engine.planning.plan import Failure, Placement, Plan
from extender.engine.queueing.admission import Admission
from extender.engine.queueing.order import Turns
from extender.engine.state.context import EngineContext
from extender.engine.state.intree import Amounts
from extender.engine.state.roster import GangInfo, Roster
from extender.engine.state.seats import Seat, least
from extender.engine.types import refusals
from gangfilter.gang import Gang
from gangfilter.members import ON_NODE, SETTLED, Stage
from gangfilter.table import Phase
from protos.contract.reason import Reason

Outcome = Placement | Failure | Reason
"""The outcome of a plan; a Reason if the queue does not admit the gang."""
SHORT = 20
"""A plan of fewer slices is short: it takes some 10 ms."""

LARGE, REST_S = 64, 0.005
"""A gang of more members that did not fit rests for so many seconds a member, so that other gangs are planned."""

KeptBefore = Callable[[Gang, float], Kept]
"""What nodes keep for workloads ahead of a gang in its queue, if the gang starts now."""


class GangPlanner:
    """The pending gangs that want a plan, and the plan in progress: one at a time, of the gang whose turn it is."""

    def __init__(
        self,
        context: EngineContext,
        roster: Roster,
        reporter: GangReporter,
        indexes: Indexes,
        admission: Admission,
        turns: Turns,
        assignments: Assignments,
    ) -> None:
        self._ledger, self._settings, settings = context.ledger, context.settings, context.settings
        self._roster, self._reporter, self._admission = roster, reporter, admission
        self._assignments, self._cannot_fit = assignments, context.cannot_fit
        ignored = frozenset(settings.resources.managed)
        self.view = ClusterView(
            context.ledger.nodes,
            indexes,
            ignored,
            settings.resources,
            settings.locality_labels,
            models=context.ledger.stock.models_of,
        )
        self._models = Models(context)
        self.turns = turns
        self._plan: tuple[Gang, Sequence[Seat], Plan] | None = None
        self._slices = 0
        """Slices of the plan in progress."""

    # -- requests

    def want(self, known: GangInfo, now: float) -> None:
        """Have the gang planned, if anything has changed since its last plan."""
        gang = known.gang
        if self.too_large(known):
            self.unwant(gang)
            return
        withheld = self.withheld(gang)
        if withheld is not None:
            self.withhold(known, withheld)
            return
        basis = self._ledger.freed, gang.turnover
        due = known.planned is None or (
            known.planned != basis and now >= known.rests_until and not self._hopeless(known)
        )
        if self._roster.leading and due and gang not in self.turns and gang.may_plan(now):
            known.planned = basis
            self.turns.put(gang)
            self._stop(gang)

    def unwant(self, gang: Gang) -> None:
        """Take the gang out of the line."""
        self.turns.remove(gang)
        self._stop(gang)

    def _stop(self, gang: Gang) -> None:
        if self._plan is not None and self._plan[0] is gang:
            self._plan[2].drop()
            self._plan = None

    def too_large(self, known: GangInfo) -> bool:
        """Whether more members would start together than the barrier can hold; then that is why the gang waits."""
        least, most = known.gang.terms.min_member or 0, self._settings.max_gang_size
        if least > most:
            known.reason, known.planned = refusals.gang_too_large(known.gang.key, least, most), None
        return least > most

    def withhold(self, known: GangInfo, why: Reason) -> None:
        """Its queue does not admit the gang: it is not planned until the queue does."""
        self.unwant(known.gang)
        known.planned = None
        if known.reason != why:
            known.reason = why
            self._reporter.tell(known)

    def park(self, known: GangInfo) -> None:
        """Skip a gang that only waits for its queue and has reported so, until the queue may admit it."""
        gang, why = known.gang, known.reason
        if gang.phase is not Phase.WAITING or why is None or why != known.reported[0]:
            return
        if not (gang.timed or known.replacements or gang.count(Stage.EVICTING)) and self.withheld(gang) == why:
            known.parked = True
            self._admission.park(gang)

    def failed(self, known: GangInfo, why: Failure, now: float) -> None:
        """No plan fits: report it, and let a large gang rest before its next plan."""
        gang = known.gang
        known.rests_until = now + REST_S * len(gang.members) if len(gang.members) > LARGE else 0.0
        if isinstance(why, Mixture):
            known.reason = refusals.gang_mixed(gang.key)
        else:
            known.reason = self._no_room(known, why)
        self._reporter.report(known, known.reason, now)

    def _no_room(self, known: GangInfo, why: Failure) -> Reason:
        """Its members have no place now, or too few of them fit on any node."""
        gang = known.gang
        whys = [self._cannot_fit.of(self._ledger.pods[member.uid]) for member in gang.at(Stage.IDLE)]
        never = [str(reason) for reason in whys if reason is not None]
        minimum = (gang.terms.min_member or 0) - gang.roles(*SETTLED).total()
        hopeless = len(whys) - len(never) < minimum
        known.hopeless = (self._cannot_fit.generation, gang.turnover) if hopeless else None
        reason = refusals.gang_cannot_fit if hopeless else refusals.gang_no_room
        return reason(gang.key, "; ".join([*never[:1], str(why)]))

    def _hopeless(self, known: GangInfo) -> bool:
        """Whether too few of its members fit on any node: it is not planned again until the nodes or members change."""
        return known.hopeless == (self._cannot_fit.generation, known.gang.turnover)

    # -- planning

    def next(self, gang: Gang) -> bool:
        """Whether the gang's plan is the next to be made, and short."""
        if gang not in self.turns:
            return False
        if self._plan is None:
            return self.turns.first() is gang
        return self._plan[0] is gang and self._slices < SHORT

    def withheld(self, gang: Gang) -> Reason | None:
        """Why its queue does not admit the gang, None if it does."""
        return self._admission.withheld(gang, lambda: (seat.uid for seat in self.asked(gang)[1]))

    def upcoming(self) -> Gang | None:
        """The gang whose plan is in progress or next; None if no gang wants one."""
        return self._plan[0] if self._plan is not None else self.turns.first()

    def advance(self, gang: Gang, now: float, kept: KeptBefore) -> Outcome | None:
        """Do a slice of the gang's plan; returns the outcome, which the caller must use at once.

        If the queue does not admit the gang, that is the outcome. If it admits only the minimum, the plan is for that.
        """
        if self._plan is None:
            withheld = self.withheld(gang)
            if withheld is not None:
                self.turns.remove(gang)
                return withheld
            seats, minimum, free = self.asked(gang)
            if self._admission.admits(gang, (seat.uid for seat in seats)) is not None:
                seats = minimum
            beside = [member.node for member in gang.at(*ON_NODE)]
            view = msgspec.structs.replace(self.view, kept=kept(gang, now))
            self._plan, self._slices = (gang, seats, Plan(view, seats, minimum, free, beside)), 0
        _, seats, plan = self._plan
        self._slices += 1
        if not plan.advance():
            return None
        self._plan = None
        if any(not self._holds(gang, seat) for seat in seats):
            return None  # a member has gone or changed: the gang is planned again
        self.turns.remove(gang)
        assert plan.outcome is not None
        return plan.outcome

    def asked(self, gang: Gang, first: Collection[str] = ()) -> tuple[Sequence[Seat], Sequence[Seat], Amounts]:
        """The members that need a place, those of the smallest start, and the amounts that must be free for it.

        Members in `first` (UIDs) come before equal ones.
        """
        seats = list(self.seats(gang, first))
        return seats, *smallest_start(gang, seats)

    def seats(self, gang: Gang, first: Collection[str] = ()) -> Iterator[Seat]:
        """The members that need a place, by priority, age and name; members that are lost meanwhile are left out."""
        idle = [m for m in gang.members.values() if m.stage is Stage.IDLE]
        idle.sort(key=lambda m: (m.uid not in first, -m.priority, m.since, m.name, m.uid))
        for uid in (member.uid for member in idle):
            if uid in gang.members:
                self._models.restrict(gang, uid)
                yield self._assignments.seat(gang.members[uid])

    def _holds(self, gang: Gang, seat: Seat) -> bool:
        """Whether the member is unchanged since its plan began."""
        member = gang.members.get(seat.uid)
        if member is None or member.stage is not Stage.IDLE:
            return False
        return (seat.ask, seat.constraints) == (self._ledger.pods[seat.uid].ask, self._assignments.demands[seat.uid][1])


def smallest_start(gang: Gang, seats: Sequence[Seat]) -> tuple[Sequence[Seat], Amounts]:
    """Of the members that need a place those of the smallest start, and the amounts that must be free for it."""
    settled = gang.roles(*SETTLED)
    missing = [(role, number - settled[role]) for role, number in gang.terms.min_by_role]
    minimum = (gang.terms.min_member or 0) - settled.total()
    free = gang.terms.min_resources if not settled else ()  # a gang that has run was admitted once
    return least(seats, minimum, missing), free

"""Starts gangs: takes each plan as soon as it is made, and holds places for all its members or for none."""

from __future__ import annotations

from collections.abc import Mapping

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.controller import GangController
from extender.engine.gangs.members import MemberController
from extender.engine.gangs.planner import KeptBefore, Outcome
from extender.engine.planning.plan import Placement
from extender.engine.state.roster import GangInfo
from extender.engine.state.seats import Assignment
from extender.engine.types.effects import PhaseLeft
from extender.engine.types.look import may_be_sampled
from extender.engine.types.subject import of_gang
from gangfilter.members import Stage
from protos.contract.reason import Reason


class GangStarts:
    """Has gangs planned where this process leads, and starts those that fit."""

    def __init__(self, context: GangContext, members: MemberController, controller: GangController) -> None:
        self._context, self._planner, self._admission = context, context.planner, context.admission
        self._members, self._controller = members, controller

    def plan(self, now: float, kept: KeptBefore) -> bool:
        """Do a slice of planning; returns whether there is more to do."""
        gang = self._planner.upcoming()
        if gang is None or not self._context.roster.leading:
            return bool(self._planner.turns)
        with self._context.quarantine.over(of_gang(gang.key), "plan"):
            outcome = self._planner.advance(gang, now, kept)
            if outcome is not None:
                self.take(self._context.roster.known[gang.key], outcome, now)
        if self._controller.is_aside(gang):
            self._planner.unwant(gang)
        return bool(self._planner.turns)

    def take(self, known: GangInfo, outcome: Outcome, now: float) -> None:
        """Start the gang by its plan if its queue still admits it; else say why it waits."""
        if isinstance(outcome, Placement):
            outcome = self._admission.admits(known.gang, outcome.assignments) or outcome
        if isinstance(outcome, Reason):
            self._planner.withhold(known, outcome)
            self._controller.note(known)
            return  # a later round decides whether the gang is planned again
        if isinstance(outcome, Placement):
            self._start(known, outcome.assignments, now)
        else:
            self._planner.failed(known, outcome, now)
        self._controller.settle(known, now)

    def _start(self, known: GangInfo, assignments: Mapping[str, Assignment], now: float) -> None:
        gang, context = known.gang, self._context
        known.reason, known.reported = None, (None, 0.0)
        for uid in assignments:
            self._members.no_single(gang.members[uid])
        context.assignments.hold(assignments)
        self._admission.started(gang.key)
        context.outbox.put(PhaseLeft(gang.phase, now - gang.since))
        gang.start({uid: assignment.node for uid, assignment in assignments.items()}, now)
        context.counters["gang_starts", "planned"] += 1
        nominate = may_be_sampled(len(context.ledger.nodes))
        for member in gang.at(Stage.PLANNED):
            member.refused = member.refused or nominate
            if member.uid not in gang.unheld:
                self._members.wake(gang, member)

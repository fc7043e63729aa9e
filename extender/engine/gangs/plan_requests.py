"""Which gangs are to be planned, and why the others are not: too large, or no quota left in the queue."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from extender.engine.gangs.context import GangContext
from extender.engine.planning.scarcity import Scarcity
from extender.engine.planning.shortage import Shortage
from extender.engine.state.lacking import Lacking
from extender.engine.state.roster import GangInfo
from extender.engine.types import refusals
from gangfilter.gang import Gang
from gangfilter.members import Stage
from gangfilter.minimum import to_start
from gangfilter.table import Phase
from protos.contract.reason import Reason

LARGE, REST_S = 64, 0.005
"""A gang of more members that did not fit rests for so many seconds a member, so that other gangs are planned."""


class PlanRequests:
    """Asks for plans of pending gangs: one for each change that may let the gang start."""

    def __init__(self, context: GangContext) -> None:
        self._ledger, self._settings, self._reporter = context.ledger, context.settings, context.reporter
        self._admission, self._planner, self._roster = context.admission, context.planner, context.roster
        self._lack = Lacking(context.ledger.stock)

    def want(self, known: GangInfo, now: float) -> None:
        """Have the gang planned, if anything has changed since its last plan."""
        gang = known.gang
        if self.too_large(known):
            self._planner.unwant(gang)
            return
        withheld = self._planner.withheld(gang)
        if withheld is not None:
            self.withhold(known, withheld)
            return
        basis = self._ledger.freed, gang.turnover
        due = known.planned is None or (known.planned != basis and now >= known.rests_until)
        if self._roster.leading and due and gang not in self._planner.turns and gang.may_plan(now):
            known.planned = basis
            self._planner.want(gang)

    def too_large(self, known: GangInfo) -> bool:
        """Whether more members would start together than the barrier can hold; then that is why the gang waits."""
        least, most = to_start(known.gang), self._settings.max_gang_size
        if least > most:
            known.reason, known.planned = refusals.gang_too_large(known.gang.key, least, most), None
        return least > most

    def withhold(self, known: GangInfo, why: Reason) -> None:
        """Its queue does not admit the gang: it is not planned until the queue does."""
        self._planner.unwant(known.gang)
        known.planned = None
        if known.reason != why:
            known.reason = why
            self._reporter.tell(known)

    def park(self, known: GangInfo) -> None:
        """Skip a gang that only waits for its queue and has reported so, until the queue may admit it."""
        gang, why = known.gang, known.reason
        if gang.phase is not Phase.WAITING or why is None or why != known.reported[0]:
            return
        if not (gang.timed or known.replacements or gang.count(Stage.EVICTING)) and self._planner.withheld(gang) == why:
            known.parked = True
            self._admission.park(gang)

    def failed(self, known: GangInfo, why: Shortage | Scarcity, now: float) -> None:
        """No plan fits: report it, and let a large gang rest before its next plan."""
        gang = known.gang
        known.rests_until = now + REST_S * len(gang.members) if len(gang.members) > LARGE else 0.0
        known.reason = refusals.gang_no_room(gang.key, "; ".join([*self._lacking(gang), str(why)]))
        self._reporter.report(known, known.reason, now)

    def _lacking(self, gang: Gang) -> Iterator[str]:
        """Why the first member that would not fit even if all GPUs were free does not, if there is such a member."""
        asks = (self._ledger.pods[member.uid].ask for member in gang.at(Stage.IDLE))
        missing = (self._lack.of(ask) for ask in asks if ask is not None)
        yield from (str(reason) for reason in islice(filter(None, missing), 1))

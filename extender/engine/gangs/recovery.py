"""Gangs over which the engine failed: set aside with nothing planned or held, and brought back later."""

from __future__ import annotations

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.controller import GangController
from extender.engine.gangs.members import MemberController
from extender.engine.types.subject import of_gang
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.members import Stage
from gangfilter.table import Phase


class GangRecovery:
    """Sets gangs aside and brings them back. Each step is taken whatever the others meet."""

    def __init__(self, context: GangContext, members: MemberController, controller: GangController) -> None:
        self._context, self._ledger, self._quarantine = context, context.ledger, context.quarantine
        self._members, self._controller = members, controller

    def set_aside(self, key: GroupKey, now: float) -> None:
        """Nothing is planned or held for the gang until it is brought back; what its bound members hold stays."""
        context, known, subject = self._context, self._context.roster.known.get(key), of_gang(key)
        if known is None:
            return
        gang, why = known.gang, self._quarantine.why(subject)
        known.reason, known.planned, known.parked = why, None, False
        with self._quarantine.over(subject, "recovery"):
            context.planner.unwant(gang)
        with self._quarantine.over(subject, "recovery"):
            self._unbook(gang)
        self._quarantine.each(
            gang.holding(), lambda _: subject, "recovery", lambda m: self._members.leave(gang, m, why)
        )
        for member in [*gang.holding(), *gang.at(Stage.POSTED)]:
            pod = self._ledger.pods.get(member.uid)
            if pod is None or pod.state not in ("binding", "bound"):
                gang.put(member, Stage.IDLE)
        idle = [member.uid for member in gang.at(Stage.IDLE)]  # of a start that failed by half they may have places
        self._quarantine.each(idle, lambda _: subject, "recovery", context.assignments.drop)
        gang.plan_invalidated = gang.phase is Phase.STARTING
        with self._quarantine.over(subject, "recovery"):
            context.reporter.report(known, why, now)
            context.reporter.tell(known)
        self._controller.note(known)

    def _unbook(self, gang: Gang) -> None:
        """Those in bind have no Binding on its way: what was booked for one by half is theirs no more."""
        for member in gang.at(Stage.IN_BIND):
            pod = self._ledger.pods[member.uid]
            if pod.state == "binding":
                self._ledger.unbook(pod)

    def bring_back(self, key: GroupKey, now: float) -> None:
        """Let the gang go on from where it was."""
        known = self._context.roster.known.get(key)
        if known is not None:
            known.reason = known.planned = None
            self._controller.settle(known, now)

"""Pods that name the group of a gang which other workloads started: two jobs may have chosen one name by chance.

Such a pod is no member until that gang has ended. A PodGroup is consent: then everybody may join.
"""

from __future__ import annotations

import math

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.members import MemberController
from extender.engine.gangs.reporter import ref
from extender.engine.state.roster import GangInfo
from extender.engine.types import refusals
from extender.engine.types.effects import Report
from gangfilter.gang import BEFORE, NONE, STARTED
from gangfilter.group import Declaration
from gangfilter.members import Member, Stage
from protos.contract.reason import Reason, listed

GONE_S = 30.0
"""Seconds for which a gang without pods keeps its name: its controllers may be creating them again."""
SHOWN = 4
"""Workloads that an Event names."""


class Outsiders:
    """Tells outsiders from members, again whenever the gang starts, ends, or is declared by a PodGroup."""

    def __init__(self, context: GangContext, members: MemberController) -> None:
        self._ledger, self._roster, self._outbox = context.ledger, context.roster, context.outbox
        self._assignments, self._members = context.assignments, members

    def bars(self, known: GangInfo, member: Member) -> bool:
        """Whether this pod, which is no member yet, is of another workload than the gang."""
        return member.stage is Stage.ABSENT and not known.declared and not known.gang.admits(member)

    def keep_out(self, known: GangInfo, member: Member, said: Declaration | None) -> None:
        """The pod waits, and what it declares does not count."""
        if member.uid not in known.outsiders:
            member.refused = True
            self._outbox.put(Report(ref(known.gang, member), why(known, member.uid)))
        known.outsiders[member.uid] = said

    def due(self, known: GangInfo) -> float:
        """When time alone may let outsiders in."""
        return known.left_at + GONE_S

    def sort(self, known: GangInfo, now: float) -> None:
        """Find the outsiders anew if the gang has started, ended or got a PodGroup since the last time."""
        gang = known.gang
        alone = known.outsiders and gang.phase in BEFORE and len(known.outsiders) == len(gang.members)
        known.left_at = min(now, known.left_at) if alone else math.inf
        if now >= self.due(known):
            gang.origins = NONE
        origins = NONE if known.declared else gang.origins
        if origins == known.closed_to_all_but:
            return
        known.closed_to_all_but = origins
        for uid in list(known.outsiders):
            if not self.bars(known, gang.members[uid]):
                self._let_in(known, gang.members[uid])
        for member in gang.at(Stage.IDLE) if origins else ():
            if not gang.admits(member):
                self._members.no_single(member)
                gang.put(member, Stage.ABSENT)
                self.keep_out(known, member, self._roster.said(member.uid))
                self._roster.say(member.uid, None)

    def _let_in(self, known: GangInfo, member: Member) -> None:
        self._roster.say(member.uid, known.outsiders.pop(member.uid))
        self._assignments.learn(member.uid, self._ledger.pods[member.uid].info.constraints)
        known.gang.put(member, Stage.IDLE)
        if known.gang.phase in STARTED:
            self._members.wake(known.gang, member)


def why(known: GangInfo, uid: str) -> Reason:
    """Why an outsider waits."""
    own = listed(sorted(known.gang.members[uid].origins), SHOWN)
    others = listed(sorted(known.gang.origins), SHOWN)
    return refusals.gang_taken(known.gang.key, f"the gang has pods of {others}; this pod is of {own}")

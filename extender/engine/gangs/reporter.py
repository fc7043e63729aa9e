"""What people and kube-scheduler are told of gangs: Events, the status of PodGroups, and everything else to be done."""

from __future__ import annotations

import math

from extender.engine.state.roster import GangInfo
from extender.engine.types import refusals
from extender.engine.types.effects import Effect, GroupStatus, Open, PodRef, PostBinding, Report, ReportOwner
from gangfilter.gang import BEFORE, Gang
from gangfilter.members import PRESENT, Member, Stage
from protos.contract.reason import Reason

REPORT_EVERY_S = 30.0
"""Seconds between Events that say the same of a gang."""
MOST_MEMBERS = 8
"""Members that are told why their gang waits: a gang may have thousands."""
UNBOUND = (Stage.IDLE, Stage.PLANNED, Stage.ABSENT)
PAUSE_S = 1.0
"""Seconds after which it is said of a gang that it is not complete: its pods come one after the other."""


def ref(gang: Gang, member: Member) -> PodRef:
    """The member's pod."""
    return PodRef(gang.key.namespace, member.name, member.uid)


class GangReporter:
    """Effects that wait to be carried out."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def taken(self) -> list[Effect]:
        """What is to be done, told once."""
        effects, self.effects = self.effects, []
        return effects

    def opened(self, uid: str) -> PostBinding | None:
        """What goes on of the bind of this member, if that waits here to be carried out: it is left to the caller."""
        found = next((each for each in self.effects if isinstance(each, Open) and each.pod.uid == uid), None)
        if found is None:
            return None
        self.effects.remove(found)
        return found.place

    def report(self, known: GangInfo, reason: Reason, now: float) -> bool:
        """In Events of the first members that still wait and of their controller; the same only after a while.

        Returns whether it is told.
        """
        told, at = known.reported
        again = told is not None and reason.code == told.code and now < at + REPORT_EVERY_S
        if again or not known.gang.count(*UNBOUND):
            return False
        known.reported = (reason, now)
        first = known.gang.at(*UNBOUND)[:MOST_MEMBERS]
        self.effects += [Report(ref(known.gang, member), reason) for member in first]
        if first[0].controller is not None:
            self.effects.append(ReportOwner(known.gang.key.namespace, first[0].controller, reason))
        return True

    def warn(self, known: GangInfo, now: float) -> None:
        """Tell what its pods and PodGroups say differently, once there is a pod to tell it of."""
        conflicts = known.gang.terms.conflicts
        if conflicts == known.warned:
            return
        reason = refusals.gang_conflict(known.gang.key, "; ".join(conflicts))
        if not conflicts or self.report(known, reason, now):
            known.warned = conflicts

    def news(self, known: GangInfo, now: float) -> None:
        """Report why a gang waits as soon as its numbers stand still for a moment, and when they have changed."""
        if known.reason is not None and now >= self.due(known):
            self.report(known, known.reason, now)

    def due(self, known: GangInfo) -> float:
        """When there is something to report of a gang that has no place, infinity if there is nothing."""
        gang, reason, (told, at) = known.gang, known.reason, known.reported
        if gang.phase not in BEFORE or reason is None or reason == told or not gang.count(*UNBOUND):
            return math.inf
        again = at + REPORT_EVERY_S if told is not None and told.code == reason.code else -math.inf
        return max(gang.since + PAUSE_S, again)

    def tell(self, known: GangInfo) -> None:
        """On its PodGroups, if there is anything new."""
        gang = known.gang
        if not known.declared:
            return
        status = GroupStatus(
            key=gang.key,
            kinds=tuple(sorted(known.declared)),
            phase=gang.phase,
            reason=known.reason,
            min_member=gang.terms.min_member or 0,
            present=gang.count(*PRESENT),
            bound=gang.count(Stage.BOUND),
            succeeded=gang.count(Stage.SUCCEEDED),
            failed=len(known.failed),
        )
        if status != known.told:
            known.told = status
            self.effects.append(status)

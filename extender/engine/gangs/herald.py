"""What people and kube-scheduler are told of gangs: Events, the status of PodGroups, and everything else to be done."""

from __future__ import annotations

from extender.engine.effects import Effect, GroupStatus, PodRef, Report
from extender.engine.gangs.roster import Known
from gangfilter.gang import BEFORE, Gang
from gangfilter.members import PRESENT, Member, Stage
from protos.contract.reason import Reason

REPORT_EVERY_S = 30.0
"""Seconds between Events that say the same of a gang."""
UNBOUND = (Stage.IDLE, Stage.PLANNED, Stage.ABSENT)
PAUSE_S = 1.0
"""Seconds after which it is said of a gang that it is not complete: its pods come one after the other."""


def ref(gang: Gang, member: Member) -> PodRef:
    """The member's pod."""
    return PodRef(gang.key.namespace, member.name, member.uid)


class Herald:
    """Effects that wait to be carried out."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def taken(self) -> list[Effect]:
        """What is to be done, told once."""
        effects, self.effects = self.effects, []
        return effects

    def report(self, known: Known, reason: Reason, now: float) -> bool:
        """In an Event of one member, the first that still waits; the same reason again only after a while.

        Returns whether it is told.
        """
        told, at = known.reported
        again = told is not None and reason.code == told.code and now < at + REPORT_EVERY_S
        if again or not known.gang.count(*UNBOUND):
            return False
        known.reported = (reason, now)
        self.effects.append(Report(ref(known.gang, known.gang.at(*UNBOUND)[0]), reason))
        return True

    def news(self, known: Known, now: float) -> None:
        """Report why a gang waits as soon as its numbers stand still for a moment, and when they have changed."""
        settled = now >= known.gang.since + PAUSE_S and known.gang.phase in BEFORE
        if settled and known.reason is not None and known.reason != known.reported[0]:
            self.report(known, known.reason, now)

    def tell(self, known: Known) -> None:
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
            failed=known.failed,
        )
        if status != known.told:
            known.told = status
            self.effects.append(status)

"""Reports on gangs, by Events and the status of PodGroups."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from extender.engine.state.outbox import Outbox
from extender.engine.state.roster import GangInfo
from extender.engine.types import refusals
from extender.engine.types.effects import GroupStatus, PodRef, Report, ReportOwner
from gangfilter.gang import BEFORE, Gang
from gangfilter.members import PRESENT, Member, Stage
from protos.contract.reason import Reason

REPORT_EVERY_S = 30.0
"""Seconds between equal Events about one gang."""
MOST_MEMBERS = 8
"""Members that get an Event: a gang may have thousands."""
UNBOUND = (Stage.IDLE, Stage.PLANNED, Stage.ABSENT)
PAUSE_S = 1.0
"""Seconds before a gang is reported as incomplete: its pods come one after the other."""


def ref(gang: Gang, member: Member) -> PodRef:
    """The member's pod."""
    return PodRef(gang.key.namespace, member.name, member.uid)


class GangReporter:
    """Reports what has changed since the last report. Owns nothing: a gang's last reports are on its record."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def report(self, known: GangInfo, reason: Reason, now: float) -> bool:
        """Report in Events of the first unbound members and of their controller; returns whether it is reported.

        An equal reason is reported again only after a while.
        """
        last, at = known.reported
        again = last is not None and reason.code == last.code and now < at + REPORT_EVERY_S
        if again or not known.gang.count(*UNBOUND):
            return False
        known.reported = (reason, now)
        first = known.gang.at(*UNBOUND)[:MOST_MEMBERS]
        self._outbox.put(*(Report(ref(known.gang, member), reason) for member in first))
        if first[0].controller is not None:
            self._outbox.put(ReportOwner(known.gang.key.namespace, first[0].controller, reason))
        return True

    def warn(self, known: GangInfo, now: float) -> None:
        """Report conflicts between its pods and PodGroups, once there is a pod for the Event."""
        conflicts = known.gang.terms.conflicts
        if conflicts == known.warned or not known.gang.key.name:
            return
        reason = refusals.gang_conflict(known.gang.key, "; ".join(conflicts))
        if not conflicts or self.report(known, reason, now):
            known.warned = conflicts

    def unnamed(self, pod: PodRef, problems: Sequence[str]) -> None:
        """Report to a pod why the name of its gang is not known. Such pods of a namespace have nothing in common."""
        self._outbox.put(Report(pod, msgspec.structs.replace(refusals.UNNAMED, numbers="; ".join(problems))))

    def due(self, known: GangInfo) -> float:
        """When to report why a gang without places waits, infinity if there is nothing to report."""
        gang, reason, (last, at) = known.gang, known.reason, known.reported
        if gang.phase not in BEFORE or reason is None or reason == last or not gang.count(*UNBOUND):
            return math.inf
        again = at + REPORT_EVERY_S if last is not None and last.code == reason.code else -math.inf
        return max(gang.since + PAUSE_S, again)

    def tell(self, known: GangInfo) -> None:
        """Write the status of its PodGroups, if it has changed."""
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
            self._outbox.put(status)

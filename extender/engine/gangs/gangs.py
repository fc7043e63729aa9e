"""The parts that look after gangs: each is made once, those first on which others stand."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.controller import GangController
from extender.engine.gangs.evictions import GangEvictions
from extender.engine.gangs.members import MemberController, Release
from extender.engine.gangs.observer import GangObserver
from extender.engine.gangs.plan_requests import PlanRequests
from extender.engine.gangs.planner import GangPlanner
from extender.engine.gangs.recovery import GangRecovery
from extender.engine.gangs.replacement_holds import ReplacementHolds
from extender.engine.gangs.reporter import GangReporter
from extender.engine.gangs.rounds import Rounds
from extender.engine.gangs.starts import GangStarts
from extender.engine.queueing.admission import Admission
from extender.engine.state.context import EngineContext
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import Roster
from gangfilter.gang import Gang
from protos.contract.reason import Reason


class Gangs:
    """Makes the parts and gives access to each: callers use the part itself. All parts share one `GangContext`."""

    def __init__(
        self,
        context: EngineContext,
        roster: Roster,
        admission: Admission,
        planner: GangPlanner,
        release: Release,
        unpromise: Callable[[PodState], None],
        capped: Callable[[Gang], Reason | None],
    ) -> None:
        """`release`, `unpromise` and `capped` are those of `MemberController` and `GangObserver`."""
        self.roster, self.planner, self.assignments = roster, planner, planner.assignments
        self.reporter = GangReporter()
        parts = GangContext(
            **msgspec.structs.asdict(context),
            roster=roster,
            reporter=self.reporter,
            admission=admission,
            assignments=self.assignments,
            planner=planner,
        )
        self.members, self.requests = MemberController(parts, release, unpromise), PlanRequests(parts)
        self.evictions, self.replacements = GangEvictions(parts), ReplacementHolds(parts, self.members)
        self.controller = GangController(parts, self.members, self.replacements, self.requests, self.evictions)
        self.starts = GangStarts(parts, self.members, self.requests, self.controller)
        self.observer = GangObserver(parts, self.members, self.replacements, self.controller, capped)
        self.recovery = GangRecovery(parts, self.members, self.controller)
        self.rounds = Rounds(parts, self.requests, self.controller)

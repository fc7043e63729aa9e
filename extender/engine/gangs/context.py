"""What every part that looks after gangs works on."""

from __future__ import annotations

from extender.engine.gangs.assignments import Assignments
from extender.engine.gangs.planner import GangPlanner
from extender.engine.gangs.reporter import GangReporter
from extender.engine.queueing.admission import Admission
from extender.engine.state.context import EngineContext
from extender.engine.state.roster import Roster


class GangContext(EngineContext, frozen=True, kw_only=True):
    """Made once; each part is given the same."""

    roster: Roster
    reporter: GangReporter
    admission: Admission
    assignments: Assignments
    planner: GangPlanner

"""What every component of gangs works on."""

from __future__ import annotations

from extender.engine.gangs.assignments import Assignments
from extender.engine.gangs.planner import GangPlanner
from extender.engine.gangs.reporter import GangReporter
from extender.engine.queueing.admission import Admission
from extender.engine.queueing.priorities import Priorities
from extender.engine.queueing.waking import Waking
from extender.engine.state.context import EngineContext
from extender.engine.state.holds import Holds
from extender.engine.state.roster import Roster


class GangContext(EngineContext, frozen=True, kw_only=True):
    """Made once; each component of gangs gets the same."""

    roster: Roster
    reporter: GangReporter
    admission: Admission
    assignments: Assignments
    planner: GangPlanner
    priorities: Priorities
    holds: Holds
    waking: Waking

"""The components of gangs, made once, in dependency order."""

from __future__ import annotations

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.controller import GangController
from extender.engine.gangs.members import MemberController, Release
from extender.engine.gangs.models import Models
from extender.engine.gangs.observer import GangObserver
from extender.engine.gangs.replacement_holds import ReplacementHolds
from extender.engine.gangs.rounds import Rounds
from extender.engine.gangs.starts import GangStarts


class Gangs:
    """Gives access to each component; callers use the component itself."""

    def __init__(self, context: GangContext, release: Release) -> None:
        self.roster, self.planner, self.assignments = context.roster, context.planner, context.assignments
        self.reporter = context.reporter
        self.members = MemberController(context, release)
        self.replacements = ReplacementHolds(context, self.members)
        self.models = Models(context)
        self.controller = GangController(context, self.members, self.replacements)
        self.starts = GangStarts(context, self.members, self.controller)
        self.observer = GangObserver(context, self.members, self.replacements, self.controller, self.models)
        self.rounds = Rounds(context, self.controller)

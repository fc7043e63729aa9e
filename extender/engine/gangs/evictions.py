"""Members that have to go: asked to, and asked again until they are gone."""

from __future__ import annotations

from collections.abc import Iterator

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.reporter import ref
from extender.engine.state.agenda import NEVER
from extender.engine.state.roster import GangInfo
from extender.engine.types import refusals
from extender.engine.types.effects import Evict
from gangfilter.gang import BEFORE, Gang
from gangfilter.group import GroupKey
from gangfilter.members import Stage
from gangfilter.table import Phase

EVICTED_AGAIN_S = 5.0
"""Seconds after which what is to go is evicted once more."""


class GangEvictions:
    """The gangs that have members whose eviction was asked for. Only the process that leads evicts."""

    def __init__(self, context: GangContext) -> None:
        self._roster, self._reporter = context.roster, context.reporter
        self._leaving: dict[GroupKey, None] = {}

    def leaving(self) -> Iterator[str]:
        """UIDs of bound members whose eviction was asked for."""
        for key in self._leaving:
            yield from (member.uid for member in self._roster.known[key].gang.at(Stage.EVICTING))

    def note(self, known: GangInfo) -> None:
        """Keep in mind whether members of the gang leave."""
        key = known.gang.key
        if key in self._roster.known and known.gang.count(Stage.EVICTING):
            self._leaving[key] = None
        else:
            self._leaving.pop(key, None)

    def again_at(self, known: GangInfo) -> float:
        """When those that have not gone are evicted once more."""
        return known.evicted_at + EVICTED_AGAIN_S if _goes(known.gang) else NEVER

    def evict(self, known: GangInfo, now: float) -> None:
        """Have those go that shall go."""
        gang = known.gang
        if not self._roster.leading:
            return
        known.evicted_at = now
        done = gang.phase is Phase.COMPLETED
        why = refusals.gang_done(gang.key) if done else refusals.gang_undone(gang.key)
        for member in gang.at(Stage.BOUND, Stage.EVICTING):
            if done or member.removable:
                gang.put(member, Stage.EVICTING)
                self._reporter.effects.append(Evict(ref(gang, member), why))


def _goes(gang: Gang) -> bool:
    """Whether members are to be evicted until they are gone."""
    if gang.preempted:
        return False
    if gang.phase in BEFORE:
        return gang.count(Stage.EVICTING) > 0
    ends = gang.phase is Phase.UNDOING or (gang.phase is Phase.COMPLETED and bool(gang.terms.on_completion))
    return ends and gang.count(Stage.BOUND, Stage.EVICTING) > 0

"""Evicts members of gangs, and repeats each eviction until the member is gone."""

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
"""Seconds after which an eviction is repeated."""


class GangEvictions:
    """The gangs with members that are being evicted. Only the leading process evicts."""

    def __init__(self, context: GangContext) -> None:
        self._roster, self._reporter = context.roster, context.reporter
        self._evicting: dict[GroupKey, None] = {}

    def leaving(self) -> Iterator[str]:
        """UIDs of bound members that are being evicted."""
        for key in self._evicting:
            yield from (member.uid for member in self._roster.known[key].gang.at(Stage.EVICTING))

    def note(self, known: GangInfo) -> None:
        """Remember whether members of the gang are being evicted."""
        key = known.gang.key
        if key in self._roster.known and known.gang.count(Stage.EVICTING):
            self._evicting[key] = None
        else:
            self._evicting.pop(key, None)

    def again_at(self, known: GangInfo) -> float:
        """When the evictions are repeated."""
        return known.evicted_at + EVICTED_AGAIN_S if _must_go(known.gang) else NEVER

    def evict(self, known: GangInfo, now: float) -> None:
        """Evict all removable members; those of a completed gang whether they are removable or not."""
        gang = known.gang
        if not self._roster.leading:
            return
        known.evicted_at = now
        completed = gang.phase is Phase.COMPLETED
        why = refusals.gang_done(gang.key) if completed else refusals.gang_undone(gang.key)
        for member in gang.at(Stage.BOUND, Stage.EVICTING):
            if completed or member.removable:
                gang.put(member, Stage.EVICTING)
                self._reporter.effects.append(Evict(ref(gang, member), why))


def _must_go(gang: Gang) -> bool:
    """Whether members are evicted again and again until they are gone."""
    if gang.preempted:
        return False
    if gang.phase in BEFORE:
        return gang.count(Stage.EVICTING) > 0
    ends = gang.phase is Phase.UNDOING or (gang.phase is Phase.COMPLETED and bool(gang.terms.on_completion))
    return ends and gang.count(Stage.BOUND, Stage.EVICTING) > 0

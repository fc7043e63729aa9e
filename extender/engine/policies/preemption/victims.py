"""Which units have to go so that somebody who waits fits: none of them in vain, and none where cheaper ones would do.

Units are taken cheapest first until all members have a place, each by the real placement on copies of the nodes. Then
the dearest are put back one after the other, as far as all still fit. What is left is the cheapest set there is if sets
are compared by their dearest unit, then by the next, and so on; and no part of it would do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import product
from operator import attrgetter

import msgspec

from extender.engine.planning.attempt import LOOK, STEP, ClusterView
from extender.engine.policies.preemption.capacity_bound import COUNTED
from extender.engine.policies.preemption.fitting import Fitting, Wanted
from extender.engine.policies.preemption.reclaim import ReclaimPolicy
from extender.engine.policies.preemption.units import BUILT, MayTake, Unit
from extender.engine.policies.preemption.what_if import WhatIfNodes
from extender.engine.state.seats import Assignment
from extender.engine.types.sliced import Sliced

TRIES = 3
"""Times that it is planned if the cluster changes meanwhile."""
Candidates = Callable[[MayTake], Generator[int, None, list[Unit]]]
"""Finds the units that may be taken, cheapest first."""
Forbidden = Callable[[Sequence[Unit], Sequence[Unit]], Mapping[str, str]]
"""Whether the first of these units may go together: of the others those (by `who`) that then may not, and why."""


class Victims(msgspec.Struct, frozen=True):
    """What has to go, and who then goes where."""

    units: tuple[Unit, ...]
    assignments: Mapping[str, Assignment]


class NoSolution(msgspec.Struct, frozen=True):
    """No eviction helps. `why` names what forbids those that would, "" if none would."""

    why: str = ""
    postponed: bool = False
    """Nothing forbids it: this is not the moment for it."""


COMING = NoSolution("enough becomes free without preemption", postponed=True)
CHANGED = NoSolution("the cluster changes faster than evictions can be planned", postponed=True)


class Search(Sliced[Victims | NoSolution]):
    """One search in the making. What comes of it is true of the moment in which `advance` returns."""

    def __init__(
        self,
        view: ClusterView,
        draw: Callable[[], WhatIfNodes],
        wanted: Wanted,
        candidates: Candidates,
        entitle: Callable[[], ReclaimPolicy],
        forbidden: Forbidden = lambda _chosen, _units: {},
    ) -> None:
        """`draw` begins new copies of the nodes, with nobody gone but those who leave anyway."""
        self._view, self._draw, self._wanted = view, draw, wanted
        self._candidates, self._entitle, self._forbidden = candidates, entitle, forbidden
        self._cleared: WhatIfNodes
        self._fitting: Fitting
        self.rights: ReclaimPolicy
        super().__init__(self._plan())

    def _plan(self) -> Generator[int, None, Victims | NoSolution]:
        for _ in range(TRIES):
            self._cleared = self._draw()
            self._fitting = Fitting(self._view, self._cleared, self._wanted)
            self.rights = self._entitle()
            outcome = yield from self._look()
            yield from self._cleared.dissolve()
            if isinstance(outcome, NoSolution) or self._stands(outcome):
                return outcome
        return CHANGED

    def _stands(self, victims: Victims) -> bool:
        """Whether nodes and queues still are as they were."""
        same = self._cleared.stands({assignment.node for assignment in victims.assignments.values()})
        return same and self._entitle().allow(victims.units)

    def _look(self) -> Generator[int, None, Victims | NoSolution]:
        if (yield from self._fits(())):
            return COMING
        units = yield from self._candidates(self.rights.may_take)
        if not (yield from self._fits(units)):
            return NoSolution()
        units = yield from self._relevant(units)
        why = ""
        while (found := (yield from self._together(units))) is not None:
            chosen = yield from self._least(found)
            forbidden = self._forbidden(chosen, units)
            if not forbidden:
                placement = yield from self._fitting.place((yield from _gone(chosen)))
                if placement is None:
                    return CHANGED
                return Victims(tuple(map(self.rights.marked, chosen)), placement.assignments)
            why = next(iter(forbidden.values()))
            units = [unit for unit in units if unit.who not in forbidden]
            yield len(units) * LOOK
        return NoSolution(why)

    def _together(self, units: list[Unit]) -> Generator[int, None, list[Unit] | None]:
        """Of these, cheapest first, some that do and may go together; a queue is left too little only if it must be."""
        for overshoot, smallest in product((False, True), repeat=2):
            tally, found = self.rights.tally(overshoot=overshoot), list[Unit]()
            for some in _batched(sorted(units, key=attrgetter("gpus")) if smallest else units):
                found += filter(tally.add, some)
                yield len(some) * BUILT
            if (yield from self._fits(found)):
                return sorted(found, key=attrgetter("cost"))
            if len(found) == len(units):
                return None
        return None

    def _relevant(self, units: Sequence[Unit]) -> Generator[int, None, list[Unit]]:
        """Those that are anywhere where their going makes room."""
        if self._wanted.free or not self.rights.roomy(()):
            return list(units)
        useful = yield from self._fitting.census.useful((yield from _gone(units)))
        found: list[Unit] = []
        for some in _batched(units):
            found += (unit for unit in some if any(victim.node in useful for victim in unit.victims))
            yield len(some) * LOOK
        return found

    def _least(self, units: Sequence[Unit]) -> Generator[int, None, tuple[Unit, ...]]:
        """The cheapest of these that do, given that all of them do."""
        few, many = 0, len(units)
        while few + 1 < many:
            middle = (few + many) // 2
            if (yield from self._fits(units[:middle])):
                many = middle
            else:
                few = middle
        kept, rest = [units[many - 1]], list(units[: many - 1])
        step = 1
        while rest:
            step = min(step, len(rest))
            if (yield from self._fits([*rest[:-step], *kept])):
                del rest[-step:]
                step *= 2
            elif step > 1:
                step //= 2
            else:
                kept.append(rest.pop())
        return tuple(reversed(kept))

    def _fits(self, units: Sequence[Unit]) -> Generator[int, None, bool]:
        """Whether all have a place, and room in their queue, once these units are gone."""
        if not self.rights.roomy(units):
            return False
        return (yield from self._fitting.fits((yield from _gone(units))))


def _batched(units: Sequence[Unit]) -> Iterator[Sequence[Unit]]:
    """A few at a time."""
    return (units[start : start + STEP] for start in range(0, len(units), STEP))


def _gone(units: Sequence[Unit]) -> Generator[int, None, dict[str, frozenset[str]]]:
    """The pods of these units by node."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for some in _batched(units):
        for unit in some:
            for victim in unit.victims:
                found[victim.node].append(victim.ref.uid)
        yield STEP * COUNTED
    return {node: frozenset(uids) for node, uids in found.items()}

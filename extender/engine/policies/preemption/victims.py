"""Which units have to go so that somebody who waits fits: none of them in vain, and none where cheaper ones would do.

Units are taken cheapest first until all members have a place, each by the real placement on copies of the nodes. Then
the dearest are put back one after the other, as far as all still fit. What is left is the cheapest set there is if sets
are compared by their dearest unit, then by the next, and so on; and no part of it would do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import product

import msgspec

from extender.engine.planning.attempt import LOOK, STEP, ClusterView
from extender.engine.planning.solver import Solver, Wanted
from extender.engine.planning.what_if import Gone, WhatIfNodes, by_node
from extender.engine.policies.preemption.reclaim import ReclaimPolicy
from extender.engine.policies.preemption.units import MayTake, Unit, price
from extender.engine.state.seats import Assignment
from extender.engine.types.sliced import Sliced

AT_ONCE = 256
"""Units that are let go of at once."""
LISTED = 4
"""Pods that are listed for one `LOOK`."""
TRIES = 3
"""Times that it is planned if the cluster changes meanwhile."""
Candidates = Callable[[MayTake], Generator[int, None, list[Unit]]]
"""Finds the units that may be taken, cheapest first: a list for the search alone."""
Forbidden = Callable[[Sequence[Unit], Sequence[Unit]], Generator[int, None, Mapping[str, str]]]
"""Whether the first of these units may go together: of the others those (by `who`) that then may not, and why."""


class Victims(msgspec.Struct, frozen=True):
    """What has to go, and who then goes where."""

    units: tuple[Unit, ...]
    assignments: Mapping[str, Assignment]


def nothing(_chosen: Sequence[Unit], _units: Sequence[Unit]) -> Generator[int, None, Mapping[str, str]]:
    """Anything may go together."""
    yield LOOK
    return {}


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
        forbidden: Forbidden = nothing,
    ) -> None:
        """`draw` begins new copies of the nodes, with nobody gone but those who leave anyway."""
        self._view, self._draw, self._wanted = view, draw, wanted
        self._candidates, self._entitle, self._forbidden = candidates, entitle, forbidden
        self._what_if: WhatIfNodes
        self._solver: Solver
        self._units: list[Unit] = []
        """Those that may still go, cheapest first."""
        self.rights: ReclaimPolicy
        super().__init__(self._plan())

    def _plan(self) -> Generator[int, None, Victims | NoSolution]:
        for _ in range(TRIES):
            self._what_if = self._draw()
            self._solver = Solver(self._view, self._what_if, self._wanted)
            self.rights = self._entitle()
            outcome = yield from self._look()
            yield from self._what_if.dissolve()
            yield from self._free()
            if isinstance(outcome, NoSolution) or self._stands(outcome):
                return outcome
        return CHANGED

    def _stands(self, victims: Victims) -> bool:
        """Whether nodes and queues still are as they were."""
        same = self._what_if.stands({assignment.node for assignment in victims.assignments.values()})
        return same and self._entitle().allow(victims.units)

    def _look(self) -> Generator[int, None, Victims | NoSolution]:
        if (yield from self._fits(())):
            return COMING
        self._units = yield from self._candidates(self.rights.may_take)
        if not (yield from self._fits(self._units)):
            return NoSolution()
        yield from self._keep_useful()
        why = ""
        while (found := (yield from self._together())) is not None:
            chosen = yield from self._least(found)
            forbidden = yield from self._forbidden(chosen, self._units)
            if not forbidden:
                placement = yield from self._solver.place((yield from _gone(chosen)))
                if placement is None:
                    return CHANGED
                return Victims(tuple(map(self.rights.marked, chosen)), placement.assignments)
            why = next(iter(forbidden.values()))
            yield from self._keep(lambda unit, those=forbidden: unit.who not in those)  # type: ignore[misc]
        return NoSolution(why)

    def _together(self) -> Generator[int, None, list[Unit] | None]:
        """Some that do and may go together, cheapest first; a queue is left too little only if it must be."""
        for overshoot, smallest in product((False, True), repeat=2):
            tally, found = self.rights.tally(overshoot=overshoot), list[Unit]()
            for some in _batched((yield from self._smallest_first()) if smallest else self._units):
                found += filter(tally.add, some)
                yield price(some)
            if (yield from self._fits(found)):
                return (yield from self._cheapest_first(found)) if smallest else found
            if len(found) == len(self._units):
                return None
        return None

    def _smallest_first(self) -> Generator[int, None, list[Unit]]:
        by_gpus: dict[float, list[Unit]] = {}
        for some in _batched(self._units):
            for unit in some:
                by_gpus.setdefault(unit.gpus, []).append(unit)
            yield STEP * LOOK
        return [unit for gpus in sorted(by_gpus) for unit in by_gpus[gpus]]

    def _cheapest_first(self, some: Sequence[Unit]) -> Generator[int, None, list[Unit]]:
        """These in the order of all."""
        meant, found = set(map(id, some)), list[Unit]()
        for part in _batched(self._units):
            found += (unit for unit in part if id(unit) in meant)
            yield STEP * LOOK
        return found

    def _keep_useful(self) -> Generator[int, None, None]:
        """Keep those that are anywhere where their going makes room."""
        if self._wanted.free or not (yield from self.rights.roomy(())):
            return
        useful = yield from self._solver.useful((yield from _gone(self._units)))
        yield from self._keep(lambda unit: any(victim.node in useful for victim in unit.victims))

    def _keep(self, wanted: Callable[[Unit], bool]) -> Generator[int, None, None]:
        """Keep some of the units, and let go of the others little by little."""
        before, kept = self._units, list[Unit]()
        for some in _batched(before):
            kept += filter(wanted, some)
            yield STEP * LOOK
        self._units = kept
        yield from _let_go(before)

    def _free(self) -> Generator[int, None, None]:
        """Let go of what was looked at."""
        before, self._units = self._units, []
        yield from _let_go(before)

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
        if not (yield from self.rights.roomy(units)):
            return False
        return (yield from self._solver.fits((yield from _gone(units))))


def _gone(units: Sequence[Unit]) -> Generator[int, None, Gone]:
    """The pods of these units by node."""
    listed: defaultdict[str, list[str]] = defaultdict(list)
    for some in _batched(units):
        pods = 0
        for unit in some:
            pods += len(unit.victims)
            for victim in unit.victims:
                listed[victim.node].append(victim.ref.uid)
        yield pods * LOOK // LISTED
    return (yield from by_node(listed))


def _batched(units: Sequence[Unit]) -> Iterator[Sequence[Unit]]:
    """A few at a time."""
    return (units[start : start + STEP] for start in range(0, len(units), STEP))


def _let_go(units: list[Unit]) -> Generator[int, None, None]:
    """Free what is of no more use, not all at once."""
    while units:
        del units[-AT_ONCE:]
        yield AT_ONCE * LOOK

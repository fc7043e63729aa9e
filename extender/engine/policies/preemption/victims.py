"""Which units must be evicted so that pending pods fit: none of them in vain, and none if cheaper ones would do.

Units are taken cheapest first until all pods have a place, as the solver says. Then the dearest are put back one after
the other, as far as all pods still fit. The result is the cheapest set if sets are compared by their dearest unit, then
by the next, and so on; and no part of it would do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import product

import msgspec

from extender.engine.planning.attempt import LOOK, STEP, ClusterView, batched
from extender.engine.planning.solver import Solver, Wanted, least_prefix
from extender.engine.planning.what_if import Gone, WhatIfNodes, by_node
from extender.engine.policies.preemption.reclaim import ReclaimPolicy
from extender.engine.policies.preemption.units import MayTake, Unit, price
from extender.engine.state.seats import Assignment
from extender.engine.types.sliced import Sliced

AT_ONCE = 256
"""Victims whose units are freed at once."""
TRIES = 3
"""How often it is planned if the cluster changes meanwhile."""
Candidates = Callable[[MayTake], Generator[int, None, list[Unit]]]
"""Finds the units that may be taken, cheapest first: a list for the search alone."""
Forbidden = Callable[[Sequence[Unit], Sequence[Unit]], Generator[int, None, Mapping[str, str]]]
"""Whether the first of these units may go together: of all units those (by `who`) that then may not, and why."""


class Victims(msgspec.Struct, frozen=True):
    """The units to evict, and the places that the pending pods get."""

    units: tuple[Unit, ...]
    assignments: Mapping[str, Assignment]


class NoSolution(msgspec.Struct, frozen=True):
    """No eviction helps. `why` names what forbids the evictions that would, "" if none would."""

    why: str = ""
    postponed: bool = False
    """Nothing forbids it, but this is not the moment for it."""


COMING = NoSolution("enough becomes free without preemption", postponed=True)
CHANGED = NoSolution("the cluster changes faster than evictions can be planned", postponed=True)


class Search(Sliced[Victims | NoSolution]):
    """One search for victims. The outcome is valid at the moment when `advance` returns."""

    def __init__(
        self,
        view: ClusterView,
        draw: Callable[[], WhatIfNodes],
        wanted: Wanted,
        candidates: Candidates,
        entitle: Callable[[], ReclaimPolicy],
        forbidden: Forbidden,
    ) -> None:
        """`draw` begins new copies of the nodes, without the pods that leave in any case."""
        self._view, self._draw, self._wanted = view, draw, wanted
        self._candidates, self._entitle, self._forbidden = candidates, entitle, forbidden
        self._what_if: WhatIfNodes
        self._solver: Solver
        self._units: list[Unit] = []
        """Units that may still go, cheapest first."""
        self.rights: ReclaimPolicy
        super().__init__(self._plan())

    def _plan(self) -> Generator[int, None, Victims | NoSolution]:
        for _ in range(TRIES):
            self._what_if = self._draw()
            self._solver = Solver(self._view, self._what_if, self._wanted)
            self.rights = self._entitle()
            outcome = yield from self._look()
            yield from self._what_if.dissolve()
            yield from _let_go(self._units)
            del self._solver  # what it knows of each node takes a slice to free
            yield AT_ONCE * LOOK
            if isinstance(outcome, NoSolution) or self._stands(outcome):
                return outcome
        return CHANGED

    def _stands(self, victims: Victims) -> bool:
        """Whether nodes and queues are still as they were."""
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
        while (enough := (yield from self._together())) is not None:
            chosen = yield from self._least(enough)
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
        """Units that suffice and may go together, cheapest first; a queue gives too much only if it must."""
        for overshoot, smallest in product((False, True), repeat=2):
            tally, together = self.rights.tally(overshoot=overshoot), list[Unit]()
            for units in batched((yield from self._smallest_first()) if smallest else self._units):
                together += filter(tally, units)
                yield price(units)
            if (yield from self._fits(together)):
                return (yield from self._cheapest_first(together)) if smallest else together
            if len(together) == len(self._units):
                return None
        return None

    def _smallest_first(self) -> Generator[int, None, list[Unit]]:
        by_gpus: dict[float, list[Unit]] = {}
        for units in batched(self._units):
            for unit in units:
                by_gpus.setdefault(unit.gpus, []).append(unit)
            yield STEP * LOOK
        return [unit for gpus in sorted(by_gpus) for unit in by_gpus[gpus]]

    def _cheapest_first(self, some: Sequence[Unit]) -> Generator[int, None, list[Unit]]:
        """These units in the order of all units."""
        wanted, ordered = set(map(id, some)), list[Unit]()
        for units in batched(self._units):
            ordered += (unit for unit in units if id(unit) in wanted)
            yield STEP * LOOK
        return ordered

    def _keep_useful(self) -> Generator[int, None, None]:
        """Keep the units that make room by going."""
        if self._wanted.free or not (yield from self.rights.roomy(())):
            return
        useful = yield from self._solver.useful((yield from _gone(self._units)))
        yield from self._keep(lambda unit: any(victim.node in useful for victim in unit.victims))

    def _keep(self, wanted: Callable[[Unit], bool]) -> Generator[int, None, None]:
        """Keep some of the units, and free the others in steps."""
        before, kept = self._units, list[Unit]()
        for units in batched(before):
            kept += filter(wanted, units)
            yield STEP * LOOK
        self._units = kept
        yield from _let_go(before)

    def _least(self, units: Sequence[Unit]) -> Generator[int, None, tuple[Unit, ...]]:
        """The cheapest of these that suffice, given that all of them do."""
        many = yield from least_prefix(lambda count: self._fits(units[:count]), 0, len(units))
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
        """Whether all pods have a place, and quota in their queue, once these units are gone."""
        if not (yield from self.rights.roomy(units)):
            return False
        return (yield from self._solver.fits((yield from _gone(units))))


def _gone(units: Iterable[Unit]) -> Generator[int, None, Gone]:
    return by_node((victim.node, victim.ref.uid) for unit in units for victim in unit.victims)


def _let_go(units: list[Unit]) -> Generator[int, None, None]:
    """Free the units, so many victims at once."""
    while units:
        freed = 0
        while units and freed < AT_ONCE:
            freed += len(units.pop().victims)
        yield AT_ONCE * LOOK

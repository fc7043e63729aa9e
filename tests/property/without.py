"""Whether all pending pods fit once some units are gone, by a new plan for every set of units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations

from extender.engine.placement.indexes import Indexes
from extender.engine.planning.attempt import ClusterView
from extender.engine.planning.plan import Placement, Plan
from extender.engine.planning.solver import Wanted
from extender.engine.planning.what_if import WhatIfNodes
from extender.engine.policies.preemption.units import Unit


class Without:
    """The nodes without some units. Sets that take the same from a node share its copy, and nothing else."""

    def __init__(self, fleet: ClusterView, cleared: WhatIfNodes, wanted: Wanted) -> None:
        self._fleet, self._cleared, self._wanted = fleet, cleared, wanted

    def fits(self, units: Iterable[Unit]) -> bool:
        """Whether all pods have a place without these units."""
        gone = [victim for unit in units for victim in unit.victims]
        nodes = {
            name: self._cleared.without(node, frozenset(v.uid for v in gone if v.node == name))
            for name, node in self._fleet.nodes.items()
        }
        known, wanted = self._fleet, self._wanted
        fleet = ClusterView(nodes, Indexes(nodes), known.ignored, known.resources, known.localities)
        plan = Plan(fleet, wanted.seats, wanted.seats, wanted.free)
        while not plan.advance():
            pass
        return isinstance(plan.outcome, Placement)


def parts(units: Sequence[Unit]) -> Iterator[tuple[Unit, ...]]:
    """All proper subsets, the smallest first."""
    return chain.from_iterable(combinations(units, size) for size in range(len(units)))

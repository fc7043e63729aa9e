"""When somebody who waits has room at the earliest, and where: by the real placement, as others come to their ends.

Whoever runs is expected to end after its run time; if nothing is known of that, after as long again as it has run, and
a pod that its kubelet starts anew whenever it ends, never. The earliest moment is found by halving over the ends in
their order: the more have left, the more room there is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from heapq import merge
from typing import NamedTuple

import msgspec

from extender.engine.planning.attempt import LOOK, STEP, ClusterView
from extender.engine.planning.solver import Solver, Wanted
from extender.engine.planning.what_if import Gone, WhatIfNodes, by_node
from extender.engine.state.ledger import Ledger
from extender.engine.state.seats import Assignment

LISTED, SORTED = 3, 500
"""What it costs to look at a pod that runs, in `attempt.LOOK`s; how many are sorted in one piece."""


class End(NamedTuple):
    """When a pod on a node comes to its end; sorts by that."""

    at: float
    uid: str
    node: str
    sure: bool
    """Its run time is known."""


class Earliest(msgspec.Struct, frozen=True):
    """The first moment at which there is room."""

    start: float
    sure: bool
    """The run times of all who have to end for it are known."""
    last: str
    """UID of the pod whose end it waits for, "" if there is room now."""
    assignments: Mapping[str, Assignment]
    """Where each of them goes, by UID."""
    gone: Gone
    """Who has ended by then, by node, of those that they go to."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where they go."""
        return tuple(sorted({assignment.node for assignment in self.assignments.values()}))


EndOf = Callable[[str], tuple[float, bool] | None]
"""When the pod of this UID ends, and whether that is known; None: it does not."""


def ends(ledger: Ledger, nodes: Iterable[str], end_of: EndOf) -> Generator[int, None, list[End]]:
    """The ends of all pods on these nodes, in order. Work is told in `attempt.LOOK`s."""
    found: list[End] = []
    for number, name in enumerate(nodes):
        here = list(ledger.on_node.get(name, ()))
        known = ((uid, end_of(uid)) for uid in here)
        found += [End(told[0], uid, name, told[1]) for uid, told in known if told is not None]
        if number % STEP == 0:
            yield STEP * LISTED * LOOK
    pieces = []
    for first in range(0, len(found), SORTED):
        pieces.append(sorted(found[first : first + SORTED]))
        yield SORTED * LOOK
    ordered: list[End] = []
    for end in merge(*pieces):
        ordered.append(end)
        if len(ordered) % SORTED == 0:
            yield SORTED * LOOK
    return ordered


def earliest(
    view: ClusterView, what_if: WhatIfNodes, wanted: Wanted, ordered: Sequence[End], now: float
) -> Generator[int, None, Earliest | None]:
    """The first moment with room for all; None if there is none even when everybody has left."""
    solver = Solver(view, what_if, wanted)
    if not (yield from _fits(solver, ordered)):
        return None
    few, many = -1, len(ordered)
    while few + 1 < many:
        middle = (few + many) // 2
        if (yield from _fits(solver, ordered[:middle])):
            many = middle
        else:
            few = middle
    left = ordered[:many]
    gone = yield from _gone(left)
    placement = yield from solver.place(gone)
    if placement is None:
        return None
    nodes = dict.fromkeys(assignment.node for assignment in placement.assignments.values())
    needed = [end for end in left if end.node in nodes]
    last = needed[-1] if needed else None
    start = max(now, last.at) if last is not None else now
    there = {node: gone.get(node, frozenset()) for node in nodes}
    return Earliest(start, all(end.sure for end in needed), last.uid if last else "", placement.assignments, there)


def _fits(solver: Solver, left: Sequence[End]) -> Generator[int, None, bool]:
    return (yield from solver.fits((yield from _gone(left))))


def _gone(left: Sequence[End]) -> Generator[int, None, Gone]:
    listed: defaultdict[str, list[str]] = defaultdict(list)
    for number, end in enumerate(left):
        listed[end.node].append(end.uid)
        if number % STEP == 0:
            yield STEP * LOOK
    return (yield from by_node(listed))

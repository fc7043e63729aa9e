"""When and where pending pods can start at the earliest, as running pods come to their ends.

A running pod is expected to end after its run time. If that is not known, it is expected to run as long again as it has
run; a pod that its kubelet restarts whenever it ends never ends. The earliest moment is found by halving over the ends
in their order: the more pods have ended, the more room there is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from heapq import merge
from typing import NamedTuple

import msgspec

from extender.engine.planning.attempt import LOOK, STEP, ClusterView, batched
from extender.engine.planning.solver import Solver, Wanted, least_prefix
from extender.engine.planning.what_if import Gone, WhatIfNodes, by_node
from extender.engine.state.ledger import Ledger
from extender.engine.state.seats import Assignment

LISTED, SORTED = 3, 500
"""Cost of looking at a running pod; ends that are sorted in one piece."""


class End(NamedTuple):
    """When a pod on a node ends; sorts by that."""

    at: float
    uid: str
    node: str
    sure: bool
    """Its run time is known."""


class Earliest(msgspec.Struct, frozen=True):
    """The first moment at which there is room."""

    start: float
    sure: bool
    """The run times of all pods that must end for it are known."""
    last: str
    """UID of the pod whose end it waits for, "" if there is room now."""
    assignments: Mapping[str, Assignment]
    """The places of the pending pods, by UID."""
    gone: Gone
    """The pods that have ended by then on these nodes."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the pending pods."""
        return tuple(sorted({assignment.node for assignment in self.assignments.values()}))


EndOf = Callable[[str], tuple[float, bool] | None]
"""When the pod of this UID ends, and whether that is known; None: it never ends."""


def ends(ledger: Ledger, nodes: Iterable[str], end_of: EndOf) -> Generator[int, None, list[End]]:
    """The ends of all pods on these nodes, in order."""
    unordered: list[End] = []
    for number, name in enumerate(nodes):
        here = ((uid, end_of(uid)) for uid in list(ledger.on_node.get(name, ())))
        unordered += [End(end[0], uid, name, end[1]) for uid, end in here if end is not None]
        if number % STEP == 0:
            yield STEP * LISTED * LOOK
    pieces = []
    for first in range(0, len(unordered), SORTED):
        pieces.append(sorted(unordered[first : first + SORTED]))
        yield SORTED * LOOK
    ordered: list[End] = []
    for batch in batched(merge(*pieces), SORTED):
        ordered += batch
        yield SORTED * LOOK
    return ordered


def earliest(
    view: ClusterView, what_if: WhatIfNodes, wanted: Wanted, ordered: Sequence[End], now: float
) -> Generator[int, None, Earliest | None]:
    """The first moment with room for all; None if there is none even when all pods have ended."""
    solver = Solver(view, what_if, wanted)

    def fit_without(ended: Iterable[End]) -> Generator[int, None, bool]:
        return (yield from solver.fits((yield from by_node((end.node, end.uid) for end in ended))))

    def fits(count: int) -> Generator[int, None, bool]:
        return (yield from fit_without(ordered[:count]))

    if not (yield from fits(len(ordered))):
        return None
    ended = ordered[: (yield from least_prefix(fits, -1, len(ordered)))]
    known = [end for end in ended if end.sure]
    if len(known) < len(ended) and (yield from fit_without(known)):
        ended = known  # nobody needs the room of the others, so their ends need no guess
    gone = yield from by_node((end.node, end.uid) for end in ended)
    placement = yield from solver.place(gone)
    if placement is None:
        return None
    nodes = dict.fromkeys(assignment.node for assignment in placement.assignments.values())
    needed = [end for end in ended if end.node in nodes]
    last = needed[-1] if needed else None
    start = max(now, last.at) if last is not None else now
    there = {node: gone.get(node, frozenset()) for node in nodes}
    return Earliest(start, all(end.sure for end in needed), last.uid if last else "", placement.assignments, there)

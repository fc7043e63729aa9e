"""A node as it would be if some pods left it and others came: one step of a search for moves.

`clearings` finds which pods must leave so that one more fits: minimal sets, smallest first. If there are few sets, all
are tried. If there are many, some are found by letting all pods leave and putting back, one after the other, each pod
that need not leave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import combinations
from math import comb
from operator import attrgetter

import msgspec

from extender.engine.planning.movable_pods import Movable
from extender.engine.planning.snapshot import NodeSnapshot
from extender.engine.state.intree import short_of
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment, Seat

DRAWN = 75
"""Cost of drawing a sketch, some 0.15 ms."""
ALL = 400
"""Most sets of one size for which all are tried."""


class Sketch(msgspec.Struct, frozen=True):
    """One node, the pods that left it, and the pods that came."""

    node: NodeSnapshot
    left: tuple[Movable, ...]
    seats: tuple[Seat, ...]
    assignments: dict[str, Assignment]
    """Of each of the seats, by UID."""


Option = tuple[tuple[Movable, ...], Sketch]
"""The pods that leave a node, and the node without them and with the pod that needs a place."""
Draw = Callable[[Iterable[Movable]], Sketch | None]
"""The node without these pods and with the new one, None if it does not fit."""


def draw(
    node: NodeState,
    left: Iterable[Movable],
    seats: Iterable[Seat],
    ignored: Collection[str] = (),
    void: Iterable[PodState] = (),
) -> Sketch | None:
    """The node without the pods that left and with the seats, placed hardest first; None if not all of them fit.

    `ignored`: resources that the books count, if the node has any. What pods in `void` hold is free.
    """
    left, seats = tuple(left), tuple(seats)
    if not all(may_go(seat, node, ignored) for seat in seats) or (seats and (not node.seen or node.problem)):
        return None
    snapshot = NodeSnapshot(node)
    for movable in left:
        snapshot.remove(movable.seat.uid, movable.seat.requests)
    for pod in void:
        if pod.node == node.name:
            snapshot.remove(pod.ref.uid, pod.requests)
    assignments: dict[str, Assignment] = {}
    for seat in sorted(seats, key=attrgetter("hardness")):
        assignment = snapshot.place(seat, ignored)
        if assignment is None:
            return None
        assignments[seat.uid] = assignment
    return Sketch(snapshot, left, seats, assignments)


def may_go(seat: Seat, node: NodeState, ignored: Collection[str]) -> bool:
    """Whether the pod may go to the node, except for a lack of what moves can free there."""
    excluded = seat.excluded >> node.number & 1 and not short_of(node, seat.requests, ignored)
    return not excluded and seat.constraints.admits(node)


def clearings(movable: Sequence[Movable], most: int, without: Draw) -> Iterator[int | Option]:
    """Sets of at most `most` pods, and the node without them, after the costs of finding each."""
    if not movable or without(movable) is None:
        yield DRAWN
        return
    found: list[frozenset[str]] = []
    for size in range(1, min(most, len(movable)) + 1):
        if comb(len(movable), size) > ALL:
            yield from _by_putting_back(movable, most, without, found)
            return
        for leaving in sorted(combinations(movable, size), key=cost):
            uids = _uids(leaving)
            if any(smaller <= uids for smaller in found):
                continue
            sketch = without(leaving)
            yield DRAWN
            if sketch is not None:
                found.append(uids)
                yield leaving, sketch


def _by_putting_back(
    movable: Sequence[Movable], most: int, without: Draw, found: list[frozenset[str]]
) -> Iterator[int | Option]:
    for order in _orders(movable):
        leaving = list(order)
        for pod in order:
            rest = [other for other in leaving if other is not pod]
            if without(rest) is not None:
                leaving = rest
            yield DRAWN
        uids = _uids(leaving)
        sketch = without(leaving) if len(leaving) <= most and not any(smaller <= uids for smaller in found) else None
        found.append(uids)
        yield DRAWN
        if sketch is not None:
            yield tuple(leaving), sketch


def _orders(movable: Sequence[Movable]) -> Iterator[list[Movable]]:
    """Orders in which pods are put back: pods on the most crowded GPUs first, smallest first, largest first."""
    crowd: dict[str, int] = {}
    for pod in movable:
        for uuid in pod.charges:
            crowd[uuid] = crowd.get(uuid, 0) + 1
    yield sorted(
        movable, key=lambda pod: (-max((crowd[uuid] for uuid in pod.charges), default=0), min(pod.charges, default=""))
    )
    yield sorted(movable, key=lambda pod: (pod.mem, pod.created))
    yield sorted(movable, key=lambda pod: (-pod.mem, pod.created))


def _uids(pods: Iterable[Movable]) -> frozenset[str]:
    return frozenset(pod.seat.uid for pod in pods)


def cost(pods: Iterable[Movable]) -> tuple[int, int, float]:
    """The cost of moving these pods: fewest pods, least GPU memory, youngest."""
    moved = tuple(pods)
    return len(moved), sum(pod.mem for pod in moved), -min((pod.created for pod in moved), default=0.0)

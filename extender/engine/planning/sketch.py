"""A node as it would be if some pods left it and others came: one step of a search for moves."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter

import msgspec

from extender.engine.planning.movable_pods import Movable
from extender.engine.planning.snapshot import NodeSnapshot
from extender.engine.state.intree import short_of
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment, Seat


class Sketch(msgspec.Struct, frozen=True):
    """One node, the pods that left it, and the pods that came."""

    node: NodeSnapshot
    left: tuple[Movable, ...]
    seats: tuple[Seat, ...]
    assignments: dict[str, Assignment]
    """Of each of the seats, by UID."""


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

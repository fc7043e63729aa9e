"""What a node would hold if some pods left it and others came: a copy, and the ledger knows nothing of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from extender.engine.planning.movable_pods import Movable
from extender.engine.state.intree import counted, lacking, short_of
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment, Seat
from extender.engine.types.amounts import add
from protos.contract import choose
from protos.contract.books import NodeBooks


class Sketch(msgspec.Struct, frozen=True):
    """One node with its pods changed."""

    node: NodeState
    version: int
    """The node's, when this was drawn."""
    left: tuple[Movable, ...]
    seats: tuple[Seat, ...]
    assignments: dict[str, Assignment]
    """Where each of the seats is."""


def draw(
    node: NodeState,
    left: Iterable[Movable],
    seats: Iterable[Seat],
    ignored: Collection[str] = (),
    void: Iterable[PodState] = (),
) -> Sketch | None:
    """The node without those that left and with the seats, hardest first; None if these do not all fit then.

    `ignored` are resources that our books count where a node has any. What those in `void` hold is free.
    """
    left, seats = tuple(left), tuple(seats)
    if any(barred(seat, node, ignored) or not seat.constraints.admits(node) for seat in seats):
        return None
    if seats and (not node.seen or node.problem):
        return None
    books, used = node.books.copy() if node.books is not None else None, dict(node.used)
    gone = [(movable.seat.uid, movable.seat.requests) for movable in left]
    gone += [(pod.ref.uid, pod.requests) for pod in void if pod.node == node.name]
    for uid, requests in gone:
        add(used, requests, -1)
        if books is not None:
            books.release(uid)
    assignments: dict[str, Assignment] = {}
    for seat in sorted(seats, key=hardness):
        assignment = _seat(seat, node, books, used, ignored)
        if assignment is None:
            return None
        assignments[seat.uid] = assignment
    return Sketch(node, node.version, left, seats, assignments)


def _seat(
    seat: Seat, node: NodeState, books: NodeBooks | None, used: dict[str, int], ignored: Collection[str]
) -> Assignment | None:
    if lacking(counted(seat.requests, ignored if books is not None else ()), node.allocatable, used):
        return None
    assignment = Assignment(node.name)
    if seat.ask is not None and books is None:
        if not seat.ask.only_whole:
            return None
    elif seat.ask is not None and books is not None:
        choice = choose.choose(seat.ask, books)
        if choice is None:
            return None
        books.hold(seat.uid, seat.ask, choice.charges)
        assignment = Assignment(node.name, choice.charges, choice.shares)
    add(used, seat.requests)
    return assignment


def barred(seat: Seat, node: NodeState, ignored: Collection[str]) -> bool:
    """Whether kube-scheduler keeps it off the node, and not merely for want of what may be freed there."""
    if not seat.excluded >> node.number & 1:
        return False
    return not short_of(node, seat.requests, ignored)


def hardness(seat: Seat) -> tuple[int, ...]:
    """Who is placed first, less is harder: most whole GPUs, most GPUs, most of one GPU, most CPU."""
    return *seat.gpus, -dict(seat.requests).get("cpu", 0)

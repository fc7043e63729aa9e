"""A node as it would be if some pods left it and others came: one step of a search for moves.

`clearings` finds which pods must leave so that one more fits: minimal sets, smallest first. If there are few sets, all
are tried. If there are many, some are found by letting all pods leave and putting back, one after the other, each pod
that need not leave. `outlook` is a quick lower bound of how many pods must leave.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import combinations
from operator import attrgetter

import msgspec

from extender.engine.planning.movable_pods import Movable
from extender.engine.planning.snapshot import NodeSnapshot
from extender.engine.state.intree import counted, short_of
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment, Seat
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook

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
        if math.comb(len(movable), size) > ALL:
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


class Outlook(msgspec.Struct, frozen=True):
    """What stands in the way on one node."""

    stuck: int
    """Pods in the way that may not be moved; if there are any, moves cannot help here."""
    moves: int
    """Pods that must leave at least."""
    node: str


def outlook(seat: Seat, node: NodeState, movable: Sequence[Movable], ignored: Collection[str]) -> Outlook | None:
    """What stands in the way of one more pod on this node; None if it would not fit on the empty node either."""
    if not node.seen or node.problem or not may_go(seat, node, ignored):
        return None
    moves = _for_totals(seat, node, movable, ignored if node.books is not None else ())
    if moves is None:
        return None
    if seat.ask is None or node.books is None:
        return Outlook(0, moves, node.name) if seat.ask is None or seat.ask.only_whole else None
    if node.books.inventory.state != "ready":
        return None
    held = {pod.seat.uid: pod for pod in movable}
    stuck = 0
    for container in seat.ask.containers:
        of_container = _for_container(container, seat.ask, node.books, held)
        if of_container is None:
            return None
        stuck, moves = max(stuck, of_container[0]), max(moves, of_container[1])
    return Outlook(stuck, moves, node.name)


def _for_totals(seat: Seat, node: NodeState, movable: Sequence[Movable], ignored: Collection[str]) -> int | None:
    """How many pods must leave to free CPU, memory and the like; None if all of them free too little."""
    most = 0
    for resource, amount in counted(seat.requests, ignored):
        missing = amount - node.room(resource)
        freed = sorted((dict(pod.seat.requests).get(resource, 0) for pod in movable), reverse=True)
        needed = _cover(missing, freed)
        if needed is None:
            return None
        most = max(most, needed)
    return most


def _cover(missing: int, freed: Sequence[int]) -> int | None:
    """How many of the largest amounts cover what is missing; None if all of them do not."""
    for count, amount in enumerate(freed):
        if missing <= 0:
            return count
        missing -= amount
    return len(freed) if missing <= 0 else None


def _for_container(
    container: ContainerAsk, ask: PodAsk, books: NodeBooks, held: dict[str, Movable]
) -> tuple[int, int] | None:
    """(pods that may not be moved, pods that must leave) for one container alone; None if no GPUs would do."""
    each = sorted(_by_gpu(container, ask, books, held))
    if len(each) < container.gpus:
        return None
    chosen = each[: container.gpus]
    return sum(stuck for stuck, _ in chosen), math.ceil(sum(share for _, share in chosen) - 1e-9)


def _by_gpu(
    container: ContainerAsk, ask: PodAsk, books: NodeBooks, held: dict[str, Movable]
) -> Iterator[tuple[int, float]]:
    for book in books.eligible(ask.selection):
        demand = books.demand(container, book.gpu)
        if demand is None or demand.mem > book.gpu.mem or demand.slices > book.slices_per_gpu:
            continue
        here = [(uid, entry.charges) for uid, entry in books.entries.items() if book.gpu.uuid in entry.charges]
        fixed = sum(uid not in held for uid, _ in here)
        leaving = [(charges[book.gpu.uuid], len(charges)) for uid, charges in here if uid in held]
        yield _for_gpu(demand, book, leaving, fixed)


def _for_gpu(demand: Demand, book: GpuBook, leaving: Sequence[tuple[Demand, int]], fixed: int) -> tuple[int, float]:
    """(pods in the way that may not be moved, pods that must leave); a pod on n GPUs counts as 1/n."""
    wholes = [span for held, span in leaving if held.whole]
    if demand.whole:
        return fixed, sum(1 / span for _, span in leaving)
    if wholes:
        return 0, sum(1 / span for span in wholes)
    if book.fits(demand):
        return 0, 0.0
    mem = _cover(demand.mem - (book.gpu.mem - book.mem_used), sorted((h.mem for h, _ in leaving), reverse=True))
    room = book.slices_per_gpu - book.slices_used
    slices = _cover(demand.slices - room, sorted((h.slices for h, _ in leaving), reverse=True))
    if mem is None or slices is None or book.wholes:
        return max(1, fixed), 0.0
    return 0, max(mem, slices) / max(span for _, span in leaving)

"""A quick lower bound of how many pods must leave a node so that one more fits there."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

import msgspec

from extender.engine.planning.movable_pods import Movable
from extender.engine.planning.sketch import may_go
from extender.engine.state.intree import counted
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Seat
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook


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

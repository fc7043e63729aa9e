"""One reservation for a pending pod: its state, and the part of it that is free on its node."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.promises import Promise
from extender.engine.state.seats import Assignment
from protos.contract.allocation import Share
from protos.contract.ask import NOTHING, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook
from protos.contract.reservation import Room

AGAIN_S = 5.0
"""Seconds until a pod with a complete reservation is requeued again."""


class Reservation(msgspec.Struct, eq=False):
    """A reservation, and how much of it is booked."""

    pod: PodState
    ask: PodAsk | None
    promise: Promise
    """The annotation that asks for it."""
    room: Room | None
    """None: the reservation is over."""
    keeper: PodState
    """Stands for the pod in the books."""
    assignment: Assignment | None = None
    """What is to be booked; None while the node cannot have it."""
    made_of: Mapping[str, GpuBook] | None = None
    """The node's GPUs from which the assignment was made."""
    version: int = -1
    """The node's version at the last booking."""
    admitted: bool = False
    """The queue admits it."""
    queue: object = None
    turn: int = -1
    """The queue and its turn when `admitted` was asked."""
    promised: bool = False
    """It counts in its queue."""
    complete: bool = False
    complete_at: float = 0.0
    """When it last became complete."""
    again_at: float = 0.0
    again_s: float = AGAIN_S

    @property
    def until(self) -> float:
        return self.promise.until

    @property
    def preempting(self) -> bool:
        return self.promise.preempting

    @property
    def asked(self) -> tuple[object, ...]:
        return self.promise.text, self.preempting, self.ask, self.keeper.requests


def assign(kept: Reservation, room: Room, node: NodeState) -> None:
    """Set the assignment, unless it was made of the node's present GPUs."""
    gpus = node.books.gpus if node.books is not None else None
    if kept.assignment is None or kept.made_of is not gpus:
        kept.assignment, kept.made_of = _assignment(kept, room, node), gpus


def _assignment(kept: Reservation, room: Room, node: NodeState) -> Assignment | None:
    """None if the node lacks the GPUs or the pod's requests differ from them."""
    if kept.ask is None or node.books is None:
        return Assignment(node.name, until=kept.until) if kept.ask is None else None
    shares = _shares(kept.ask, node.books, room.containers)
    charges = node.books.charges(kept.ask, shares) if shares is not None else None
    return Assignment(node.name, charges, shares, kept.until) if shares is not None and charges is not None else None


def _shares(
    ask: PodAsk, books: NodeBooks, containers: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[Share, ...]] | None:
    eligible = {book.gpu.uuid: book for book in books.eligible(ask.selection)}
    by_container: dict[str, tuple[Share, ...]] = {}
    for container in ask.containers:
        uuids = containers.get(container.name, ())
        demands = [(eligible[uuid], books.demand(container, eligible[uuid].gpu)) for uuid in uuids if uuid in eligible]
        shares = [Share(b.gpu.uuid, b.gpu.index, d.mem, d.slices, d.whole) for b, d in demands if d is not None]
        if len(shares) != container.gpus or len(uuids) != container.gpus:
            return None
        by_container[container.name] = tuple(shares)
    return by_container


def free_of(charges: Mapping[str, Demand], books: NodeBooks | None, own: str) -> dict[str, Demand]:
    """The part of the charges that is free, with the own booking counted as free."""
    if books is None:
        return {}
    entry = books.entries.get(own)
    if entry is not None:
        books.release(own)
    free = {uuid: _part(demand, books.gpus.get(uuid)) for uuid, demand in charges.items()}
    if entry is not None:
        books.restore(own, entry)
    return {uuid: part for uuid, part in free.items() if part != NOTHING}


def _part(demand: Demand, book: GpuBook | None) -> Demand:
    if book is None or book.wholes or not book.offered:
        return NOTHING
    if book.fits(demand):
        return demand
    return Demand(min(demand.mem, book.mem_free), min(demand.slices, book.slices_free), False)

"""One reservation: the room that is kept for a pod, and what of it is free on its node."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment
from extender.engine.types.amounts import add
from protos.contract.allocation import Share
from protos.contract.ask import NOTHING, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook
from protos.contract.reservation import Room

AGAIN_S = 5.0
"""Seconds after which a pod whose room is complete and that does not come is woken again."""


class Reservation(msgspec.Struct, eq=False):
    """One reservation."""

    pod: PodState
    ask: PodAsk | None
    text: str
    """The annotation that asks for it."""
    room: Room | None
    """None: it is over."""
    preempting: bool
    """We make the room ourselves."""
    until: float
    keeper: PodState
    """What holds it in the books."""
    assignment: Assignment | None = None
    """What is to be kept; None while the node does not have it."""
    made_of: Mapping[str, GpuBook] | None = None
    """The GPUs of the node of which that was made out."""
    version: int = -1
    """The node's, when it was booked."""
    admitted: bool = False
    """Its queue may have it."""
    queue: object = None
    turn: int = -1
    """In which queue, and when, that was looked at."""
    promised: bool = False
    """It counts in its queue."""
    complete: bool = False
    complete_at: float = 0.0
    """When it was seen to be, the last time."""
    again_at: float = 0.0
    again_s: float = AGAIN_S

    @property
    def asked(self) -> tuple[object, ...]:
        """What is asked for whom."""
        return self.text, self.preempting, self.ask, self.keeper.requests


def gpus(node: NodeState) -> Mapping[str, GpuBook] | None:
    """The books of its GPUs, None if it has none."""
    return node.books.gpus if node.books is not None else None


def spot(kept: Reservation, room: Room, node: NodeState) -> Assignment | None:
    """What is to be kept on the node; None if it does not have that, or the pod asks for something else."""
    if kept.ask is None or node.books is None:
        return Assignment(node.name, until=kept.until) if kept.ask is None else None
    shares = _shares(kept.ask, node.books, room.containers)
    charges = node.books.charges(kept.ask, shares) if shares is not None else None
    return Assignment(node.name, charges, shares, kept.until) if shares is not None and charges is not None else None


def _shares(
    ask: PodAsk, books: NodeBooks, containers: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[Share, ...]] | None:
    eligible = {book.gpu.uuid: book for book in books.eligible(ask.selection)}
    found: dict[str, tuple[Share, ...]] = {}
    for container in ask.containers:
        given = containers.get(container.name, ())
        demands = [(eligible[uuid], books.demand(container, eligible[uuid].gpu)) for uuid in given if uuid in eligible]
        shares = [Share(b.gpu.uuid, b.gpu.index, d.mem, d.slices, d.whole) for b, d in demands if d is not None]
        if len(shares) != container.gpus or len(given) != container.gpus:
            return None
        found[container.name] = tuple(shares)
    return found


def free_of(charges: Mapping[str, Demand], books: NodeBooks | None, own: str) -> dict[str, Demand]:
    """As much of this as there is, beside all but what is booked for it already."""
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


def without(node: NodeState, keeper: PodState) -> dict[str, int]:
    """What all others take in-tree there."""
    used = dict(node.used)
    add(used, keeper.requests, -1)
    return used

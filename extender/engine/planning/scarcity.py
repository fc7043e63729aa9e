"""Whether the nodes together have free what a gang requires before it starts: its `minResources`.

A plan places what the smallest start takes, so only the amounts beyond that are counted here. Sums say nothing about
single nodes. So they never suffice for a start, as they do for Volcano's enqueue action.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence

import msgspec

from extender.engine.planning.attempt import LOOK, STEP, ClusterView, batched
from extender.engine.planning.shortage import amount_of
from extender.engine.state.intree import Amounts
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Seat
from protos.contract.names import Resources


class Scarcity(msgspec.Struct, frozen=True):
    """Less is free than required. As text: the sentence with numbers."""

    wanted: Amounts
    free: Amounts
    """Of the same resources."""

    def __str__(self) -> str:
        wanted, free = (" and ".join(amount_of(*one) for one in amounts) for amounts in (self.wanted, self.free))
        return f"minResources wants {wanted}; free are {free}"


def scarcity(view: ClusterView, required: Amounts, minimum: Sequence[Seat]) -> Generator[int, None, Scarcity | None]:
    """The resources of which too little is free for a gang with this minimum; None if there is enough."""
    taken: Counter[str] = Counter()
    for seat in minimum if required else ():
        taken.update(dict(seat.requests))
    wanted = tuple((resource, amount) for resource, amount in required if amount > taken[resource])
    free: Counter[str] = Counter()
    for nodes in batched(tuple(view.nodes.values()) if wanted else ()):
        for resource, _ in wanted:
            free[resource] += sum(_free(node, resource, view.resources) for node in nodes)
        yield len(wanted) * STEP * LOOK
    short = tuple((resource, amount) for resource, amount in wanted if amount > free[resource])
    return Scarcity(short, tuple((resource, free[resource]) for resource, _ in short)) if short else None


def _free(node: NodeState, resource: str, ours: Resources) -> int:
    """What is free of a resource on a node that takes new pods, as far as parts can be added up."""
    if not node.seen or node.unschedulable or node.problem:
        return 0
    if node.books is None or resource not in ours.all:
        return max(0, node.room(resource))
    inventory = node.books.inventory
    able = [book for book in node.books.gpus.values() if book.offered and not book.wholes]
    if inventory.state != "ready":
        return 0
    if resource == ours.mem:
        return sum(book.mem_free for book in able)
    if resource == ours.slice:
        return sum(book.slices_free for book in able)
    if replicas := inventory.replicas.get(resource):
        return sum(book.slices_free // (inventory.slices_per_gpu // replicas) for book in able)
    return sum(not book.sharers for book in able) if resource == ours.whole else 0

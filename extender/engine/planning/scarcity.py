"""Whether nodes together have free what a gang wants free before it starts: its `minResources`.

What its smallest start takes is placed by the plan, so only what is wanted beyond that is counted here. Sums say
nothing about single nodes, which is why they never suffice for a start, as they do for Volcano's enqueueing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from extender.engine.planning.attempt import LOOK, STEP, ClusterView
from extender.engine.planning.shortage import amount_of
from extender.engine.state.intree import Amounts
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Seat
from protos.contract.names import Resources


class Scarcity(msgspec.Struct, frozen=True):
    """Less is free than wanted. As text: the sentence with numbers."""

    wanted: Amounts
    free: Amounts
    """Of the same resources."""

    def __str__(self) -> str:
        wanted, free = (" and ".join(amount_of(*one) for one in amounts) for amounts in (self.wanted, self.free))
        return f"minResources wants {wanted}; free are {free}"


class Reckoning:
    """The sums of one gang, in the making."""

    def __init__(self, view: ClusterView, wanted: Amounts, minimum: Sequence[Seat]) -> None:
        self._view = view
        taken: Counter[str] = Counter()
        for seat in minimum if wanted else ():
            taken.update(dict(seat.requests))
        self._wanted = tuple((resource, amount) for resource, amount in wanted if amount > taken[resource])
        self._free: Counter[str] = Counter()

    def run(self) -> Iterator[int]:
        """The work, step by step."""
        nodes = iter(tuple(self._view.nodes.values()) if self._wanted else ())
        while some := list(islice(nodes, STEP)):
            for resource, _ in self._wanted:
                self._free[resource] += sum(_free(node, resource, self._view.resources) for node in some)
            yield len(self._wanted) * STEP * LOOK

    @property
    def outcome(self) -> Scarcity | None:
        """What there is too little of, once the work is done; None if there is enough."""
        short = tuple((resource, amount) for resource, amount in self._wanted if amount > self._free[resource])
        return Scarcity(short, tuple((resource, self._free[resource]) for resource, _ in short)) if short else None


def _free(node: NodeState, resource: str, ours: Resources) -> int:
    """What is free of a resource on a node that takes new pods, as far as one may add it up."""
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

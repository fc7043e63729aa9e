"""Where refused pods may fit among the few nodes that got capacity: quick checks that never miss a node that fits."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from operator import le

from extender.engine.placement.gpus import room
from extender.engine.placement.seats import fits
from extender.engine.state.node_state import NodeState
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.choose import Choice

Amounts = tuple[int, int, int]
"""Units and slices on one GPU, and whole GPUs."""
LOOKS = 100
"""Nodes checked for one shape at once."""
CHOICE = 20
"""The cost of choosing a pod's GPUs on a node, or of finding the node reserved, in such checks."""


class Room:
    """The free capacity of these nodes, while it is given to one pod after the other."""

    def __init__(self, nodes: Sequence[NodeState]) -> None:
        self._nodes = nodes
        self._free: dict[str, Amounts | None] = {}

    def look(self) -> Generator[int, None, None]:
        for node in self._nodes:
            self.taken(node)
            yield 1 + (len(node.books.gpus) if node.books is not None else 0)

    def of(self, ask: PodAsk) -> Generator[int, None, Places]:
        """The nodes where this shape may fit."""
        places = Places(ask, self._free)
        for start in range(0, len(self._nodes), LOOKS):
            nodes = self._nodes[start : start + LOOKS]
            for node in nodes:
                if places.may_fit(node):
                    places.nodes[node.name] = node
                    places.bits |= 1 << node.number
            yield len(nodes)
        return places

    def taken(self, node: NodeState) -> None:
        """Find out again what is free on a node at most; None if a quick check cannot say."""
        books = node.books
        free: Amounts | None = None
        if books is not None and not books.inventory.replicas:
            mem, slices, whole = room([book for book in books.gpus.values() if book.offered])
            free = -mem, -slices, -whole
        self._free[node.name] = free


class Places:
    """The nodes where one shape of request may fit."""

    def __init__(self, ask: PodAsk, free: Mapping[str, Amounts | None]) -> None:
        self.ask = ask
        self.nodes: dict[str, NodeState] = {}
        self.bits = 0
        """The same as bits by node number; a number is not given to another node for a while."""
        self.denied = 0
        """How often a node was reserved for other pods."""
        mem, slices = max(c.mem for c in ask.containers), max(c.slices for c in ask.containers)
        self._least = mem, slices, max(c.gpus if c.whole else 0 for c in ask.containers)
        """What a node must have free at least; that may not be enough."""
        self._free = free

    def may_fit(self, node: NodeState) -> bool:
        free = self._free[node.name]
        return node.seen and not node.problem and (free is None or all(map(le, self._least, free)))

    def take(
        self, passes: Callable[[NodeState], bool], admits: Callable[[NodeState], bool] | None = None
    ) -> Generator[int, None, tuple[NodeState, Choice] | None]:
        """A node that kube-scheduler passes, and that is not reserved for others; and the pod's GPUs.

        Full nodes are dropped.
        """
        for node in list(self.nodes.values()):
            if not passes(node):
                continue
            if admits is not None and not admits(node):
                self.denied += 1
            elif (choice := self._choice(node) if self.may_fit(node) else None) is not None:
                return node, choice
            elif self.nodes.pop(node.name, None) is not None:
                self.bits ^= 1 << node.number
            yield CHOICE
        return None

    def _choice(self, node: NodeState) -> Choice | None:
        if node.books is None:
            return Choice({}, {}) if fits(self.ask, node) else None
        return choose.choose(self.ask, node.books)

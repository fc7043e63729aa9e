"""Where a refused pod may fit, among the few nodes that got room: told at a glance, and surely wrong only one way."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from operator import le

from extender.engine.placement.gpus import room
from extender.engine.placement.seats import fits
from extender.engine.state.node_state import NodeState
from protos.contract import choose
from protos.contract.ask import Demand, PodAsk
from protos.contract.books import NodeBooks

Glance = tuple[int, int, int]
"""Units and slices on one GPU, and whole GPUs."""


LOOKS = 100
"""Nodes of which it is told at once whether one shape may fit there."""
CHOICE = 20
"""What it takes to find a pod's GPUs on a node, or that it has to leave them to others, in such looks."""


class Room:
    """These nodes, while their room is given away to one pod after the other."""

    def __init__(self, nodes: Sequence[NodeState]) -> None:
        self._nodes = nodes
        self._free: dict[str, Glance | None] = {}

    def look(self) -> Generator[int, None, None]:
        """Find out what is free."""
        for node in self._nodes:
            self.taken(node)
            yield 1 + (len(node.books.gpus) if node.books is not None else 0)

    def of(self, ask: PodAsk) -> Generator[int, None, Places]:
        """Where this shape may fit."""
        places = Places(ask, self._free)
        for start in range(0, len(self._nodes), LOOKS):
            some = self._nodes[start : start + LOOKS]
            for node in some:
                if places.may_fit(node):
                    places.add(node)
            yield len(some)
        return places

    def taken(self, node: NodeState) -> None:
        """Somebody got some of it."""
        self._free[node.name] = _free(node.books)


class Places:
    """The nodes where one shape of ask may fit."""

    def __init__(self, ask: PodAsk, free: Mapping[str, Glance | None]) -> None:
        self.ask = ask
        self.nodes: dict[str, NodeState] = {}
        self.bits = 0
        """The same as bits by node number, of which none goes to another node so soon."""
        self.denied = 0
        """How often a node was kept for others."""
        self._least, self._free = _least(ask), free

    def may_fit(self, node: NodeState) -> bool:
        free = self._free[node.name]
        return node.seen and not node.problem and (free is None or all(map(le, self._least, free)))

    def add(self, node: NodeState) -> None:
        self.nodes[node.name] = node
        self.bits |= 1 << node.number

    def take(
        self, excluded: int, admits: Callable[[NodeState], bool] | None = None
    ) -> Generator[int, None, tuple[NodeState, Mapping[str, Demand]] | None]:
        """A node that is not excluded (bits by number), and what the ask takes there; full nodes are dropped.

        `admits`: whether a node is not kept for others.
        """
        for node in list(self.nodes.values()):
            if excluded >> node.number & 1:
                continue
            if admits is not None and not admits(node):
                self.denied += 1
            elif (charges := self._charges(node) if self.may_fit(node) else None) is not None:
                return node, charges
            elif self.nodes.pop(node.name, None) is not None:
                self.bits ^= 1 << node.number
            yield CHOICE
        return None

    def _charges(self, node: NodeState) -> Mapping[str, Demand] | None:
        if node.books is None:
            return {} if fits(self.ask, node) else None
        choice = choose.choose(self.ask, node.books)
        return choice.charges if choice else None


def _least(ask: PodAsk) -> Glance:
    """What a node must have free: less is surely too little."""
    mem = max(c.mem for c in ask.containers)
    slices = max(c.slices for c in ask.containers)
    return mem, slices, max(c.gpus if c.whole else 0 for c in ask.containers)


def _free(books: NodeBooks | None) -> Glance | None:
    """What a node has free at most; None if that cannot be said so easily."""
    if books is None or books.inventory.replicas:
        return None
    mem, slices, whole = room([book for book in books.gpus.values() if book.offered])
    return -mem, -slices, -whole

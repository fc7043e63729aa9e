"""How pods sit on nodes, remembered: nodes in the same state give the same."""

from __future__ import annotations

from collections.abc import Sized

from extender.engine.placement.gpus import room
from extender.engine.placement.ranking import Room
from extender.engine.placement.score import Scorer, Seated
from extender.engine.state.node_state import NodeState
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.books import NodeBooks
from protos.contract.signature import Signature

SEATS, ALL_SEATS = 4096, 32_768
"""Node states remembered for one ask, and for all, at most."""
LEAST_SEATS, OF_NODE = 2048, 2
"""For all at least, and for each node."""
UNTOUCHED = -500
"""The score of a node that serves whole GPUs without us."""


def fits(ask: PodAsk, node: NodeState) -> bool:
    """Whether the ask goes onto the node at all."""
    if not node.seen or node.problem:
        return False
    return untouched(ask, node) if node.books is None else choose.choose(ask, node.books) is not None


def untouched(ask: PodAsk, node: NodeState) -> bool:
    """A node without inventory passes for pods that ask only whole GPUs, any of them, that its own plugin serves."""
    if ask.selection.selective:
        return False
    wanted: dict[str, int] = {}
    for container in ask.containers:
        if not container.whole:
            return False
        if container.kind != "init":
            wanted[container.whole] = wanted.get(container.whole, 0) + container.gpus
    return bool(wanted) and all(node.room(resource) >= amount for resource, amount in wanted.items())


class Seats:
    """How pods sit on nodes: alike where the same GPUs are taken, whatever their CPU and memory."""

    def __init__(self, scorer: Scorer, nodes: Sized) -> None:
        self._scorer, self._nodes = scorer, nodes
        self._of: dict[PodAsk, dict[Signature, Seated | Room]] = {}
        self._count = 0

    def known(self, ask: PodAsk, books: NodeBooks) -> Seated | Room | None:
        """What was found for such a node, None if that is not remembered."""
        of_ask = self._of.get(ask)
        return of_ask.get(books.signature()) if of_ask is not None else None

    def find(self, ask: PodAsk, books: NodeBooks) -> Seated | Room:
        choice = choose.choose(ask, books)
        found: Seated | Room
        if choice is not None:
            found = self._scorer.seated(choice, books, spread=ask.selection.spread)
        else:
            found = room(books.eligible(ask.selection), only_whole=ask.only_whole)
        if not ask.selection.uuids:
            self._remember(ask, books.signature(), found)
        return found

    def _remember(self, ask: PodAsk, signature: Signature, found: Seated | Room) -> None:
        of_ask = self._of.setdefault(ask, {})
        if len(of_ask) >= SEATS:
            self._drop(ask)
        elif self._count >= min(ALL_SEATS, max(LEAST_SEATS, OF_NODE * len(self._nodes))):
            self._drop(next(iter(self._of)))
        self._of.setdefault(ask, of_ask)[signature] = found
        self._count += 1

    def _drop(self, ask: PodAsk) -> None:
        self._count -= len(self._of[ask])
        self._of.pop(ask).clear()

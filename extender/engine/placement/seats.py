"""How pods sit on nodes, remembered by the states of nodes."""

from __future__ import annotations

from collections.abc import Sized

from extender.engine.placement.gpus import room
from extender.engine.placement.ranking import Room
from extender.engine.placement.score import Scorer, Seated
from extender.engine.state.empty_nodes import elsewhere
from extender.engine.state.node_state import NodeState
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.books import NodeBooks
from protos.contract.signature import Signature

SEATS, ALL_SEATS = 4096, 32_768
"""Node states remembered for one request, and for all requests, at most."""
LEAST_SEATS, OF_NODE = 2048, 2
"""Node states remembered for all requests at least, and for each node."""
UNTOUCHED = -500
"""The score of a node whose whole GPUs another device plugin serves."""


def fits(ask: PodAsk, node: NodeState) -> bool:
    """Whether the request fits on the node."""
    if not node.seen or node.problem:
        return False
    return untouched(ask, node) if node.books is None else choose.choose(ask, node.books) is not None


def untouched(ask: PodAsk, node: NodeState) -> bool:
    """Whether a node without inventory serves the request."""
    wanted = elsewhere(ask)
    return wanted is not None and all(node.room(resource) >= amount for resource, amount in wanted.items())


class Seats:
    """How pods sit on nodes, by request and by the state of the node's GPUs, whatever their CPU and memory."""

    def __init__(self, scorer: Scorer, nodes: Sized) -> None:
        self._scorer, self._nodes = scorer, nodes
        self._of: dict[PodAsk, dict[Signature, Seated | Room]] = {}
        self._count = 0

    def known(self, ask: PodAsk, books: NodeBooks) -> Seated | Room | None:
        """What is remembered for such a node, None if nothing is."""
        of_ask = self._of.get(ask)
        return of_ask.get(books.signature()) if of_ask is not None else None

    def find(self, ask: PodAsk, books: NodeBooks) -> Seated | Room:
        """How the pod sits on such a node, or how much is free there if it does not fit; remembered but for UUIDs."""
        choice = choose.choose(ask, books)
        seated: Seated | Room
        if choice is not None:
            seated = self._scorer.seated(choice, books, spread=ask.selection.spread)
        else:
            profile = ask.containers[0].profile
            able = [book for book in books.eligible(ask.selection) if not profile or book.gpu.mig == profile]
            seated = room(able, only_whole=ask.only_whole or bool(profile))
        if ask.selection.uuids:
            return seated
        of_ask = self._of.setdefault(ask, {})
        if len(of_ask) >= SEATS:
            self._drop(ask)
        elif self._count >= min(ALL_SEATS, max(LEAST_SEATS, OF_NODE * len(self._nodes))):
            self._drop(next(iter(self._of)))
        self._of.setdefault(ask, of_ask)[books.signature()] = seated
        self._count += 1
        return seated

    def _drop(self, ask: PodAsk) -> None:
        self._count -= len(self._of[ask])
        self._of.pop(ask).clear()

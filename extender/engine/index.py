"""The nodes ranked for one shape of ask, kept up to date by what changed.

A decision costs what changed since the last one of its shape, not the size of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice

from sortedcontainers import SortedList

from extender.engine.ledger import NodeState
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.books import Signature

SHAPES = 128
"""Shapes of ask kept at a time."""
FEW = 512
"""So many nodes are looked up one by one rather than found in the ranking."""
MEMO = 4096
"""Node states remembered per shape."""
UNTOUCHED = choose.TOP // 2
"""The score of a node that serves whole GPUs without us."""


Room = tuple[int, int, int]
"""How much is free where an ask does not fit, what is asked first, all negative so that the most sorts first."""
Standing = int | Room | None
"""How a node stands to an ask: its score, or its room, or None where it is out of the question."""


def standing(ask: PodAsk, node: NodeState) -> Standing:
    """The node's score, or how near it comes."""
    points = score(ask, node)
    if points is not None or node.books is None or node.problem:
        return points
    wholly, mem, slices = 0, -1, -1
    for book in node.books.eligible(ask.selection):
        if not book.wholes:
            wholly += not book.sharers
            mem, slices = max(mem, book.mem_free), max(slices, book.slices_free)
    return (-wholly, -mem, -slices) if ask.only_whole else (-mem, -slices, -wholly)


def score(ask: PodAsk, node: NodeState) -> int | None:
    """How well the ask goes onto the node (0..TOP), None if not at all."""
    if not node.seen or node.problem:
        return None
    if node.books is None:
        return UNTOUCHED if _untouched(ask, node) else None
    return choose.rank(ask, node.books)


def _untouched(ask: PodAsk, node: NodeState) -> bool:
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


class ShapeIndex:
    """All nodes that can take one shape, best first, and those that cannot, nearest first; equals by name."""

    def __init__(self, ask: PodAsk, nodes: Mapping[str, NodeState]) -> None:
        self.ask, self._nodes = ask, nodes
        self._known: dict[str, Standing] = {}
        self._ranked: SortedList[tuple[int, str]] = SortedList()
        self._short: SortedList[tuple[Room, str]] = SortedList()
        self._memo: dict[Signature, Standing] = {}
        self.stale: set[str] = set(nodes)

    def refresh(self, limit: int | None = None) -> None:
        """Look again at the nodes that changed (at most `limit` of them)."""
        fitting, short = [], []
        for name in list(islice(self.stale, limit)):
            self.stale.discard(name)
            old = self._known.pop(name, None)
            node = self._nodes.get(name)
            new = self._standing(node) if node is not None else None
            if new is not None:
                self._known[name] = new
            if old == new:
                continue
            self._drop(name, old)
            if isinstance(new, int):
                fitting.append((-new, name))
            elif new is not None:
                short.append((new, name))
        self._ranked.update(fitting)
        self._short.update(short)

    def _drop(self, name: str, old: Standing) -> None:
        if isinstance(old, int):
            self._ranked.remove((-old, name))
        elif old is not None:
            self._short.remove((old, name))

    def _standing(self, node: NodeState) -> Standing:
        """Nodes in the same state stand alike, so most are looked up."""
        if node.books is None or node.problem or self.ask.selection.uuids:
            return standing(self.ask, node)
        signature = node.books.signature()
        try:
            return self._memo[signature]
        except KeyError:
            if len(self._memo) >= MEMO:
                self._memo.clear()
            found = self._memo[signature] = standing(self.ask, node)
            return found

    def ranked(self, among: Collection[str] | None = None) -> Iterator[tuple[str, int]]:
        """(node, score) of all that can take it, best first, of `among` only."""
        if among is not None and len(among) <= FEW:
            points = ((name, self._known.get(name)) for name in among)
            found = sorted((-score, name) for name, score in points if isinstance(score, int))
            yield from ((name, -negative) for negative, name in found)
            return
        for negative, name in self._ranked:
            if among is None or name in among:
                yield name, -negative

    def points(self, name: str) -> int:
        """The score of one node, 0 if it cannot take it."""
        found = self._known.get(name)
        return found if isinstance(found, int) else 0

    def nearest(self, excluded: int = 0) -> str | None:
        """The node that comes nearest of those that cannot take it; `excluded` are bits by node number."""
        return next((name for _, name in self._short if not excluded >> self._nodes[name].number & 1), None)


class Indexes:
    """The shapes asked lately. Least recently used ones go."""

    def __init__(self, nodes: Callable[[], Mapping[str, NodeState]]) -> None:
        self._nodes = nodes
        self._shapes: dict[PodAsk, ShapeIndex] = {}

    def __len__(self) -> int:
        """How many shapes are kept."""
        return len(self._shapes)

    def stale(self, node: str) -> None:
        """The node changed."""
        for index in self._shapes.values():
            index.stale.add(node)

    def of(self, ask: PodAsk) -> ShapeIndex:
        """The index of this shape, up to date."""
        index = self._used(ask)
        index.refresh()
        return index

    def prepare(self, ask: PodAsk, nodes: int) -> bool:
        """Look at so many of the nodes that `of` would have to look at; False when none is left."""
        index = self._used(ask)
        index.refresh(nodes)
        return bool(index.stale)

    def _used(self, ask: PodAsk) -> ShapeIndex:
        """The index of this shape, as the one used last."""
        index = self._shapes.pop(ask, None)
        if index is None:
            index = self._make(ask)
        self._shapes[ask] = index
        return index

    def _make(self, ask: PodAsk) -> ShapeIndex:
        if len(self._shapes) >= SHAPES:
            del self._shapes[next(iter(self._shapes))]
        return ShapeIndex(ask, self._nodes())

    def warm(self, ask: PodAsk) -> None:
        """Make the index of a shape that will be asked soon; `work` fills it."""
        if ask not in self._shapes:
            self._shapes[ask] = self._make(ask)

    def work(self, nodes: int) -> None:
        """Refresh up to this many nodes of one index that lags behind."""
        for index in self._shapes.values():
            if index.stale:
                index.refresh(nodes)
                return

"""The nodes ranked for one shape of ask, kept up to date by what changed.

A decision costs what changed since the last one of its shape, not the size of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from sortedcontainers import SortedList

from extender.engine.ledger import NodeState
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.books import Signature

SHAPES = 128
"""Shapes of ask kept at a time."""
MEMO = 4096
"""Node states remembered per shape."""
UNTOUCHED = choose.TOP // 2
"""The score of a node that serves whole GPUs without us."""


def score(ask: PodAsk, node: NodeState) -> int | None:
    """How well the ask goes onto the node (0..TOP), None if not at all."""
    if not node.seen or node.problem:
        return None
    if node.books is None:
        return UNTOUCHED if _untouched(ask, node) else None
    return choose.rank(ask, node.books)


def _untouched(ask: PodAsk, node: NodeState) -> bool:
    """A node without inventory passes for pods that ask only whole GPUs that its own plugin serves."""
    wanted: dict[str, int] = {}
    for container in ask.containers:
        if not container.whole:
            return False
        if container.kind != "init":
            wanted[container.whole] = wanted.get(container.whole, 0) + container.gpus
    return bool(wanted) and all(node.room(resource) >= amount for resource, amount in wanted.items())


class ShapeIndex:
    """All nodes that can take one shape, best first; equals by name."""

    def __init__(self, ask: PodAsk, nodes: Mapping[str, NodeState]) -> None:
        self.ask, self._nodes = ask, nodes
        self._scores: dict[str, int] = {}
        self._ranked: SortedList[tuple[int, str]] = SortedList()
        self._memo: dict[Signature, int | None] = {}
        self.stale: set[str] = set(nodes)

    def refresh(self, limit: int | None = None) -> None:
        """Look again at the nodes that changed (at most `limit` of them)."""
        added = []
        for name in sorted(self.stale)[:limit]:
            self.stale.discard(name)
            old = self._scores.pop(name, None)
            node = self._nodes.get(name)
            new = self._score(node) if node is not None else None
            if new is not None:
                self._scores[name] = new
            if old != new:
                if old is not None:
                    self._ranked.remove((-old, name))
                if new is not None:
                    added.append((-new, name))
        self._ranked.update(added)

    def _score(self, node: NodeState) -> int | None:
        """Nodes in the same state score alike, so most scores are looked up."""
        if node.books is None or node.problem or self.ask.selection.uuids:
            return score(self.ask, node)
        signature = node.books.signature()
        if signature not in self._memo:
            if len(self._memo) >= MEMO:
                self._memo.clear()
            self._memo[signature] = score(self.ask, node)
        return self._memo[signature]

    def __contains__(self, name: str) -> bool:
        return name in self._scores

    def __len__(self) -> int:
        return len(self._scores)

    def score(self, name: str) -> int | None:
        return self._scores.get(name)

    def ranked(self, among: Collection[str] | None = None) -> Iterator[tuple[str, int]]:
        """(node, score) of all that can take it, best first, of `among` only."""
        if among is not None and len(among) <= 64:
            found = sorted((-self._scores[name], name) for name in set(among) if name in self._scores)
            yield from ((name, -negative) for negative, name in found)
            return
        for negative, name in self._ranked:
            if among is None or name in among:
                yield name, -negative


class Indexes:
    """The shapes asked lately. Least recently used ones go."""

    def __init__(self, nodes: Callable[[], Mapping[str, NodeState]]) -> None:
        self._nodes = nodes
        self._shapes: dict[PodAsk, ShapeIndex] = {}

    def stale(self, node: str) -> None:
        """The node changed."""
        for index in self._shapes.values():
            index.stale.add(node)

    def of(self, ask: PodAsk) -> ShapeIndex:
        """The index of this shape, up to date."""
        index = self._shapes.pop(ask, None) or ShapeIndex(ask, self._nodes())
        self._shapes[ask] = index
        if len(self._shapes) > SHAPES:
            del self._shapes[next(iter(self._shapes))]
        index.refresh()
        return index

    def warm(self, ask: PodAsk) -> None:
        """Make the index of a shape that will be asked soon; `work` fills it."""
        if ask not in self._shapes:
            self._shapes[ask] = ShapeIndex(ask, self._nodes())

    def work(self, nodes: int) -> None:
        """Refresh up to this many nodes of one index that lags behind."""
        for index in self._shapes.values():
            if index.stale:
                index.refresh(nodes)
                return

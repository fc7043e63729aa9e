"""The nodes ranked for one shape of ask, kept up to date by what changed.

A decision costs what changed since the last one of its shape, not the size of the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Generic, TypeVar

from sortedcontainers import SortedList

from extender.engine.books.ledger import NodeState
from extender.engine.placement.mix import Shape
from extender.engine.placement.score import ALONE, Present, Scorer, Seated
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.books import NodeBooks, Signature

SHAPES = 128
"""Shapes of ask kept at a time."""
FEW = 512
"""So many nodes are looked up one by one rather than found in the ranking."""
UNSORTED = 1000
"""Items sorted in at once, some 2 ms of work; a quarter of those there are, where these are more."""
MEMO = 4096
"""Node states remembered per shape."""
UNTOUCHED = -500
"""The score of a node that serves whole GPUs without us."""


Item = TypeVar("Item", bound=tuple[object, ...])
Room = tuple[int, int, int]
"""How much is free where an ask does not fit, what is asked first, all negative so that the most sorts first."""
Standing = int | Room | None
"""How a node stands to an ask: its score, or its room, or None where it is out of the question."""


def fits(ask: PodAsk, node: NodeState) -> bool:
    """Whether the ask goes onto the node at all."""
    if not node.seen or node.problem:
        return False
    return _untouched(ask, node) if node.books is None else choose.choose(ask, node.books) is not None


def _room(ask: PodAsk, books: NodeBooks) -> Room:
    """How near the node comes; of nodes without the whole GPUs that are asked, only how many those are counts."""
    if ask.only_whole:
        return -sum([not (book.wholes or book.sharers) for book in books.eligible(ask.selection)]), 0, 0
    wholly, mem, slices = 0, -1, -1
    for book in books.eligible(ask.selection):
        if not book.wholes:
            wholly += not book.sharers
            if (free := book.mem_free) > mem:
                mem = free
            if (free := book.slices_free) > slices:
                slices = free
    return -mem, -slices, -wholly


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


class Ranking(Generic[Item]):
    """Items in order. What is added is put in its place when somebody looks, or when there is much of it."""

    def __init__(self) -> None:
        self._kept: SortedList[Item] = SortedList()
        self.new: list[Item] = []
        """What was added."""

    def settle(self) -> None:
        """Put it in its place if it is much."""
        if len(self.new) > max(UNSORTED, len(self._kept) // 4):
            self._sorted()

    def remove(self, item: Item) -> None:
        self._sorted().remove(item)

    def _sorted(self) -> SortedList[Item]:
        if self.new:
            self._kept.update(self.new)
            self.new.clear()
        return self._kept

    def __iter__(self) -> Iterator[Item]:
        return iter(self._sorted())


class ShapeIndex:
    """All nodes that can take one shape, best first, and those that cannot, nearest first; equals by name."""

    def __init__(self, shape: Shape, nodes: Mapping[str, NodeState], scorer: Scorer) -> None:
        self.shape, self._nodes, self._scorer = shape, nodes, scorer
        self._known: dict[str, Standing] = {}
        self._ranked: Ranking[tuple[int, str]] = Ranking()
        self._short: Ranking[tuple[Room, str]] = Ranking()
        self._memo: dict[Signature, Seated | Room] = {}
        self._standings: dict[Present | None, int | Room] = {}
        """Of nodes with inventory: those that are alike stand alike."""
        self.stale: set[str] = set(nodes)
        """Nodes that changed: they are looked at before the next answer."""
        self.aged: set[str] = set()
        """Nodes scored by a former mix: they are looked at when there is time."""

    def age(self) -> None:
        """The mix is another one."""
        self.aged = set(self._known)
        self._standings.clear()

    def refresh(self, limit: int | None = None) -> None:
        """Look again at the nodes that changed (at most `limit` of them)."""
        self._look(self.stale, limit)

    def renew(self, limit: int) -> None:
        """Look again at some of the nodes that aged."""
        self._look(self.aged, limit)

    def _look(self, names: set[str], limit: int | None) -> None:
        other = self.aged if names is self.stale else self.stale
        for _ in range(len(names) if limit is None else min(limit, len(names))):
            name = names.pop()
            other.discard(name)
            old = self._known.pop(name, None)
            node = self._nodes.get(name)
            new = self._standing(node) if node is not None else None
            if new is not None:
                self._known[name] = new
            if old == new:
                continue
            if old is not None:
                self._drop(name, old)
            if isinstance(new, int):
                self._ranked.new.append((-new, name))
            elif new is not None:
                self._short.new.append((new, name))
        self._ranked.settle()
        self._short.settle()

    def _drop(self, name: str, old: int | Room) -> None:
        if isinstance(old, int):
            self._ranked.remove((-old, name))
        else:
            self._short.remove((old, name))

    def _standing(self, node: NodeState) -> Standing:
        ask = self.shape.ask
        if not node.seen or (ask is not None and node.problem):
            return None
        if ask is None:
            return self._scorer.points(self.shape, self._scorer.node(node), ALONE)
        if node.books is None:
            return UNTOUCHED if _untouched(ask, node) else None
        present = self._scorer.node(node)
        if ask.selection.uuids:
            return self._stands(present, self._sit(ask, node.books))
        found = self._standings.get(present)
        if found is None:
            if len(self._standings) >= MEMO:
                self._standings.clear()
            found = self._standings[present] = self._stands(present, self._seated(ask, node.books))
        return found

    def _stands(self, present: Present | None, found: Seated | Room) -> int | Room:
        return self._scorer.points(self.shape, present, found) if isinstance(found, Seated) else found

    def _seated(self, ask: PodAsk, books: NodeBooks) -> Seated | Room:
        """On nodes with the same GPUs taken it sits alike, so most are looked up."""
        signature = books.signature()
        try:
            return self._memo[signature]
        except KeyError:
            if len(self._memo) >= MEMO:
                self._memo.clear()
            found = self._memo[signature] = self._sit(ask, books)
            return found

    def _sit(self, ask: PodAsk, books: NodeBooks) -> Seated | Room:
        choice = choose.choose(ask, books)
        if choice is None:
            return _room(ask, books)
        return self._scorer.seated(choice, books, spread=ask.selection.spread)

    def entries(self, among: Collection[str] | None = None) -> Iterator[tuple[int, str]]:
        """(negative score, node) of all that can take it, best first, of `among` only."""
        if among is None:
            return iter(self._ranked)
        if len(among) > FEW:
            return (entry for entry in self._ranked if entry[1] in among)
        points = ((name, self._known.get(name)) for name in among)
        return iter(sorted((-score, name) for name, score in points if isinstance(score, int)))

    def ranked(self, among: Collection[str] | None = None) -> Iterator[tuple[str, int]]:
        """(node, score), the same."""
        return ((name, -negative) for negative, name in self.entries(among))

    def points(self, name: str) -> int | None:
        """The score of one node, None if it cannot take it."""
        found = self._known.get(name)
        return found if isinstance(found, int) else None

    def nearest(self, excluded: int = 0) -> str | None:
        """The node that comes nearest of those that cannot take it; `excluded` are bits by node number."""
        return next((name for _, name in self._short if not excluded >> self._nodes[name].number & 1), None)


class Indexes:
    """The shapes asked lately. Least recently used ones go."""

    def __init__(self, nodes: Mapping[str, NodeState]) -> None:
        self._nodes = nodes
        self.scorer = Scorer(nodes)
        self._version = 0
        self._shapes: dict[Shape, ShapeIndex] = {}
        self._changed: set[str] = set()
        """Nodes of which the indexes have not heard yet that they changed."""

    def __len__(self) -> int:
        """How many shapes are kept."""
        return len(self._shapes)

    def stale(self, node: str) -> None:
        """The node changed."""
        self._changed.add(node)

    def of(self, shape: Shape) -> ShapeIndex:
        """The index of this shape, up to date."""
        self._catch_up()
        index = self._used(shape)
        index.refresh()
        return index

    def prepare(self, shape: Shape, nodes: int, *, aged: bool = False) -> bool:
        """Look at so many of the nodes that `of` would have to look at; False when none is left.

        `aged`: also at those scored by a former mix, for who compares their scores with scores of this moment.
        """
        self._catch_up()
        index = self._used(shape)
        index.refresh(nodes)
        if aged and not index.stale:
            index.renew(nodes)
        return bool(index.stale or (aged and index.aged))

    def _catch_up(self) -> None:
        """See which nodes changed, and whether the mix is another one."""
        if self._changed:
            for index in self._shapes.values():
                index.stale |= self._changed
            self._changed.clear()
        if self._version != self.scorer.version:
            self._version = self.scorer.version
            for index in self._shapes.values():
                index.age()

    def _used(self, shape: Shape) -> ShapeIndex:
        """The index of this shape, as the one used last."""
        index = self._shapes.pop(shape, None)
        if index is None:
            index = self._make(shape)
        self._shapes[shape] = index
        return index

    def _make(self, shape: Shape) -> ShapeIndex:
        if len(self._shapes) >= SHAPES:
            del self._shapes[next(iter(self._shapes))]
        return ShapeIndex(shape, self._nodes, self.scorer)

    def warm(self, shape: Shape) -> None:
        """Make the index of a shape that will be asked soon; `work` fills it."""
        if shape not in self._shapes:
            self._shapes[shape] = self._make(shape)

    def learn(self, nodes: int) -> bool:
        """While few asks came: take over what each says of the mix, and look at up to `nodes` nodes that aged by that.

        Returns whether there is more to look at. Later on that is done when there is time.
        """
        if not self.scorer.young:
            return False
        self.scorer.look()
        self._catch_up()
        self._renew(nodes)
        return any(index.aged for index in self._shapes.values())

    def work(self, nodes: int) -> None:
        """Look at up to this many nodes of one index that lags behind, and as many of one that aged, the last used."""
        self._catch_up()
        for index in self._shapes.values():
            if index.stale:
                index.refresh(nodes)
                break
        self._renew(nodes)

    def _renew(self, nodes: int) -> None:
        """Look at up to this many aged nodes of one index, the last used that has any."""
        for index in reversed(self._shapes.values()):
            if index.aged:
                index.renew(nodes)
                break

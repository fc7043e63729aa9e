"""The indexes of recently requested shapes, kept up to date between questions as far as there is time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from extender.engine.placement.index import FEW, TURN, ShapeIndex
from extender.engine.placement.roll import Roll
from extender.engine.placement.score import Scorer
from extender.engine.placement.seats import Seats
from extender.engine.placement.shape_scorer import ShapeScorer
from extender.engine.placement.uuid_index import NodesByUuid
from extender.engine.state.node_state import NodeState
from extender.engine.types.shape import Shape

BYTES, OF_NODE, OF_SHAPE = 100 << 20, 32, 4096
"""The memory of all indexes, and about the memory of one for each node and beside."""
LEAST_SHAPES, MOST_SHAPES = 128, 4096
"""Shapes kept at a time, whatever memory they take."""
BEHIND, BEHIND_FEW = 16, 128
"""Changes that wait until an index is asked; so many if questions are about few nodes, which are looked at alone."""


class _Asked(NamedTuple):
    """A question about few nodes, and the answer."""

    shape: Shape
    names: Sequence[str]
    now: tuple[int, int, int]
    """Counts of what changes the answer."""
    fits: Sequence[int]


class Indexes:
    """The indexes of recently requested shapes; the least recently used are dropped."""

    def __init__(self, nodes: Mapping[str, NodeState], scorer: Scorer | None = None) -> None:
        """`scorer`: that of other indexes with the same scores."""
        self.scorer = Scorer(nodes) if scorer is None else scorer
        self._roll, self._by_uuid, self._seats = Roll(nodes), NodesByUuid(nodes), Seats(self.scorer, nodes)
        self._shapes: dict[Shape, ShapeIndex] = {}
        self._rota: deque[Shape] = deque()
        """The shapes that `work` has yet to look at."""
        self._due = 0
        """`work` begins another round at this turn of the roll."""
        self._soon: dict[Shape, None] = {}
        """The shapes that will be requested soon."""
        self._asked: _Asked | None = None
        self.sampled = False
        """kube-scheduler asked about a part of the nodes last."""

    def stale(self, node: str) -> None:
        """The node was added, changed or removed."""
        self._roll.changed(node)
        self._by_uuid.changed(node)

    def of(self, shape: Shape) -> ShapeIndex:
        """The index of this shape, up to date; for a shape that names its GPUs one of the nodes that have these."""
        named = self._by_uuid.named(shape)
        index = self._used(shape) if named is None else self._new(shape, Roll(named))
        index.refresh()
        return index

    def among(self, shape: Shape, names: Sequence[str]) -> Iterable[tuple[str, int]]:
        """(node, score) of those of these nodes that fit, the best first."""
        if len(names) > FEW or self._by_uuid.named(shape) is not None:
            return self.of(shape).ranked(frozenset(names))
        return self._used(shape).best(self._few(shape, names))

    def suffice(self, shape: Shape, names: Sequence[str]) -> bool:
        """Whether few nodes have changed, or one of these fits: then filter needs no look at all nodes."""
        if len(names) > FEW:
            return False
        if self._by_uuid.named(shape) is not None or self._used(shape).behind_at_most(len(names)):
            return True
        return bool(self._few(shape, names))

    def _few(self, shape: Shape, names: Sequence[str]) -> Sequence[int]:
        """Those of few nodes that fit. The last answer is remembered, as `suffice` asks before `among`."""
        asked, now = self._asked, (self._roll.turn, self._roll.epoch, self.scorer.version)
        if asked is None or asked.names is not names or asked.shape != shape or asked.now != now:
            asked = self._asked = _Asked(shape, names, now, self._used(shape).few(names))
        return asked.fits

    def prepare(self, shape: Shape, looks: int, *, aged: bool = False) -> bool:
        """Do a part of the work of `of`; return whether more is left. `aged`: also for scores of a former mix."""
        if self._by_uuid.named(shape) is not None:
            return False
        index = self._used(shape)
        index.refresh(looks)
        if aged and not index.stale:
            index.renew(looks)
        return index.stale or (aged and index.aged)

    def _used(self, shape: Shape) -> ShapeIndex:
        """The index of this shape, marked as used last."""
        index = self._shapes.pop(shape, None)
        if index is None:
            while len(self._shapes) >= self.most:
                del self._shapes[next(iter(self._shapes))]
            index = self._new(shape, self._roll)
        self._shapes[shape] = index
        return index

    def _new(self, shape: Shape, roll: Roll) -> ShapeIndex:
        return ShapeIndex(roll, self.scorer, ShapeScorer(shape, self.scorer, self._seats))

    @property
    def most(self) -> int:
        """How many shapes are kept at a time: fewer where there are more nodes."""
        return min(MOST_SHAPES, max(LEAST_SHAPES, BYTES // (OF_SHAPE + OF_NODE * len(self._roll))))

    def warm(self, shape: Shape) -> None:
        """Have `ready` do the work for a shape that will be requested soon, of all nodes."""
        if not self.sampled and len(self._soon) < self.most and self._by_uuid.named(shape) is None:
            self._soon[shape] = None

    def ready(self, looks: float) -> bool:
        """Bring the shapes of `warm` up to date; return whether there is more to do."""
        while self._soon and looks > 0:
            shape = next(iter(self._soon))
            index = self._used(shape)
            looks = index.refresh(looks) - TURN
            if not index.stale:
                del self._soon[shape]
        return bool(self._soon)

    def learn(self, looks: int) -> bool:
        """Adopt another mix, a slice at a time, and renew scores while it is young; return whether more is left."""
        if not self.scorer.mix.young:
            if self.scorer.adopting:
                self.scorer.look()
            return self.scorer.adopting
        self.scorer.look()
        self.renew(looks)
        return self.scorer.adopting or any(index.aged for index in self._shapes.values())

    def work(self, looks: float) -> float:
        """Bring indexes that are behind up to date, in turn; return what is left of the looks."""
        if not self._rota and self._roll.turn >= self._due:
            self._due = self._roll.turn + self._behind  # no globs of UUIDs: the next such pod has other ones
            self._rota.extend(shape for shape in self._shapes if shape.ask is None or not shape.ask.selection.uuids)
        left = looks
        while self._rota and left > 0:
            index = self._shapes.get(self._rota[0])
            if index is not None and not index.behind_at_most(self._behind):
                left = index.refresh(left) - TURN
                if index.stale:
                    break  # it goes on with this one
            self._rota.popleft()
        return left

    @property
    def _behind(self) -> int:
        return BEHIND_FEW if self.sampled else BEHIND

    def renew(self, looks: int) -> None:
        """Look at aged nodes of one index, the last used one that has any."""
        for index in reversed(self._shapes.values()):
            if index.aged:
                index.renew(looks)
                break

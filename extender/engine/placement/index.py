"""The nodes ranked for one shape of ask, kept up to date by what changed.

A decision costs what changed since the last one of its shape, not the size of the cluster. What an index knows of a
node are 16 bytes, so all shapes of a busy cluster are kept.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Collection, Iterator, Mapping

from extender.engine.placement.ranking import NOWHERE, SHORT, ZERO, Ranking
from extender.engine.placement.roll import Roll
from extender.engine.placement.score import Scorer
from extender.engine.placement.seats import Seats
from extender.engine.placement.shape_scorer import ShapeScorer
from extender.engine.placement.uuid_index import NodesByUuid, UuidIndex
from extender.engine.state.node_state import NodeState
from extender.engine.types.shape import Shape

BYTES, OF_NODE, OF_SHAPE = 80 << 20, 16, 4096
"""What all indexes may take, and about what one takes for each node and beside."""
LEAST_SHAPES, MOST_SHAPES = 128, 4096
"""Shapes of ask kept at a time, whatever they take."""
FEW = 512
"""So many nodes are looked up one by one rather than found in the ranking."""
TURN = 4
"""What it costs to begin with another shape, in looks at a node that is like one that is known."""
SETTLED, NOTED = 10, 20
"""So many changes are put in their places, and so many places to look at are noted, at the price of one look."""


class ShapeIndex:
    """All nodes that can take one shape, best first, and those that cannot, nearest first; equals by name."""

    def __init__(self, nodes: Mapping[str, NodeState], roll: Roll, scorer: Scorer, scores: ShapeScorer) -> None:
        """`scores`: of the shape."""
        self._nodes, self._roll, self._scorer, self._scores = nodes, roll, scorer, scores
        self._known = array("i")
        """How each place stands."""
        self._ranking = Ranking()
        self._epoch = roll.epoch
        """In which the places and ranks were given."""
        self._turn = 0
        """Changes up to this one are looked at, or among those to look at."""
        self._stale: list[int] = []
        """Places to look at before the next answer, the last first."""
        self._mix = scorer.version
        self._renewed = 0
        """Places below this one were looked at since the mix is what it is."""
        self._aging = False
        """Others may stand as in a former mix: they are looked at when there is time."""

    @property
    def stale(self) -> bool:
        """Whether nodes changed that were not looked at."""
        return bool(self._stale) or self._turn != self._roll.turn or not self._ranking.settled

    @property
    def aged(self) -> bool:
        """Whether nodes stand as in a former mix."""
        return self._aging or self._mix != self._scorer.version

    def refresh(self, limit: float = math.inf) -> float:
        """Look again at the nodes that changed; `limit`: the work for it, in looks. Returns what is left of that."""
        self._take_news()
        while limit > 0:
            limit = self._look(self._stale, limit)
            if self._stale or limit <= 0:
                break
            limit -= self._ranking.settle() // SETTLED
            if self._turn == self._roll.turn:
                self._scores.forget()
                break
            if limit > 0:
                self._stale, self._turn = self._roll.since(self._turn), self._roll.turn
                limit -= len(self._stale) // NOTED
        return limit

    def renew(self, limit: int) -> None:
        """Look again at some of the nodes that stand as in a former mix."""
        self._take_news()
        if not self._aging:
            return
        self._ranking.settle()
        end = min(len(self._known), self._renewed + limit)
        places = [place for place in range(end - 1, self._renewed - 1, -1) if self._known[place] != NOWHERE]
        self._look(places, limit)
        self._ranking.settle()
        self._renewed = places[-1] if places else end
        if self._renewed >= len(self._known):
            self._aging = False
            self._scores.forget()

    def _take_news(self) -> None:
        """See whether the mix is another one, or all nodes are numbered anew."""
        if self._mix != self._scorer.version:
            self._mix, self._renewed, self._aging = self._scorer.version, 0, True
            self._scores.forget()
        if self._epoch != self._roll.epoch:
            self._renumber()

    def _renumber(self) -> None:
        before, self._known = self._known, array("i", [NOWHERE] * len(self._roll))
        moved, self._renewed = self._roll.moved, 0
        if self._epoch == self._roll.epoch - 1:
            for place, now in moved.items():
                if place < len(before):
                    self._known[now] = before[place]
            self._stale = [moved[place] for place in self._stale if place in moved]
        else:
            self._stale, self._turn = [], 0
        there = ((standing, place) for place, standing in enumerate(self._known) if standing != NOWHERE)
        self._ranking = Ranking((standing, self._roll.ranks[place]) for standing, place in there)
        self._epoch = self._roll.epoch

    def _look(self, places: list[int], limit: float) -> float:
        """Look at these places, the last first, none of them twice until the ranking is settled.

        `limit`: the work for it; returns what is left of that, and in `places` those that are.
        """
        known, nodes, ranks, change = self._known, self._roll.nodes, self._roll.ranks, self._ranking.change
        if len(known) < len(nodes):
            known.extend([NOWHERE] * (len(nodes) - len(known)))
        scores, began = self._scores, self._scores.spent
        while places and limit > scores.spent - began:
            place = places.pop()
            node, old = nodes[place], known[place]
            new = scores.of(node) if node is not None and node.seen else NOWHERE
            limit -= 1
            if old != new:
                known[place] = new
                change(ranks[place], old, new)
        return limit - (scores.spent - began)

    def entries(self, among: Collection[str] | None = None) -> Iterator[tuple[int, str]]:
        """(negative score, node) of all that can take it at this moment, best first, of `among` only."""
        ranked, fitting = self._roll.ranked, self._ranking.fitting()
        if among is None or len(among) > FEW:
            named = ((score, ranked.get(rank)) for score, rank in fitting)
            return ((score, name) for score, name in named if name is not None and (among is None or name in among))
        points = ((name, self.points(name)) for name in among)
        return iter(sorted((-score, name) for name, score in points if score is not None))

    def ranked(self, among: Collection[str] | None = None) -> Iterator[tuple[str, int]]:
        """(node, score), the same."""
        return ((name, -negative) for negative, name in self.entries(among))

    def points(self, name: str) -> int | None:
        """The score of one node, None if it cannot take it."""
        place = self._roll.place(name)
        standing = self._known[place] if place is not None else NOWHERE
        return ZERO - standing if standing != NOWHERE and standing < SHORT else None

    def nearest(self, excluded: int = 0) -> str | None:
        """The node that comes nearest of those that cannot take it; `excluded` are bits by node number."""
        names = (self._roll.ranked[rank] for rank in self._ranking.short())
        return next((name for name in names if not excluded >> self._nodes[name].number & 1), None)


class Indexes:
    """The shapes asked lately. Least recently used ones go."""

    def __init__(self, nodes: Mapping[str, NodeState], scorer: Scorer | None = None) -> None:
        """`scorer`: that of other indexes, of which these are a part."""
        self._nodes = nodes
        self.scorer = Scorer(nodes) if scorer is None else scorer
        self._roll, self._by_uuid, self._seats = Roll(nodes), NodesByUuid(nodes), Seats(self.scorer, nodes)
        self._shapes: dict[Shape, ShapeIndex] = {}
        self._rota: deque[Shape] = deque()
        """Those to be brought up to date when there is time, in turn."""
        self._soon: dict[Shape, None] = {}
        """Those that will be asked soon."""

    def __len__(self) -> int:
        """How many shapes are kept."""
        return len(self._shapes)

    def stale(self, node: str) -> None:
        """The node changed, came or is gone."""
        self._roll.changed(node)
        self._by_uuid.changed(node)

    def of(self, shape: Shape) -> ShapeIndex | UuidIndex:
        """The index of this shape, up to date."""
        named = self._by_uuid.named(shape)
        if named is not None:
            return UuidIndex(named, self._shape_scorer(shape))
        index = self._used(shape)
        index.refresh()
        return index

    def prepare(self, shape: Shape, looks: int, *, aged: bool = False) -> bool:
        """Do so much of the work that `of` would have to do; False when none is left.

        `aged`: also look at nodes scored by a former mix, for who compares their scores with scores of this moment.
        """
        if self._by_uuid.named(shape) is not None:
            return False
        index = self._used(shape)
        index.refresh(looks)
        if aged and not index.stale:
            index.renew(looks)
        return index.stale or (aged and index.aged)

    def _used(self, shape: Shape) -> ShapeIndex:
        """The index of this shape, as the one used last."""
        index = self._shapes.pop(shape, None)
        if index is None:
            while len(self._shapes) >= self.most:
                del self._shapes[next(iter(self._shapes))]
            index = ShapeIndex(self._nodes, self._roll, self.scorer, self._shape_scorer(shape))
        self._shapes[shape] = index
        return index

    def _shape_scorer(self, shape: Shape) -> ShapeScorer:
        return ShapeScorer(shape, self.scorer, self._seats)

    @property
    def most(self) -> int:
        """How many shapes are kept at a time: less where there are more nodes."""
        return min(MOST_SHAPES, max(LEAST_SHAPES, BYTES // (OF_SHAPE + OF_NODE * len(self._roll))))

    def warm(self, shape: Shape) -> None:
        """The shape will be asked soon; `ready` does for it what `of` would have to."""
        if len(self._soon) < self.most and self._by_uuid.named(shape) is None:
            self._soon[shape] = None

    def ready(self, looks: float) -> bool:
        """Bring those that will be asked soon up to date; returns whether there is more to do."""
        while self._soon and looks > 0:
            shape = next(iter(self._soon))
            index = self._used(shape)
            looks = index.refresh(looks) - TURN
            if not index.stale:
                del self._soon[shape]
        return bool(self._soon)

    def learn(self, looks: int) -> bool:
        """Take over another mix, a part at a time; while few asks came, also look at nodes that aged by that.

        Returns whether there is more to do. Later on nodes that aged are looked at when there is time.
        """
        if not self.scorer.young:
            if self.scorer.adopting:
                self.scorer.look()
            return self.scorer.adopting
        self.scorer.look()
        self.renew(looks)
        return self.scorer.adopting or any(index.aged for index in self._shapes.values())

    def work(self, looks: float) -> float:
        """Bring the next indexes that lag behind up to date; returns what is left of these looks if none does.

        Those of pods with globs of UUIDs are left alone: the next such pod has others.
        """
        if not self._rota:
            self._rota.extend(shape for shape in self._shapes if shape.ask is None or not shape.ask.selection.uuids)
        left = looks
        while self._rota and left > 0:
            index = self._shapes.get(self._rota[0])
            if index is not None and index.stale:
                left = index.refresh(left) - TURN
                if index.stale:
                    break  # it goes on with this one
            self._rota.popleft()
        return left

    def renew(self, looks: int) -> None:
        """Look at aged nodes of one index, the last used that has any."""
        for index in reversed(self._shapes.values()):
            if index.aged:
                index.renew(looks)
                break

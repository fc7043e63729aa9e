"""The nodes ranked for one shape of request, kept up to date by their changes.

A decision costs as much as what changed since the last one of its shape, or as the few nodes that are asked about. An
index takes 16 bytes for each node, so all shapes of a busy cluster are kept.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence

from extender.engine.placement.ranking import NOWHERE, SHORT, ZERO, Ranking
from extender.engine.placement.roll import Roll
from extender.engine.placement.score import Scorer
from extender.engine.placement.shape_scorer import ShapeScorer
from extender.engine.state.node_state import NodeState

FEW = 512
"""At most so many nodes are looked up one by one and not in the ranking."""
TURN = 4
"""The cost of beginning with another shape, in looks at a node whose state is known."""
SETTLED, NOTED = 10, 20
"""So many changes are sorted in, and so many places are noted, at the cost of one look."""


class ShapeIndex:
    """All nodes that fit one shape, the best first, and the others, the nearest first; equal nodes by name.

    `ranked` needs a refresh first. `few` answers even if the index is behind. Scores of a former mix are renewed later.
    """

    def __init__(self, nodes: Mapping[str, NodeState], roll: Roll, scorer: Scorer, scores: ShapeScorer) -> None:
        self._nodes, self._roll, self._scorer, self._scores = nodes, roll, scorer, scores
        self._known = array("i")
        """The standings by place."""
        self._ranking = Ranking()
        self._epoch = roll.epoch
        self._turn = 0
        """Changes up to this turn were looked at, or are in `_stale`."""
        self._stale: list[int] = []
        """Places to look at before the next answer, from the end."""
        self._mix = scorer.version
        self._renewed = 0
        """Places below this one were looked at since the mix was adopted."""
        self._aging = False
        """Whether other places may have standings of a former mix."""

    @property
    def stale(self) -> bool:
        """Whether nodes changed that were not looked at."""
        return bool(self._stale) or self._turn != self._roll.turn or not self._ranking.settled

    @property
    def aged(self) -> bool:
        """Whether nodes may have standings of a former mix."""
        return self._aging or self._mix != self._scorer.version

    def refresh(self, limit: float = math.inf) -> float:
        """Look at the nodes that changed, within a limit of looks; return what is left of it."""
        self._catch_up()
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
        """Look at some of the nodes with standings of a former mix."""
        self._catch_up()
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

    def _catch_up(self) -> None:
        """Notice another mix, and another numbering of the nodes."""
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
        """Look at these places from the end, within a limit; return what is left of it, and in `places` what is left.

        No place may be given twice until the ranking is settled.
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

    def ranked(self, among: Collection[str] | None = None) -> Iterator[tuple[str, int]]:
        """(node, score) of all nodes in `among` that fit, the best first."""
        ranked, fitting = self._roll.ranked, self._ranking.fitting()
        if among is None or len(among) > FEW:
            named = ((ranked.get(rank), -negative) for negative, rank in fitting)
            return ((name, score) for name, score in named if name is not None and (among is None or name in among))
        places, known, fits = self._roll.places, self._known, []
        for name in among:
            place = places.get(name)
            if place is not None and NOWHERE != known[place] < SHORT:
                fits.append((known[place], name))
        fits.sort()
        return ((name, ZERO - standing) for standing, name in fits)

    def few(self, names: Sequence[str]) -> list[tuple[str, int]]:
        """(node, score) of those of these nodes that fit, the best first.

        It looks at these nodes and at as many changed ones, so that the index catches up over several questions.
        """
        self.refresh(max(len(names), TURN))
        if not self.stale:
            return list(self.ranked(names))
        ranks, places = self._roll.ranks, self._roll.places
        found = [(standing, name) for name in names if NOWHERE < (standing := self._standing(name)) < SHORT]
        self._forget_states()
        fits = sorted((standing, ranks[places[name]], name) for standing, name in found)
        return [(name, ZERO - standing) for standing, _, name in fits]

    def suffice(self, names: Sequence[str]) -> bool:
        """Whether few nodes have changed, or one of these fits: then filter needs no look at all nodes."""
        some = self.behind_at_most(len(names)) or any(NOWHERE < self._standing(name) < SHORT for name in names)
        self._forget_states()
        return some

    def behind_at_most(self, changes: int) -> bool:
        """Whether at most so many nodes have changed that were not looked at."""
        if self._epoch != self._roll.epoch:
            return False  # a refresh numbers the nodes again
        self._catch_up()
        return len(self._stale) + (self._roll.turn - self._turn if self._turn else len(self._roll)) <= changes

    def _standing(self, name: str) -> int:
        node = self._nodes.get(name)
        return self._scores.of(node) if node is not None and node.seen else NOWHERE

    def _forget_states(self) -> None:
        """Forget the states of nodes that were looked at out of turn, unless a refresh under way will."""
        if not self._stale:
            self._scores.forget()

    def nearest(self, excluded: int = 0) -> str | None:
        """The nearest of the nodes that do not fit, except `excluded` ones (bits by node number)."""
        names = (self._roll.ranked[rank] for rank in self._ranking.short())
        return next((name for name in names if not excluded >> self._nodes[name].number & 1), None)

"""The nodes ranked for one shape of request, kept up to date by their changes.

A decision costs as much as what changed since the last one of its shape, or as the few nodes that are asked about. An
index takes 25 to 33 bytes for each node, so all shapes of a busy cluster are kept.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from extender.engine.placement.ranking import NOWHERE, Ranking, number, rank_and_score, renumbered, sorted_fits
from extender.engine.placement.roll import Roll
from extender.engine.placement.score import Scorer
from extender.engine.placement.shape_scorer import ShapeScorer

LISTED, STALE = 1, 2
"""A place that `refresh` will look at; STALE if nobody has looked at it since its node changed."""
UNSORTED = 64
"""So many changes wait until the ranking is put in order."""
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

    def __init__(self, roll: Roll, scorer: Scorer, scores: ShapeScorer) -> None:
        self._roll, self._scorer, self._scores = roll, scorer, scores
        self._known, self._sorted = array("q"), array("q")
        """The numbers by place: the last known ones, and those in the ranking."""
        self._ranking = Ranking()
        self._unsorted: list[int] = []
        """Places whose numbers have changed since the ranking was put in order."""
        self._epoch = roll.epoch
        self._turn = 0
        """Changes up to this turn were looked at, or are in `_listed`."""
        self._listed: list[int] = []
        """Places to look at before the ranking is read, from the end; each is there once."""
        self._marks = bytearray()
        """By place: LISTED, STALE or 0."""
        self._mix = scorer.version
        self._renewed = 0
        """Places below this one were looked at since the mix was adopted."""
        self._aging = False
        """Whether other places may have standings of a former mix."""

    @property
    def stale(self) -> bool:
        """Whether nodes changed that were not looked at."""
        return bool(self._listed or self._unsorted) or self._turn != self._roll.turn

    @property
    def aged(self) -> bool:
        """Whether nodes may have standings of a former mix."""
        return self._aging or self._mix != self._scorer.version

    def refresh(self, limit: float = math.inf) -> float:
        """Look at the nodes that changed, within a limit of looks; return what is left of it."""
        self._catch_up()
        while limit > 0:
            looked, limit = self._look(self._listed, limit)
            self._unlist(looked)
            if self._listed or limit <= 0:
                break
            limit -= self._settle() // SETTLED
            if self._turn == self._roll.turn:
                self._scores.forget()
                break
            if limit > 0:
                limit -= self._note_changes() // NOTED
        return limit

    def renew(self, limit: int) -> None:
        """Look at some of the nodes with standings of a former mix."""
        self._catch_up()
        if not self._aging:
            return
        end = min(len(self._known), self._renewed + limit)
        places = [place for place in range(end - 1, self._renewed - 1, -1) if self._known[place] != NOWHERE]
        looked, _ = self._look(places, limit)
        self._settle()
        self._renewed = places[-looked - 1] if looked < len(places) else end
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
        count, moved = len(self._roll), self._roll.moved
        before, self._known = self._known, array("q", [NOWHERE] * count)
        listed: list[int] = []
        if self._epoch == self._roll.epoch - 1:
            for place, now in moved.items():
                if place < len(before) and before[place] != NOWHERE:
                    self._known[now] = renumbered(before[place], self._roll.ranks[now])
            listed = [moved[place] for place in self._listed if place in moved and self._marks[place] == STALE]
        else:
            self._turn = 0
        self._listed, self._marks, self._renewed = listed, bytearray(count), 0
        for place in listed:
            self._marks[place] = STALE
        self._ranking = Ranking(each for each in self._known if each != NOWHERE)
        self._sorted, self._unsorted = array("q", self._known), []
        self._epoch = self._roll.epoch

    def _note_changes(self) -> int:
        """List the places that have changed; return how many they are."""
        if self._turn == self._roll.turn:
            return 0
        since, self._turn = self._turn, self._roll.turn
        if more := len(self._roll) - len(self._known):
            nowhere = [NOWHERE] * more
            self._known.extend(nowhere)
            self._sorted.extend(nowhere)
            self._marks.extend(bytes(more))
        if not since:
            self._listed, self._marks = list(reversed(range(len(self._known)))), bytearray((STALE,)) * len(self._known)
            return len(self._listed)
        places, marks = self._roll.since(since), self._marks
        self._listed += [place for place in places if not marks[place]]
        for place in places:
            marks[place] = STALE
        return len(places)

    def _look(self, places: Sequence[int], limit: float) -> tuple[int, float]:
        """Look at these places from the end, within a limit; return how many were looked at, and what is left of it."""
        known, nodes, ranks, unsorted = self._known, self._roll.nodes, self._roll.ranks, self._unsorted
        scores, began, looked = self._scores, self._scores.spent, 0
        for place in reversed(places):
            if limit - looked <= scores.spent - began:
                break
            node = nodes[place]
            now = number(scores.of(node), ranks[place]) if node is not None and node.seen else NOWHERE
            looked += 1
            if known[place] != now:
                known[place] = now
                unsorted.append(place)
        return looked, limit - looked - (scores.spent - began)

    def _unlist(self, count: int) -> None:
        """Drop the last places of the list."""
        first = len(self._listed) - count
        for place in self._listed[first:]:
            self._marks[place] = 0
        del self._listed[first:]

    def _settle(self) -> int:
        """Put the ranking in order; return how many numbers came or went."""
        known, there = self._known, self._sorted
        for place in self._unsorted:
            if there[place] != known[place]:
                self._ranking.change(there[place], known[place])
                there[place] = known[place]
        self._unsorted.clear()
        return self._ranking.settle()

    def ranked(self, among: Collection[str] | None = None) -> Iterator[tuple[str, int]]:
        """(node, score) of all nodes in `among` that fit, the best first."""
        ranked = self._roll.ranked
        if among is None or len(among) > FEW:
            named = ((ranked.get(rank), score) for rank, score in map(rank_and_score, self._ranking.fitting()))
            return ((name, score) for name, score in named if name is not None and (among is None or name in among))
        return self.best(self._fits(self._places(among)))

    def few(self, names: Sequence[str]) -> Sequence[int]:
        """Those of these nodes that fit, the best first, for `best`. It looks at no other node."""
        self._catch_up()
        self._note_changes()
        places, marks = self._places(names), self._marks
        if STALE in _each(marks, places):
            stale = [place for place in places if marks[place] == STALE]
            for place in stale:
                marks[place] = LISTED
            self._look(stale, math.inf)
            self._scores.forget()
        if len(self._unsorted) > UNSORTED:
            self._settle()
        return self._fits(places)

    def _places(self, names: Collection[str]) -> Sequence[int]:
        places = self._roll.places
        try:
            return _each(places, names)
        except KeyError:  # kube-scheduler knows a node before us
            return [places[name] for name in names if name in places]

    def _fits(self, places: Sequence[int]) -> list[int]:
        """The numbers of those of these places that fit, the best first."""
        return sorted_fits(_each(self._known, places))

    def best(self, fits: Iterable[int]) -> Iterator[tuple[str, int]]:
        """(node, score) of such numbers."""
        ranked = self._roll.ranked
        return ((ranked[rank], score) for rank, score in map(rank_and_score, fits))

    def behind_at_most(self, changes: int) -> bool:
        """Whether at most so many nodes have changed that were not looked at."""
        if self._epoch != self._roll.epoch:
            return False  # a refresh numbers the nodes again
        self._catch_up()
        return len(self._listed) + (self._roll.turn - self._turn if self._turn else len(self._roll)) <= changes

    def nearest(self, excluded: int = 0) -> str | None:
        """The nearest of the nodes that do not fit, except `excluded` ones (bits by node number)."""
        roll = self._roll
        for name in map(roll.ranked.__getitem__, self._ranking.short()):
            node = roll.nodes[roll.places[name]]
            if node is not None and not excluded >> node.number & 1:
                return name
        return None


def _each(table: Any, keys: Collection[str] | Collection[int]) -> Sequence[int]:
    """The numbers that the table has at each of these keys; KeyError if it lacks one. It is read in one call."""
    return itemgetter(*keys)(table) if len(keys) > 1 else [table[key] for key in keys]

"""The nodes in numbered places, by name, and in the order in which they changed: each index reads on from where it was.

A change costs the same however many indexes there are, and an index that nobody asks costs nothing. Numbers are given
out with gaps, so that a node that comes finds one between its neighbours. Where there is none, or when many nodes are
gone, all are numbered anew, which each index takes in when it is asked next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from sortedcontainers import SortedList

from extender.engine.state.node_state import NodeState

RANK_BITS = 33
RANKS = 1 << RANK_BITS
APART, NEAR = 1 << 18, 1 << 10
"""How far apart nodes are ranked that come in order, and one that comes between two from the one before it, at most."""
GONE = 1024
"""Places of nodes that are gone are given up when there are so many of them, and as many as there are nodes."""


class Roll:
    """All nodes: a place for each, and a rank by its name."""

    def __init__(self, nodes: Mapping[str, NodeState]) -> None:
        self._nodes = nodes
        self.turn = 1
        """Counts the changes."""
        self.epoch = 0
        """Counts how often all were numbered anew."""
        self.moved: dict[int, int] = {}
        """The places of the last epoch, and which they are now."""
        self._number(sorted(nodes))
        self._changed_at: OrderedDict[int, int] = OrderedDict.fromkeys(range(len(self.names)), 1)
        """By place, the last to change last."""

    def _number(self, ordered: list[str]) -> None:
        self.names = ordered
        """By place."""
        apart = min(APART, RANKS // (2 * len(ordered) + 2))
        self.ranks = [RANKS // 4 + place * apart for place in range(len(ordered))]
        """By place."""
        self.ranked = dict(zip(self.ranks, ordered, strict=True))
        """The nodes by their ranks."""
        self.nodes = [self._nodes.get(name) for name in ordered]
        """By place, None where it is gone."""
        self._places = {name: place for place, name in enumerate(ordered)}
        self._by_name: SortedList[str] = SortedList(ordered)

    def __len__(self) -> int:
        """How many places there are."""
        return len(self.names)

    def place(self, name: str) -> int | None:
        """Of a node, None if it is not there."""
        return self._places.get(name)

    def changed(self, name: str) -> None:
        """The node changed, came or is gone."""
        place = self._places.get(name)
        if name not in self._nodes:
            if place is None:
                return
            self._leave(name, place)
        elif place is None:
            place = self._enter(name)
        self.nodes[place] = self._nodes.get(name)
        self.turn += 1
        self._changed_at[place] = self.turn
        self._changed_at.move_to_end(place)

    def _leave(self, name: str, place: int) -> None:
        del self._places[name], self.ranked[self.ranks[place]]
        self._by_name.remove(name)

    def _enter(self, name: str) -> int:
        rank = self._rank(name)
        if rank is None or len(self.names) > 2 * len(self._places) + GONE:
            self._number_anew()
            rank = self._rank(name)
            assert rank is not None
        place = self._places[name] = len(self.names)
        self.names.append(name)
        self.nodes.append(None)
        self.ranks.append(rank)
        self.ranked[rank] = name
        self._by_name.add(name)
        return place

    def _rank(self, name: str) -> int | None:
        """One between those of its neighbours, None if there is none."""
        at = self._by_name.bisect_left(name)
        before = self.ranks[self._places[self._by_name[at - 1]]] if at else -1
        after = self.ranks[self._places[self._by_name[at]]] if at < len(self._by_name) else RANKS
        if before < 0:
            return max(after - APART, after // 2) if after else None
        if after == RANKS:
            return before + APART if before + APART < RANKS else None
        gap = after - before
        return before + min(gap // 2, NEAR) if gap > 1 else None

    def _number_anew(self) -> None:
        """Number those that are there without gaps in places, and with even ones in ranks."""
        before, changed_at = self._places, self._changed_at
        self._number(list(self._by_name))
        self.epoch += 1
        self.moved = {place: self._places[name] for name, place in before.items()}
        self._changed_at = OrderedDict(
            (self.moved[place], at) for place, at in changed_at.items() if place in self.moved
        )

    def since(self, turn: int) -> list[int]:
        """The places of nodes that changed after this turn, the last to change first."""
        found = []
        for place, at in reversed(self._changed_at.items()):
            if at <= turn:
                break
            found.append(place)
        return found

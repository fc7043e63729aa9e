"""The nodes in numbered places, ranked by name, and the order in which they changed: each index reads on in that.

A change costs the same for any number of indexes, and an index that is not asked costs nothing. Ranks have gaps for
nodes that are added between others. If there is no gap, or many nodes are gone, all nodes are numbered again, which
each index adopts when it is asked next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from sortedcontainers import SortedList

from extender.engine.state.node_state import NodeState

RANK_BITS = 33
RANKS = 1 << RANK_BITS
APART, NEAR = 1 << 18, 1 << 10
"""The gaps between ranks: of nodes numbered in order, and at most to the node before one that comes between two."""
GONE = 1024
"""All nodes are numbered again when so many places of gone nodes exceed the number of nodes."""


class Roll:
    """A place for each node, and a rank by its name."""

    def __init__(self, nodes: Mapping[str, NodeState]) -> None:
        self._nodes = nodes
        self.turn = 1
        """Counts changes of nodes."""
        self.epoch = 0
        """Counts how often all nodes were numbered again."""
        self.moved: dict[int, int] = {}
        """The place of the last epoch → the place now."""
        self._number(sorted(nodes))
        self._changed_at: OrderedDict[int, int] = OrderedDict.fromkeys(range(len(self.names)), 1)
        """Place → turn, the last change last."""

    def _number(self, ordered: list[str]) -> None:
        """Make the tables: `places` by name; `names`, `ranks` and `nodes` (None if gone) by place; `ranked` by rank."""
        self.names = ordered
        apart = min(APART, RANKS // (2 * len(ordered) + 2))
        self.ranks = [RANKS // 4 + place * apart for place in range(len(ordered))]
        self.ranked = dict(zip(self.ranks, ordered, strict=True))
        self.nodes = [self._nodes.get(name) for name in ordered]
        self.places = {name: place for place, name in enumerate(ordered)}
        self._by_name: SortedList[str] = SortedList(ordered)

    def __len__(self) -> int:
        return len(self.names)

    def changed(self, name: str) -> None:
        place = self.places.get(name)
        if name not in self._nodes:
            if place is None:
                return
            del self.places[name], self.ranked[self.ranks[place]]
            self._by_name.remove(name)
        elif place is None:
            place = self._enter(name)
        self.nodes[place] = self._nodes.get(name)
        self.turn += 1
        self._changed_at[place] = self.turn
        self._changed_at.move_to_end(place)

    def _enter(self, name: str) -> int:
        rank = self._rank(name)
        if rank is None or len(self.names) > 2 * len(self.places) + GONE:
            self._number_again()
            rank = self._rank(name)
            assert rank is not None
        place = self.places[name] = len(self.names)
        self.names.append(name)
        self.nodes.append(None)
        self.ranks.append(rank)
        self.ranked[rank] = name
        self._by_name.add(name)
        return place

    def _rank(self, name: str) -> int | None:
        """A rank between those of the neighbours, None if there is none."""
        at = self._by_name.bisect_left(name)
        before = self.ranks[self.places[self._by_name[at - 1]]] if at else -1
        after = self.ranks[self.places[self._by_name[at]]] if at < len(self._by_name) else RANKS
        if before < 0:
            return max(after - APART, after // 2) if after else None
        if after == RANKS:
            return before + APART if before + APART < RANKS else None
        gap = after - before
        return before + min(gap // 2, NEAR) if gap > 1 else None

    def _number_again(self) -> None:
        """Number the present nodes without gaps in places, and with even gaps in ranks."""
        before, changed_at = self.places, self._changed_at
        self._number(list(self._by_name))
        self.epoch += 1
        self.moved = {place: self.places[name] for name, place in before.items()}
        self._changed_at = OrderedDict(
            (self.moved[place], at) for place, at in changed_at.items() if place in self.moved
        )

    def since(self, turn: int) -> list[int]:
        """The places of nodes that changed after this turn, the last change first."""
        places = []
        for place, at in reversed(self._changed_at.items()):
            if at <= turn:
                break
            places.append(place)
        return places

"""Nodes in order, as numbers: eight bytes for each, so that hundreds of rankings of thousands of nodes are kept.

A number holds how a node stands and its rank by name. Of a standing, what comes first is less: scores, the best first,
then room that does not suffice, the most first.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import filterfalse

from extender.engine.placement.roll import RANK_BITS, RANKS

SHORT = 1 << 29
"""Standings from here on are of nodes that the ask does not fit on; all are below twice this: they fit in 32 bits."""
ZERO = 1 << 28
"""The standing of score 0."""
NOWHERE = -1
"""The standing of a node that is out of the question."""
MEM, SLICES, WHOLLY = 18, 7, 4
"""Bits for how much is free; of more than they hold all is alike."""
FEW, SHARE = 16, 6
"""So many numbers, or one for so many that are there, are put in their places one by one."""

Room = tuple[int, int, int]
"""How much is free where an ask does not fit, what is asked first, all negative so that the most sorts first."""


def of_score(score: int) -> int:
    """The standing of a node with this score, of which more is better."""
    standing = ZERO - score
    return standing if 0 <= standing < SHORT else 0 if standing < 0 else SHORT - 1


def of_room(room: Room) -> int:
    """The standing of a node that falls short."""
    mem, slices, wholly = (
        max(0, (1 << bits) - 2 + free) for bits, free in zip((MEM, SLICES, WHOLLY), room, strict=True)
    )
    return SHORT | mem << (SLICES + WHOLLY) | slices << WHOLLY | wholly


class Ranking:
    """Pairs of a standing and a rank, in order. What changes takes its place when somebody looks, or in `settle`."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._kept = array("q", sorted(standing << RANK_BITS | rank for standing, rank in pairs))
        self._new: list[int] = []
        self._gone: list[int] = []

    def __len__(self) -> int:
        return len(self._kept) + len(self._new) - len(self._gone)

    def change(self, rank: int, old: int, new: int) -> None:
        """Another standing for this rank, NOWHERE if it had none or has none: once for each rank until `settle`."""
        if old != NOWHERE:
            self._gone.append(old << RANK_BITS | rank)
        if new != NOWHERE:
            self._new.append(new << RANK_BITS | rank)

    @property
    def settled(self) -> bool:
        """Whether all are in their places."""
        return not (self._new or self._gone)

    def settle(self) -> int:
        """Let all take their places; returns how many numbers came or went."""
        new, gone, kept = self._new, self._gone, self._kept
        if len(new) + len(gone) <= max(FEW, len(kept) // SHARE):
            for number in gone:
                kept.pop(bisect_left(kept, number))
            for number in new:
                insort(kept, number)
        else:
            left = list(filterfalse(set(gone).__contains__, kept))
            left += new
            left.sort()
            self._kept = array("q", left)
        self._new, self._gone = [], []
        return len(new) + len(gone)

    def fitting(self) -> Iterator[tuple[int, int]]:
        """(negative score, rank) of all that the ask fits on at this moment."""
        self.settle()
        fitting = self._kept[: bisect_left(self._kept, SHORT << RANK_BITS)]
        return (((number >> RANK_BITS) - ZERO, number & RANKS - 1) for number in fitting)

    def short(self) -> Iterator[int]:
        """The ranks of those that fall short."""
        self.settle()
        start = bisect_left(self._kept, SHORT << RANK_BITS)
        return (self._kept[i] & RANKS - 1 for i in range(start, len(self._kept)))

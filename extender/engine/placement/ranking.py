"""Nodes in order, as numbers: eight bytes for each, so that hundreds of rankings of thousands of nodes are kept.

A number holds the standing of a node for a request, and its rank by name. The lowest standing comes first: scores, the
best first, then capacity that does not suffice, the most first.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import filterfalse

from extender.engine.placement.roll import RANK_BITS, RANKS

SHORT = 1 << 29
"""The least standing of a node on which the request does not fit; all are below twice this, so they fit in 32 bits."""
ZERO = 1 << 28
"""The standing of score 0."""
NOWHERE = -1
"""The standing, and the number, of a node that is not ranked."""
MEM, SLICES, WHOLLY = 18, 7, 4
"""Bits for how much is free; larger amounts are equal."""
FEW, SHARE = 16, 6
"""So many changes, or one for so many numbers, are sorted in one by one."""

Room = tuple[int, int, int]
"""How much is free where a request does not fit: units, slices, whole GPUs; negative, so that the most sorts first."""


def of_score(score: int) -> int:
    """The standing of a node with this score; a higher score is better."""
    standing = ZERO - score
    return standing if 0 <= standing < SHORT else 0 if standing < 0 else SHORT - 1


def of_room(room: Room) -> int:
    """The standing of a node with too little capacity."""
    mem, slices, wholly = (
        max(0, (1 << bits) - 2 + free) for bits, free in zip((MEM, SLICES, WHOLLY), room, strict=True)
    )
    return SHORT | mem << (SLICES + WHOLLY) | slices << WHOLLY | wholly


def number(standing: int, rank: int) -> int:
    """What sorts by standing, then by rank."""
    return standing << RANK_BITS | rank if standing >= 0 else NOWHERE


def rank_and_score(number: int) -> tuple[int, int]:
    """The rank, and the score by the standing, of a node on which the request fits."""
    return number & RANKS - 1, ZERO - (number >> RANK_BITS)


def renumbered(before: int, rank: int) -> int:
    """The number of a node with another rank than before."""
    return number(before >> RANK_BITS, rank)


def sorted_fits(numbers: Iterable[int]) -> list[int]:
    """Those of these numbers whose nodes fit, the best first."""
    every = sorted(numbers)
    return every[bisect_right(every, NOWHERE) : bisect_left(every, SHORT << RANK_BITS)]


class Ranking:
    """Numbers in order. Changes are sorted in by `settle`, which each reader calls."""

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._kept = array("q", sorted(numbers))
        self._new: list[int] = []
        self._gone: list[int] = []

    def change(self, old: int, new: int) -> None:
        """Change the number of a node, NOWHERE for none: at most once for each node until `settle`."""
        if old != NOWHERE:
            self._gone.append(old)
        if new != NOWHERE:
            self._new.append(new)

    @property
    def settled(self) -> bool:
        """Whether all changes are sorted in."""
        return not (self._new or self._gone)

    def settle(self) -> int:
        """Sort all changes in; return how many numbers came or went."""
        new, gone, kept = self._new, self._gone, self._kept
        if len(new) + len(gone) <= max(FEW, len(kept) // SHARE):
            for goes in gone:
                kept.pop(bisect_left(kept, goes))
            for comes in new:
                insort(kept, comes)
        else:
            left = list(filterfalse(set(gone).__contains__, kept))
            left += new
            left.sort()
            self._kept = array("q", left)
        self._new, self._gone = [], []
        return len(new) + len(gone)

    def fitting(self) -> Sequence[int]:
        """The numbers of all nodes on which the request fits, the best first."""
        self.settle()
        return self._kept[: bisect_left(self._kept, SHORT << RANK_BITS)]

    def short(self) -> Iterator[int]:
        """The ranks of all nodes with too little capacity."""
        self.settle()
        start = bisect_left(self._kept, SHORT << RANK_BITS)
        return (self._kept[i] & RANKS - 1 for i in range(start, len(self._kept)))

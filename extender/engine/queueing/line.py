"""The line of those who wait for room, and whose turn it is.

Everybody has a due date: when it was submitted, plus `PATIENCE` times its expected run time. Whoever is due earlier
goes first. So the short pass the long ones, and nobody is overtaken for ever: who is submitted after another's due date
stands behind it. With no patience this is first come, first served; with endless patience the shortest goes first.

Between queues the one goes first that has least of what it is due; how much that is comes in as a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from heapq import heappop, heappush, heapreplace
from operator import attrgetter
from typing import Any, NamedTuple

from sortedcontainers import SortedKeyList

PATIENCE = 3.0
"""For how many of its run times a job lets shorter ones go first that come later."""
MOST_PATIENCE_S = 30 * 86400.0
"""Nobody is overtaken by those submitted so much later, whatever run time it claims."""
UNKNOWN_S = 86400.0
"""The run time that one is taken to have of which nothing is known."""


def due(since: float, expected: float) -> float:
    """Whose is earlier goes first; `expected` is the run time in seconds, infinity if nothing is known of it."""
    return since + min(PATIENCE * (expected if expected < math.inf else UNKNOWN_S), MOST_PATIENCE_S)


class Turn(NamedTuple):
    """The order inside a queue."""

    precedence: int
    """Minus the priority."""
    rank: float
    """The due date."""
    since: float
    name: Any
    """Tells equals apart."""


class Waiter(NamedTuple):
    """Somebody in line."""

    name: Any
    queue: Any
    shape: Any
    """Equal for those for whom the same room will do."""
    turn: Turn


TURN = attrgetter("turn")
UID = attrgetter("ref.uid")
"""The key of pods in a line."""


class Line:
    """Those who wait. To join, to leave and to see the next take next to nothing, however many wait."""

    def __init__(self, key: Callable[[Any], Hashable] = lambda name: name) -> None:
        """`key` of a name tells who that is."""
        self._key = key
        self._waiters: dict[Hashable, Waiter] = {}
        self._queues: dict[Any, SortedKeyList[Waiter]] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        """All of them, in no order; who joins or leaves meanwhile does no harm."""
        return iter(list(self._waiters.values()))

    def __contains__(self, key: Hashable) -> bool:
        return key in self._waiters

    @property
    def queues(self) -> Mapping[Any, SortedKeyList[Waiter]]:
        """The waiters of each queue, the next in turn first."""
        return self._queues

    def join(self, waiter: Waiter) -> None:
        """Take a place; who is in line already changes it."""
        key = self._key(waiter.name)
        self.leave(key)
        self._waiters[key] = waiter
        if waiter.queue not in self._queues:
            self._queues[waiter.queue] = SortedKeyList(key=TURN)
        self._queues[waiter.queue].add(waiter)

    def leave(self, key: Hashable) -> Waiter | None:
        """Not to wait any more; returns how it waited, None if it did not."""
        waiter = self._waiters.pop(key, None)
        if waiter is not None:
            self._queues[waiter.queue].remove(waiter)
            if not self._queues[waiter.queue]:
                del self._queues[waiter.queue]
        return waiter

    def requeue(self, queue_of: Callable[[Any], Any]) -> None:
        """Each is in another queue now, which is told by its name."""
        lists: dict[Any, list[Waiter]] = {}
        for key, waiter in self._waiters.items():
            moved = self._waiters[key] = waiter._replace(queue=queue_of(waiter.name))
            lists.setdefault(moved.queue, []).append(moved)
        self._queues = {queue: SortedKeyList(those, key=TURN) for queue, those in lists.items()}

    def firsts(self) -> Iterator[Waiter]:
        """The next in turn of each queue."""
        return (waiters[0] for waiters in self._queues.values())

    def first(self, share: Callable[[Any], Any]) -> Waiter | None:
        """The next in turn, None if nobody waits; `share` as in `walk`."""
        return next(self.walk(share), None)

    def walk(self, share: Callable[[Any], Any]) -> Walk:
        """All of them in turn. The line must not change meanwhile: who starts leaves it afterwards.

        `share` tells of a queue how much it has of what it is due; it is asked anew before each turn, and must not
        shrink meanwhile.
        """
        return Walk(self._queues.values(), share)


class Walk(Iterator[Waiter]):
    """One after the other, without those left out for whose shape there is no room."""

    def __init__(self, queues: Iterable[Iterable[Waiter]], share: Callable[[Any], Any]) -> None:
        """Each queue's in turn; of one the next is not looked at before the one ahead was dealt with."""
        self._share, self._behind = share, list[Iterator[Waiter]]()
        self._ahead: list[tuple[Any, Turn, int, Waiter]] = []
        """Of each queue its share when last asked and who is next; turns differ, so nothing behind them is compared."""
        self._left_out: set[Hashable] = set()
        self._told = False
        """Whether the first of those ahead was given out."""
        for waiters in queues:
            self.join(waiters)

    def join(self, waiters: Iterable[Waiter]) -> None:
        """Those of one more queue; before anybody was given out."""
        behind = iter(waiters)
        first = next(behind, None)
        if first is not None:
            heappush(self._ahead, (self._share(first.queue), first.turn, len(self._behind), first))
            self._behind.append(behind)

    def leave_out(self, shape: Hashable) -> None:
        """Nobody else of this shape, of whatever queue."""
        self._left_out.add(shape)

    def __next__(self) -> Waiter:
        if self._told:
            self._advance()
        while self._ahead:
            share, turn, number, waiter = self._ahead[0]
            if waiter.shape in self._left_out:
                self._advance()
            elif (now := self._share(waiter.queue)) != share:
                heapreplace(self._ahead, (now, turn, number, waiter))
            else:
                self._told = True
                return waiter
        raise StopIteration

    def _advance(self) -> None:
        """The first queue goes on with the next who is not left out."""
        share, _, number, _ = self._ahead[0]
        self._told = False
        for waiter in self._behind[number]:
            if waiter.shape not in self._left_out:
                heapreplace(self._ahead, (share, waiter.turn, number, waiter))
                return
        heappop(self._ahead)

"""Pending workloads in line, and which of them is next.

Each workload has a deadline: its submission plus `PATIENCE` times its expected run time. The earlier deadline goes
first. So a short workload passes a long one, but no workload passes one whose deadline is before its own submission.
With no patience this is first come, first served; with endless patience it is shortest job first.

Between queues the one with the smallest part of its fair share goes first. The caller gives that part as a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heappop, heappush, heapreplace
from operator import attrgetter
from typing import Any, NamedTuple

from sortedcontainers import SortedKeyList

PATIENCE = 3.0
"""A workload lets shorter ones pass that are submitted within so many of its run times."""
MOST_PATIENCE_S = 30 * 86400.0
"""A workload submitted so much later never passes, whatever run time the older one claims."""
UNKNOWN_S = 86400.0
"""The run time assumed where none is known."""


def due(since: float, expected: float) -> float:
    """The deadline; the earlier one goes first. `expected`: the run time in seconds, infinity if it is unknown."""
    return since + min(PATIENCE * (expected if expected < math.inf else UNKNOWN_S), MOST_PATIENCE_S)


class Turn(NamedTuple):
    """The sort key of a workload within its queue."""

    precedence: int
    """Minus the priority."""
    rank: float
    """The deadline."""
    since: float
    name: Any
    """The tie breaker."""


class Waiter(NamedTuple):
    """A workload in line."""

    name: Any
    queue: Any
    shape: Any
    """Equal for workloads that the same free capacity suits."""
    turn: Turn


TURN = attrgetter("turn")
UID = attrgetter("ref.uid")
"""The key of pods in a line."""


class Line:
    """Pending workloads, sorted by queue. Joining, leaving and finding the next cost little, however many wait."""

    def __init__(self, key: Callable[[Any], Hashable] = lambda name: name) -> None:
        """`key` makes a workload's key of its name."""
        self._key = key
        self._waiters: dict[Hashable, Waiter] = {}
        self.queues: dict[Any, SortedKeyList[Waiter]] = {}
        """The workloads of each queue, the next first."""

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        """All workloads, in no order; the line may change meanwhile."""
        return iter(list(self._waiters.values()))

    def get(self, key: Hashable) -> Waiter | None:
        """A workload, None if it is not in line."""
        return self._waiters.get(key)

    def join(self, waiter: Waiter) -> None:
        """Add a workload, or move one that is in line already."""
        key = self._key(waiter.name)
        self.leave(key)
        self._waiters[key] = waiter
        if waiter.queue not in self.queues:
            self.queues[waiter.queue] = SortedKeyList(key=TURN)
        self.queues[waiter.queue].add(waiter)

    def leave(self, key: Hashable) -> Waiter | None:
        """Remove a workload and return it; None if it was not in line."""
        waiter = self._waiters.pop(key, None)
        if waiter is not None:
            self.queues[waiter.queue].remove(waiter)
            if not self.queues[waiter.queue]:
                del self.queues[waiter.queue]
        return waiter

    def requeue(self, queue_of: Callable[[Waiter], Any]) -> None:
        """Move every workload to the queue that `queue_of` gives for it."""
        lists: dict[Any, list[Waiter]] = {}
        for key, waiter in self._waiters.items():
            moved = self._waiters[key] = waiter._replace(queue=queue_of(waiter))
            lists.setdefault(moved.queue, []).append(moved)
        self.queues = {queue: SortedKeyList(waiters, key=TURN) for queue, waiters in lists.items()}

    def walk(self, share: Callable[[Any], Any]) -> Walk:
        """All workloads, the next first. The line must not change meanwhile.

        `share`: what part of its fair share a queue has. It is asked again before each turn, and must not shrink.
        """
        return Walk(self.queues.values(), share)


Ahead = tuple[Any, Turn, int, Waiter, Iterator[Waiter]]
"""Of one queue: its share when last asked, a number that breaks ties, its next workload, and the rest."""


class Walk(Iterable[Waiter]):
    """Workloads of several queues, one at a time, without shapes that were left out. It can be gone through once."""

    def __init__(self, queues: Iterable[Iterable[Waiter]], share: Callable[[Any], Any]) -> None:
        """A queue's next workload is only looked at once the one before it was dealt with."""
        self._share = share
        self._heap: list[Ahead] = []
        self._left_out: set[Hashable] = set()
        self._waiters = _in_turn(self._heap, self._left_out, share)
        for waiters in queues:
            self.join(waiters)

    def join(self, waiters: Iterable[Waiter]) -> None:
        """Add the workloads of one more queue, before the first is taken."""
        rest = iter(waiters)
        first = next(rest, None)
        if first is not None:
            heappush(self._heap, (self._share(first.queue), first.turn, len(self._heap), first, rest))

    def leave_out(self, shape: Hashable) -> None:
        """Skip all further workloads of this shape, in every queue."""
        self._left_out.add(shape)

    def __iter__(self) -> Iterator[Waiter]:
        return self._waiters


def _in_turn(heap: list[Ahead], left_out: set[Hashable], share: Callable[[Any], Any]) -> Iterator[Waiter]:
    while heap:
        before, turn, number, waiter, rest = heap[0]
        if waiter.shape not in left_out:
            if (now := share(waiter.queue)) != before:
                heapreplace(heap, (now, turn, number, waiter, rest))
                continue
            yield waiter
        for following in rest:
            if following.shape not in left_out:
                heapreplace(heap, (before, following.turn, number, following, rest))
                break
        else:
            heappop(heap)

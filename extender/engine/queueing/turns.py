"""The gangs that wait for a plan, and which of them is next: by the rank of their queue, then in the order of `order`.

Queues are compared from the top of the tree downwards: the higher priority first, then the smaller part of the fair
share. Finding the next gang takes time by the number of queues with waiting gangs, not by the number of gangs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter

from extender.engine.queueing.line import Line, Waiter
from extender.engine.queueing.order import PendingOrder
from extender.engine.queueing.queue_node import LocalQueue
from gangfilter.gang import Gang

QueueRank = tuple[tuple[int, float], ...]
"""The rank of a queue among queues, the lowest first."""


class Turns:
    """The line of gangs that wait for a plan."""

    def __init__(
        self,
        local_queue: Callable[[Gang], LocalQueue],
        queue_rank: Callable[[LocalQueue], QueueRank],
        order: PendingOrder,
    ) -> None:
        self._local_queue, self._queue_rank, self._order = local_queue, queue_rank, order
        self._line = Line(attrgetter("key"))
        self.version = 0
        """Counts the changes of the line."""

    def put(self, gang: Gang) -> None:
        """Add the gang, or put it where it belongs now."""
        self.version += 1
        self._line.join(Waiter(gang, self._local_queue(gang), gang.key, self._order.of_gang(gang)))

    def revalued(self, priority_class: str) -> None:
        """The priority of gangs that name this class may have changed."""
        for waiter in self._line:
            if waiter.name.terms.priority_class == priority_class:
                self.put(waiter.name)

    def reorder(self) -> None:
        """The wall clock was set: compute all places again."""
        for waiter in self._line:
            self.put(waiter.name)

    def remove(self, gang: Gang) -> None:
        self.version += 1
        self._line.leave(gang.key)

    def __contains__(self, gang: Gang) -> bool:
        return gang.key in self._line

    def __len__(self) -> int:
        return len(self._line)

    def firsts(self) -> Iterator[Waiter]:
        """The first gang of each local queue."""
        return self._line.firsts()

    def first(self) -> Gang | None:
        """The next gang, None if no gang waits."""
        waiter = self._line.first(self._queue_rank)
        return waiter.name if waiter is not None else None

"""Whose turn it is: by queue, then as `order` says. So are gangs planned, and room is made.

Queues are compared from the top of their tree downwards: the higher priority first, then who has the smaller part of
its due. Within one queue the order is kept, so that the next is found at the cost of the queues with gangs that wait,
however many gangs those are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from extender.engine.queueing.line import Line, Waiter
from extender.engine.queueing.order import PendingOrder
from extender.engine.queueing.queue_node import LocalQueue
from gangfilter.gang import Gang
from gangfilter.group import GroupKey

QueueRank = tuple[tuple[int, float], ...]
"""Where a queue stands among queues, least first."""


class Turns:
    """The gangs that want a plan."""

    def __init__(
        self,
        local_queue: Callable[[Gang], LocalQueue],
        queue_node: Callable[[LocalQueue], QueueRank],
        order: PendingOrder,
    ) -> None:
        self._local_queue, self._standing, self._order = local_queue, queue_node, order
        self._line = Line()
        self._gangs: dict[GroupKey, Gang] = {}
        self.version = 0
        """Counts who came and went."""

    def put(self, gang: Gang) -> None:
        """The gang wants one."""
        self.version += 1
        self._gangs[gang.key] = gang
        self._line.join(Waiter(gang.key, self._local_queue(gang), gang.key, self._order.of_gang(gang)))

    def revalued(self, priority_class: str) -> None:
        """Gangs that name this class may have another priority now."""
        for gang in [gang for gang in self._gangs.values() if gang.terms.priority_class == priority_class]:
            self.put(gang)

    def reorder(self) -> None:
        """The times of gangs are other ones now: all take the places that they have by those."""
        for gang in list(self._gangs.values()):
            self.put(gang)

    def remove(self, gang: Gang) -> None:
        """The gang wants none."""
        self.version += 1
        self._gangs.pop(gang.key, None)
        self._line.leave(gang.key)

    def __contains__(self, gang: Gang) -> bool:
        return gang.key in self._line

    def __len__(self) -> int:
        return len(self._line)

    def firsts(self) -> Iterator[Waiter]:
        """The next in turn of the pods of each queue and namespace."""
        return self._line.firsts()

    def first(self) -> Gang | None:
        """Whose turn it is, None if nobody wants a plan."""
        found = self._line.first(self._standing)
        return self._gangs[found.name] if found is not None else None

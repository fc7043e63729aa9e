"""The order of pending workloads within one queue; docs/queues.md states it.

1. The higher priority first.
2. Of equal priority: surplus members of running gangs last.
3. Among the others: the earlier deadline (`line.due`) first.
4. Then the older, then by name.

Planning of gangs, requeues, preemption and backfill reservations all use this order. Queues are compared from the top
of their tree downwards: the higher priority first, then the smaller part of the fair share.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from operator import attrgetter

from extender.engine.queueing.line import Line, Turn, Waiter, due
from extender.engine.queueing.priorities import Priorities
from extender.engine.queueing.queue_node import LocalQueue
from extender.engine.queueing.runtimes import Runtimes
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import Roster
from extender.engine.types.wall import Wall
from gangfilter.gang import Gang

LAST = sys.float_info.max
"""The deadline of surplus members."""
QueueRank = tuple[tuple[int, float], ...]
"""The rank of a queue among queues, the lowest first."""


class PendingOrder:
    """Computes the place of a gang, or of a pod, in its queue. Owns nothing."""

    def __init__(self, roster: Roster, runtimes: Runtimes, priorities: Priorities, wall: Wall) -> None:
        self._roster, self._runtimes, self._priorities, self._wall = roster, runtimes, priorities, wall

    def of_gang(self, gang: Gang) -> Turn:
        deadline = due(gang.born, self._runtimes.of_gang(gang))
        return Turn(-self._priorities.highest(gang), deadline, gang.born, str(gang.key))

    def of_pod(self, pod: PodState) -> Turn:
        """The place of a pod, which may be a member of a gang."""
        known, since = self._roster.of(pod.ref.uid), self.since(pod)
        priority = pod.priority if known is None else self._priorities.of(known.gang, pod.priority)
        surplus = known is not None and self._roster.surplus(pod.ref.uid)
        deadline = LAST if surplus else due(since, self._runtimes.of_pod(pod))
        return Turn(-priority, deadline, since, str(pod.ref))

    def since(self, pod: PodState) -> float:
        """When a pod was created, or first seen if that is earlier, by the monotonic clock."""
        created = pod.info.created
        return min(pod.since, self._wall.of(created)) if created else pod.since


class Turns:
    """The gangs that wait for a plan. The next is found in time by the queues with such gangs, not by the gangs."""

    def __init__(
        self,
        local_queue: Callable[[Gang], LocalQueue],
        queue_rank: Callable[[LocalQueue], QueueRank],
        order: PendingOrder,
    ) -> None:
        self._local_queue, self._queue_rank, self._order = local_queue, queue_rank, order
        self._line = Line(attrgetter("key"))
        self.version = 0

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
        return self._line.get(gang.key) is not None

    def __len__(self) -> int:
        return len(self._line)

    def firsts(self) -> Iterator[Waiter]:
        """The first gang of each local queue."""
        return (waiters[0] for waiters in self._line.queues.values())

    def first(self) -> Gang | None:
        waiter = next(iter(self._line.walk(self._queue_rank)), None)
        return waiter.name if waiter is not None else None

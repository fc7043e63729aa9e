"""The order of pending workloads within one queue; docs/queues.md states it.

1. The higher priority first.
2. Of equal priority: surplus members of running gangs last.
3. Among the others: the earlier deadline (`line.due`) first.
4. Then the older, then by name.

Planning of gangs, requeues, preemption and backfill reservations all use this order.
"""

from __future__ import annotations

import sys

from extender.engine.queueing.line import Turn, due
from extender.engine.queueing.priorities import Priorities
from extender.engine.queueing.runtimes import Runtimes
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import Roster
from extender.engine.types.wall import Wall
from gangfilter.gang import Gang

LAST = sys.float_info.max
"""The deadline of surplus members."""


class PendingOrder:
    """Computes the place of a gang, or of a pod, in its queue. Owns nothing."""

    def __init__(self, roster: Roster, runtimes: Runtimes, priorities: Priorities, wall: Wall) -> None:
        self._roster, self._runtimes, self._priorities, self._wall = roster, runtimes, priorities, wall

    def of_gang(self, gang: Gang) -> Turn:
        """The place of a gang."""
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

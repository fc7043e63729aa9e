"""The order of pending workloads within one queue. Whoever picks the next workload asks here; docs/queues.md states it.

1. The higher priority first.
2. Of equal priority: members that their running gang can spare come last.
3. Among the others: the earlier due date (`line.due`) first.
4. Then the older, then by name.

Gangs are planned in this order; pods are requeued, room is made, and backfill reservations are given in this order.
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
"""The due date of members that their running gang can spare."""


class PendingOrder:
    """Tells where a gang, or a pod that is scheduled by itself, stands in its queue. Owns nothing."""

    def __init__(self, roster: Roster, runtimes: Runtimes, priorities: Priorities, wall: Wall) -> None:
        self._roster, self._runtimes, self._priorities, self._wall = roster, runtimes, priorities, wall

    def of_gang(self, gang: Gang) -> Turn:
        """Where a gang stands by what is said of it now, least first."""
        deadline = due(gang.born, self._runtimes.of_gang(gang))
        return Turn(-self._priorities.highest(gang), deadline, gang.born, str(gang.key))

    def of_pod(self, pod: PodState) -> Turn:
        """Where a pod stands, least first."""
        known, since = self._roster.of(pod.ref.uid), self.since(pod)
        priority = pod.priority if known is None else self._priorities.of(known.gang, pod.priority)
        surplus = known is not None and self._roster.surplus(pod.ref.uid)
        deadline = LAST if surplus else due(since, self._runtimes.of_pod(pod))
        return Turn(-priority, deadline, since, str(pod.ref))

    def since(self, pod: PodState) -> float:
        """When a pod was created, or first seen, by the monotonic clock."""
        created = pod.info.created
        return min(pod.since, self._wall.of(created)) if created else pod.since

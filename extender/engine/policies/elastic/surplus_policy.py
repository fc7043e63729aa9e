"""Surplus members yield to pending gangs of their queue, at equal priority too.

They are placed like single pods once each such gang was planned with the present room and did not fit.
"""

from __future__ import annotations

from extender.engine.gangs.gangs import Gangs
from extender.engine.queueing.priorities import Priorities
from extender.engine.queueing.queue_node import QueueNode
from extender.engine.queueing.queues import Queues
from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import PodState

REMEMBERED = 1024
"""Most answers that are remembered, by queue and priority."""


class SurplusPolicy:
    """Tells which surplus members have to wait."""

    def __init__(self, ledger: Ledger, gangs: Gangs, queues: Queues, priorities: Priorities) -> None:
        self._ledger, self._queues, self._priorities = ledger, queues, priorities
        self._roster, self._rounds, self._turns = gangs.roster, gangs.rounds, gangs.planner.turns
        self._known: dict[tuple[QueueNode, int], bool] = {}
        self._version = -1
        """The version of the line of gangs to which the answers belong."""

    def waits(self, pod: PodState) -> bool:
        """Whether this pod is a surplus member, and gangs go first now."""
        uid = pod.ref.uid
        known, local_queue = self._roster.of(uid), self._queues.of(uid)
        if known is None or local_queue is None or not self._rounds.leading or not self._roster.surplus(uid):
            return False
        if self._rounds.looked != self._ledger.freed:
            return self._rounds.waiting  # they are yet to be planned with this room
        turns = self._turns
        if self._version != turns.version or len(self._known) >= REMEMBERED:
            self._version = turns.version
            self._known.clear()
        key = self._queues.at(local_queue), -self._priorities.of(known.gang, pod.priority)
        if key not in self._known:
            first = (w for w in turns.firsts() if self._queues.at(w.queue) is key[0])
            self._known[key] = any(waiter.turn.precedence <= key[1] for waiter in first)
        return self._known[key]

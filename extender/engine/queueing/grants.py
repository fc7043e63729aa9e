"""What queues say of room that is kept for their pods: how much of it they may have, and that it counts."""

from __future__ import annotations

from extender.engine.queueing.queues import Queues
from extender.engine.queueing.quota import Quota
from extender.engine.types.amounts import add


class Grants:
    """Told of pods by UID."""

    def __init__(self, queues: Queues, quota: Quota) -> None:
        self._queues, self._quota = queues, quota

    def promise(self, uid: str, yes: bool) -> None:
        """The room counts as the pod's in its queue, or not any more."""
        self._queues.promise(uid, yes)

    def admits(self, uid: str, *, making: bool) -> bool:
        """Whether the queue may have that much more; `making`: others are evicted for the pod, maybe of its own queue.

        So what its queues have does not count then, but what they have been promised in the same way does.
        """
        local_queue = self._queues.of(uid)
        if local_queue is None:
            return False
        limited = any(True for _ in self._quota.limiting(local_queue))
        if not limited:
            return self._quota.barred(local_queue) is None
        less = {name: dict(amounts) for name, amounts in self._quota.own(local_queue, (uid,)).items()}
        for queue_node in self._queues.at(local_queue).upwards if making else ():
            add(less.setdefault(queue_node.name, {}), queue_node.allocated.items())
        return self._quota.shortage(local_queue, self._queues.takes(uid), less) is None

    def queue(self, uid: str) -> object:
        """The pod's queue. In another one the answer may be another one."""
        return self._queues.of(uid)

    def turns(self) -> tuple[int, int]:
        """Of those that were refused, and of those that were admitted: another one when an answer may have changed.

        What was admitted is promised, so that nobody takes it.
        """
        terms = self._queues.epoch + self._queues.revalued
        return terms + self._queues.capacity_generation, terms

"""What queues say of room that is kept for their pods: how much of it they may have, and that it counts."""

from __future__ import annotations

from extender.engine.queueing.admission import Admission
from extender.engine.queueing.queues import Queues


class Grants:
    """Told of pods by UID."""

    def __init__(self, queues: Queues, admission: Admission) -> None:
        self._queues, self._admission = queues, admission

    def promise(self, uid: str, yes: bool) -> None:
        """The room counts as the pod's in its queue, or not any more."""
        self._queues.promise(uid, yes)

    def admits(self, uid: str, *, making: bool) -> bool:
        """Whether the queue may have that much more; `making`: others of it may be leaving for the pod."""
        return self._queues.of(uid) is not None and self._admission.keeps(uid, making=making) is None

    def queue(self, uid: str) -> object:
        """The pod's queue. In another one the answer may be another one."""
        return self._queues.of(uid)

    def turns(self) -> tuple[int, int]:
        """Of those that were refused, and of those that were admitted: another one when an answer may have changed.

        What was admitted is promised, so that nobody takes it.
        """
        terms = self._queues.epoch + self._queues.revalued
        return terms + self._queues.capacity_generation, terms

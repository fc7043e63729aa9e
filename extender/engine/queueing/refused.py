"""The refused pods that wait for capacity: by queue and shape of request, each in the order of its queue."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from extender.engine.queueing.line import UID, Line, Waiter
from extender.engine.queueing.order import PendingOrder
from extender.engine.queueing.queue_node import QueueNode
from extender.engine.queueing.queues import Queues
from extender.engine.state.pod_state import PodState
from protos.contract.ask import PodAsk


class Refused:
    """One line, in which the pods of each shape and queue stand in a queue of their own."""

    def __init__(self, queues: Queues, order: PendingOrder) -> None:
        self._queues, self._order = queues, order
        self._line = Line(UID)
        self._epoch = 0
        """Of the tree of queues by which the pods were sorted."""

    def __len__(self) -> int:
        return len(self._line)

    def waits(self, pod: PodState, ask: PodAsk) -> bool:
        """Whether the pod still waits for this request."""
        waiter = self._line.get(pod.ref.uid)
        return waiter is not None and waiter.shape == ask and pod.state == "waiting"

    @property
    def settled(self) -> bool:
        """Whether the tree of queues has not changed since."""
        return self._epoch == self._queues.epoch

    @property
    def lines(self) -> Mapping[tuple[QueueNode, PodAsk], Sequence[Waiter]]:
        """The pods by queue and shape, the next first."""
        return self._line.queues

    def put(self, pod: PodState, ask: PodAsk) -> None:
        """Add a pod. One that was requeued and did not come goes behind the others of its priority."""
        self._epoch = self._epoch if self._line else self._queues.epoch
        turn = self._order.of_pod(pod)
        if pod.wakes:
            turn = turn._replace(rank=math.inf)
        self._line.join(Waiter(pod, (self._queues.home(pod.ref.uid), ask), ask, turn))

    def forget(self, uid: str) -> None:
        """The pod no longer waits."""
        self._line.leave(uid)

    def moved(self, uid: str) -> None:
        """The pod, if it waits, is in another queue or has another place there."""
        waiter = self._line.leave(uid)
        if waiter is not None:
            self.put(waiter.name, waiter.shape)

    def reorder(self) -> None:
        """The wall clock was set: compute all places again."""
        for waiter in self._line:
            self.put(waiter.name, waiter.shape)

    def settle(self) -> None:
        """Sort the pods into the queues of the current tree."""
        if not self.settled:
            self._epoch = self._queues.epoch
            self._line.requeue(lambda waiter: (self._queues.home(waiter.name.ref.uid), waiter.shape))

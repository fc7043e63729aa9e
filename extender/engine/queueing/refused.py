"""The refused pods that wait for capacity: by shape of request, then by queue, each queue in its order."""

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
    """One line of pods for each shape of request."""

    def __init__(self, queues: Queues, order: PendingOrder) -> None:
        self._queues, self._order = queues, order
        self._lines: dict[PodAsk, Line] = {}
        self._asks: dict[str, PodAsk] = {}
        self._epoch = 0
        """Of the tree of queues by which the lines were made."""

    def __len__(self) -> int:
        return len(self._asks)

    def waits(self, pod: PodState, ask: PodAsk) -> bool:
        """Whether the pod still waits for this request."""
        return self._asks.get(pod.ref.uid) == ask and pod.state == "waiting"

    @property
    def asks(self) -> list[PodAsk]:
        return list(self._lines)

    @property
    def settled(self) -> bool:
        """Whether the tree of queues has not changed since."""
        return self._epoch == self._queues.epoch

    def of(self, ask: PodAsk) -> Mapping[QueueNode, Sequence[Waiter]]:
        """The pods of this shape by queue, the next first."""
        return self._lines[ask].queues if ask in self._lines else {}

    def put(self, pod: PodState, ask: PodAsk) -> None:
        """Add a pod. One that was requeued and did not come goes behind the others of its priority."""
        self._epoch = self._epoch if self._asks else self._queues.epoch
        self._asks[pod.ref.uid] = ask
        turn = self._order.of_pod(pod)
        if pod.wakes:
            turn = turn._replace(rank=math.inf)
        line = self._lines.setdefault(ask, Line(UID))
        line.join(Waiter(pod, self._queues.home(pod.ref.uid), ask, turn))

    def forget(self, uid: str) -> Waiter | None:
        """Remove a pod and return it; None if it does not wait."""
        ask = self._asks.pop(uid, None)
        if ask is None:
            return None
        line = self._lines[ask]
        waiter = line.leave(uid)
        if not line:
            del self._lines[ask]
        return waiter

    def moved(self, uid: str) -> None:
        """The pod, if it waits, is in another queue or has another place there."""
        waiter = self.forget(uid)
        if waiter is not None:
            self.put(waiter.name, waiter.shape)

    def reorder(self) -> None:
        """The wall clock was set: compute all places again."""
        for uid in list(self._asks):
            self.moved(uid)

    def settle(self) -> None:
        """Sort the pods into the queues of the current tree."""
        if not self.settled:
            self._epoch = self._queues.epoch
            for line in self._lines.values():
                line.requeue(lambda pod: self._queues.home(pod.ref.uid))

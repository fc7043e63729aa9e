"""The pods that were refused and wait for room: by shape of ask and by queue, each queue's in turn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from extender.engine.queueing.line import UID, Line, Turn, Waiter
from extender.engine.queueing.order import PendingOrder
from extender.engine.queueing.queue_node import QueueNode
from extender.engine.queueing.queues import Queues
from extender.engine.state.pod_state import PodState
from protos.contract.ask import PodAsk


class Refused:
    """All of them."""

    def __init__(self, queues: Queues, order: PendingOrder) -> None:
        self._queues, self._order = queues, order
        self._lines: dict[PodAsk, Line] = {}
        self._asks: dict[str, PodAsk] = {}
        """What each waits for, by the UIDs of pods."""
        self._epoch = 0
        """Of the tree of queues when they were put there."""

    def __len__(self) -> int:
        return len(self._asks)

    def waits(self, pod: PodState, ask: PodAsk) -> bool:
        """Whether the pod still waits for room for this."""
        return self._asks.get(pod.ref.uid) == ask and pod.state == "waiting"

    @property
    def asks(self) -> list[PodAsk]:
        """The shapes for which somebody waits."""
        return list(self._lines)

    @property
    def settled(self) -> bool:
        """Whether the queues are still those by which the lines were made."""
        return self._epoch == self._queues.epoch

    def of(self, ask: PodAsk) -> Mapping[QueueNode, Sequence[Waiter]]:
        """Who waits for room for this, by queue, the next in turn first."""
        return self._lines[ask].queues if ask in self._lines else {}

    def put(self, pod: PodState, ask: PodAsk) -> None:
        """The pod waits."""
        self._epoch = self._epoch if self._asks else self._queues.epoch
        self._asks[pod.ref.uid] = ask
        line = self._lines.setdefault(ask, Line(UID))
        line.join(Waiter(pod, self._queues.home(pod.ref.uid), ask, self._turn(pod)))

    def _turn(self, pod: PodState) -> Turn:
        """Where the pod stands. One that was requeued and did not come stands behind the others of its priority."""
        turn = self._order.of_pod(pod)
        return turn._replace(rank=math.inf) if pod.wakes else turn

    def forget(self, uid: str) -> Waiter | None:
        """The pod no longer waits; returns how it waited, None if it did not."""
        ask = self._asks.pop(uid, None)
        if ask is None:
            return None
        line = self._lines[ask]
        waiter = line.leave(uid)
        if not line:
            del self._lines[ask]
        return waiter

    def moved(self, uid: str) -> None:
        """The pod, if it is one of them, is in another queue now."""
        waiter = self.forget(uid)
        if waiter is not None:
            self.put(waiter.name, waiter.shape)

    def reorder(self) -> None:
        """Their times are other ones now: all take the places that they have by those."""
        for uid in list(self._asks):
            self.moved(uid)

    def settle(self) -> None:
        """Take in that there are other queues now."""
        if not self.settled:
            self._epoch = self._queues.epoch
            for line in self._lines.values():
                line.requeue(lambda pod: self._queues.home(pod.ref.uid))

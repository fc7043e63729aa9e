"""The pods that were refused and wait for room: by shape of ask and by queue, each queue's in turn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from sortedcontainers import SortedKeyList

from extender.engine.queueing.line import TURN, Turn, Waiter
from extender.engine.queueing.order import PendingOrder
from extender.engine.queueing.queue_node import QueueNode
from extender.engine.queueing.queues import Queues
from extender.engine.state.pod_state import PodState
from protos.contract.ask import PodAsk

Line: TypeAlias = "SortedKeyList[Waiter]"
"""Those of one queue and shape, who comes first ahead."""


class Refused:
    """All of them."""

    def __init__(self, queues: Queues, order: PendingOrder) -> None:
        self._queues, self._order = queues, order
        self._lines: dict[PodAsk, dict[QueueNode, Line]] = {}
        self._waiters: dict[str, Waiter] = {}
        """The same by the UIDs of pods."""
        self._epoch = 0
        """Of the tree of queues when they were put there."""

    def __len__(self) -> int:
        return len(self._waiters)

    def waits(self, pod: PodState, ask: PodAsk) -> bool:
        """Whether the pod still waits for room for this."""
        waiter = self._waiters.get(pod.ref.uid)
        return waiter is not None and waiter.shape == ask and pod.state == "waiting"

    @property
    def asks(self) -> list[PodAsk]:
        """The shapes for which somebody waits."""
        return list(self._lines)

    @property
    def settled(self) -> bool:
        """Whether the queues are still those by which the lines were made."""
        return self._epoch == self._queues.epoch

    def of(self, ask: PodAsk) -> Mapping[QueueNode, Line]:
        """Who waits for room for this, by queue."""
        return self._lines.get(ask, {})

    def put(self, pod: PodState, ask: PodAsk) -> None:
        """The pod waits."""
        self._epoch = self._epoch if self._waiters else self._queues.epoch
        waiter = Waiter(pod, self._queues.home(pod.ref.uid), ask, self._turn(pod))
        self._waiters[pod.ref.uid] = waiter
        of_ask = self._lines.setdefault(ask, {})
        if waiter.queue not in of_ask:
            of_ask[waiter.queue] = SortedKeyList(key=TURN)
        of_ask[waiter.queue].add(waiter)

    def _turn(self, pod: PodState) -> Turn:
        """Where the pod stands. One that was requeued and did not come stands behind the others of its priority."""
        turn = self._order.of_pod(pod)
        return turn._replace(rank=math.inf) if pod.wakes else turn

    def forget(self, uid: str) -> Waiter | None:
        """The pod no longer waits; returns how it waited, None if it did not."""
        waiter = self._waiters.pop(uid, None)
        if waiter is not None:
            of_ask = self._lines[waiter.shape]
            of_ask[waiter.queue].remove(waiter)
            if not of_ask[waiter.queue]:
                del of_ask[waiter.queue]
            if not of_ask:
                del self._lines[waiter.shape]
        return waiter

    def moved(self, uid: str) -> None:
        """The pod, if it is one of them, is in another queue now."""
        waiter = self.forget(uid)
        if waiter is not None:
            self.put(waiter.name, waiter.shape)

    def reorder(self) -> None:
        """Their times are other ones now: all take the places that they have by those."""
        for uid in list(self._waiters):
            self.moved(uid)

    def settle(self) -> None:
        """Take in that there are other queues now."""
        if self.settled:
            return
        self._epoch = self._queues.epoch
        lines: dict[PodAsk, dict[QueueNode, list[Waiter]]] = {}
        for uid, (pod, _, ask, turn) in self._waiters.items():
            queue = self._queues.home(uid)
            self._waiters[uid] = waiter = Waiter(pod, queue, ask, turn)
            lines.setdefault(ask, {}).setdefault(queue, []).append(waiter)
        self._lines = {
            ask: {queue: SortedKeyList(those, key=TURN) for queue, those in of_ask.items()}
            for ask, of_ask in lines.items()
        }

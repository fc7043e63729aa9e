"""What queues may still use: up to their capability, without what is guaranteed to other queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from extender.engine.queueing.queue_node import LocalQueue, QueueNode
from extender.engine.queueing.queues import Queues
from extender.engine.queueing.usage import Takes
from extender.engine.types import refusals
from extender.engine.types.amounts import add
from protos.contract.queue import shown, worded
from protos.contract.reason import Reason

Less = Mapping[str, Mapping[str, int]]
"""By queue name: amounts that do not count, since they are about to be freed or are promised to the pods themselves."""
NOTHING: Less = MappingProxyType({})


class Quota:
    """The quota left for gangs, for pods and for reservations, of which it is the `Grants`. Owns nothing."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def together(self, uids: Iterable[str]) -> Takes:
        total: dict[str, int] = {}
        for uid in uids:
            add(total, self._queues.takes(uid))
        return tuple(sorted(total.items()))

    def own(self, local_queue: LocalQueue, uids: Iterable[str]) -> Less:
        """What is promised to these pods of the local queue."""
        promised = [uid for uid in uids if uid in self._queues.promised]
        total = dict(self.together(promised))
        return dict.fromkeys([s.name for s in self._queues.at(local_queue).upwards], total) if promised else {}

    def used_by(self, local_queue: LocalQueue, uid: str) -> Less:
        """What is promised to a placed pod of the local queue, and what it uses."""
        limiting = [queue_node.name for queue_node in self.limiting(local_queue)]
        if not limiting:
            return NOTHING
        total = dict(self._queues.takes(uid))
        add(total, self._queues.takes(uid) if uid in self._queues.promised else ())
        return dict.fromkeys(limiting, total)

    def shortage(self, local_queue: LocalQueue, takes: Takes, less: Less = NOTHING) -> Reason | None:
        """Why pods of the local queue may not use so much more, None if they may."""
        barred = self.barred(local_queue)
        if barred is not None:
            return barred
        below: QueueNode | None = None
        for queue_node in self._queues.at(local_queue).upwards:
            limits = queue_node.queue.capability or queue_node.idle
            why = self._beyond(queue_node, below, takes, less) if limits else None
            if why is not None:
                return why
            below = queue_node
        return None

    def barred(self, local_queue: LocalQueue) -> Reason | None:
        """Why no pod of the local queue starts, whatever quota is left; None if pods may start."""
        at = self._queues.at(local_queue)
        if local_queue.missing:
            return refusals.queue_missing(local_queue.named)
        if local_queue.refused:
            return refusals.queue_forbidden(local_queue.refused)
        if at.shut is None:
            return None
        if at.shut.queue.problem:
            return refusals.queue_unreadable(at.shut.name, at.shut.queue.problem)
        return refusals.queue_closed(at.shut.name)

    def limiting(self, local_queue: LocalQueue) -> Iterator[QueueNode]:
        """The queues of these pods that may be full."""
        at = self._queues.at(local_queue)
        return (queue_node for queue_node in at.upwards if queue_node.queue.capability or queue_node.idle)

    def _beyond(self, queue_node: QueueNode, below: QueueNode | None, takes: Takes, less: Less) -> Reason | None:
        """Why so much more exceeds the limits of one queue; `below`: the queue under it that requests it, if any.

        The guarantee of `below` comes before what is kept for others: guarantees may exceed what there is.
        """
        for resource, asked in takes:
            if asked <= 0:
                continue
            had = queue_node.allocated.get(resource, 0) + _promised(queue_node, resource, less)
            unmet = below.unmet(resource) if below is not None else 0
            guaranteed = below is not None and asked + max(0, _promised(below, resource, less)) <= unmet
            kept = 0 if guaranteed else queue_node.idle.get(resource, 0) - unmet
            most = queue_node.queue.capability.get(resource)
            if most is None and queue_node.above is None and kept > 0:
                most = self._queues.total.get(resource, 0)
            if most is not None and had + max(0, kept) + asked > most:
                return _too_much(queue_node, resource, most, had, kept, asked)
        return None

    # -- reservations of pods, by UID

    def promise(self, uid: str, yes: bool) -> None:
        self._queues.promise(uid, yes)

    def admits(self, uid: str, *, making: bool) -> bool:
        """Whether the queues of the pod have quota for it; `making`: pods are evicted for it, maybe of its own queue.

        Then what the queues have allocated does not count, but what they promise to other pods does.
        """
        local_queue = self._queues.of(uid)
        if local_queue is None:
            return False
        if not any(True for _ in self.limiting(local_queue)):
            return self.barred(local_queue) is None
        less = {name: dict(amounts) for name, amounts in self.own(local_queue, (uid,)).items()}
        for queue_node in self._queues.at(local_queue).upwards if making else ():
            add(less.setdefault(queue_node.name, {}), queue_node.allocated.items())
        return self.shortage(local_queue, self._queues.takes(uid), less) is None

    def queue(self, uid: str) -> object:
        return self._queues.of(uid)

    def turns(self) -> tuple[int, int]:
        """Two versions: they change when the answer for refused, and for admitted pods, may have changed."""
        terms = self._queues.epoch + self._queues.revalued
        return terms + self._queues.capacity_generation, terms


def _promised(queue_node: QueueNode, resource: str, less: Less) -> int:
    """What counts as promised to pods in the queue; negative if more than that is about to be freed."""
    return queue_node.promised.get(resource, 0) - less.get(queue_node.name, {}).get(resource, 0)


def _too_much(queue_node: QueueNode, resource: str, most: int, had: int, kept: int, asked: int) -> Reason:
    in_use = f"{shown(resource, had)} are in use"
    beside = f", {shown(resource, kept)} are guaranteed to others" if kept > 0 else ""
    numbers = f"{worded(resource, most)}: {in_use}{beside}, this asks {shown(resource, asked)}"
    if queue_node.above is None:
        return refusals.queue_reserved(f"the cluster has {numbers}")
    return refusals.queue_full(queue_node.name, f"queue {queue_node.name} may have {numbers}")

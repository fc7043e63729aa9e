"""Whether queues have quota for workloads that want to start, and which pending workloads follow when quota is free.

A queue has quota while it and all queues above it stay within their capability, beside what is guaranteed to others,
and none of them is closed. A gang asks for its smallest start. Single pods are requeued once their queue has quota.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from operator import attrgetter

from extender.engine.queueing.line import TURN, UID, Line, Waiter
from extender.engine.queueing.order import PendingOrder
from extender.engine.queueing.queue_node import LocalQueue, QueueNode
from extender.engine.queueing.queues import Queues
from extender.engine.queueing.quota import Quota
from extender.engine.queueing.usage import Takes
from extender.engine.state.pod_state import PodState
from extender.engine.types.amounts import add
from extender.engine.types.effects import Requeue
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from protos.contract.reason import Reason

MOST_WAKES = 25
"""Pods requeued at once, by `due` and in a round of `waking`; the others follow later."""
AGAIN_S, AGAIN_MOST_S = 10.0, 300.0
"""Seconds after which a pod that was requeued and did not come is requeued again: at first, and at most by doubling."""
Stamp = tuple[object, ...]


def again_after(requeued: int) -> float:
    """Seconds after which a pod that was requeued so often before, and did not come, is requeued again."""
    return min(AGAIN_MOST_S, AGAIN_S * 2.0 ** min(requeued, 16))


class Admission:
    """Decides by quota which gangs and single pods may start, and keeps those that wait for it."""

    def __init__(self, queues: Queues, order: PendingOrder) -> None:
        self._queues, self._order, self.batched = queues, order, queues.batched
        self.quota = Quota(queues)
        self._least: dict[GroupKey, tuple[Stamp, tuple[str, ...], Takes]] = {}
        """The members of a gang's smallest start and what they use; the stamp says when that is out of date."""
        self._withheld: dict[GroupKey, tuple[Stamp, Reason | None]] = {}
        self._parked: dict[LocalQueue, dict[GroupKey, None]] = {}
        self._generations: dict[LocalQueue, int] = {}
        """`_generation` of local queues when their parked gangs were last checked."""
        self._checked = (-1, -1, -1)
        """Epoch, prices and capacity generation of the queues when any parked gangs were last checked."""
        self._blocked = Line(UID)
        """Single pods that wait for quota."""
        self._again: dict[str, tuple[float, int]] = {}
        """The earliest time of the next requeue, and the number of requeues, by UID."""
        self._due_checked, self._due_again = -1, math.inf
        """The capacity generation when no more of the blocked pods were due, and when to look again all the same."""

    # -- gangs

    def local_queue(self, gang: Gang) -> LocalQueue:
        return self._queues.local_queue(gang.terms.queue, gang.key.namespace)

    def withheld(self, gang: Gang, least: Callable[[], Iterable[str]]) -> Reason | None:
        """Why a gang may not start; `least`: the members that its smallest start needs besides those that run."""
        local_queue = self.local_queue(gang)
        limits = tuple(s.version for s in self.quota.limiting(local_queue))
        made_of = self._queues.epoch, self._queues.prices, gang.turnover, gang.terms
        stamp = (made_of, limits)
        known = self._withheld.get(gang.key)
        if known is not None and known[0] == stamp:
            return known[1]
        if limits:
            start = self._least.get(gang.key)
            if start is None or start[0] != made_of:
                uids = tuple(least())
                start = self._least[gang.key] = made_of, uids, self.quota.together(uids)
            why = self.quota.shortage(local_queue, start[2], self.quota.own(local_queue, start[1]))
        else:
            why = self.quota.barred(local_queue)
        self._withheld[gang.key] = stamp, why
        return why

    def admits(self, gang: Gang, uids: Iterable[str]) -> Reason | None:
        """Why the gang's queue has no quota for all these members, None if it has."""
        local_queue, asking = self.local_queue(gang), list(uids)
        return self.quota.shortage(local_queue, self.quota.together(asking), self.quota.own(local_queue, asking))

    def started(self, key: GroupKey) -> None:
        """Forget what was computed for the gang while it was pending."""
        self._withheld.pop(key, None)
        self._least.pop(key, None)

    def drop(self, key: GroupKey) -> None:
        self.started(key)
        for local_queue, keys in list(self._parked.items()):
            keys.pop(key, None)
            if not keys:
                del self._parked[local_queue], self._generations[local_queue]

    def park(self, gang: Gang) -> None:
        """The gang waits for nothing but quota."""
        local_queue = self.local_queue(gang)
        self._parked.setdefault(local_queue, {})[gang.key] = None
        self._generations.setdefault(local_queue, self._generation(local_queue))

    def unparked(self) -> list[GroupKey]:
        """Remove and return the parked gangs that may have quota now, each regardless of the others."""
        queues, before = self._queues, self._checked
        self._checked = queues.epoch, queues.prices, queues.capacity_generation
        if not self._parked or before == self._checked:
            return []
        changed, ready = before[:2] != self._checked[:2], list[GroupKey]()
        for local_queue, keys in list(self._parked.items()):
            generation = self._generation(local_queue)
            if not changed and generation == self._generations[local_queue]:
                continue
            self._generations[local_queue] = generation
            fitting = list(keys if changed else self._fitting(local_queue, keys))
            for key in fitting:
                del keys[key]
            ready += fitting
            if not keys:
                del self._parked[local_queue], self._generations[local_queue]
        return sorted(ready)

    def _generation(self, local_queue: LocalQueue) -> int:
        """Changes when quota for pods of the local queue may have become free."""
        return sum(queue_node.capacity_generation for queue_node in self.quota.limiting(local_queue))

    def _fitting(self, local_queue: LocalQueue, keys: Iterable[GroupKey]) -> Iterator[GroupKey]:
        """The gangs of `keys` that have quota; gangs that ask the same are computed once."""
        known: dict[Takes, bool] = {}
        for key in keys:
            takes = self._least[key][2] if key in self._least else ()
            if takes not in known:
                promised = {queue_node.name: queue_node.promised for queue_node in self._queues.at(local_queue).upwards}
                known[takes] = self.quota.shortage(local_queue, takes, promised) is None
            if known[takes]:
                yield key

    def queue_rank(self, local_queue: LocalQueue) -> tuple[tuple[int, float], ...]:
        """The rank of the queue among queues, the lowest first."""
        return self._queues.at(local_queue).rank

    # -- single pods

    def block(self, pod: PodState) -> None:
        """The pod waits for quota."""
        self.forget(pod.ref.uid)
        local_queue = self._queues.of(pod.ref.uid)
        if local_queue is not None:
            self._blocked.join(Waiter(pod, local_queue, pod.ask, self._order.of_pod(pod)))

    def moved(self, uid: str) -> None:
        """The pod, if it waits for quota, is in another queue, which may have some."""
        waiter = self._blocked.get(uid)
        if waiter is not None:
            self.block(waiter.name)
            self._due_checked = -1

    def forget(self, uid: str) -> None:
        """The pod no longer waits for quota."""
        self._again.pop(uid, None)
        self._blocked.leave(uid)

    def reorder(self) -> None:
        """The wall clock was set: compute all places again."""
        for waiter in self._blocked:
            self.block(waiter.name)

    def due(self, now: float) -> list[Requeue]:
        """The pods to requeue now: queue by queue in the order of their ranks, no more than there is quota for.

        Where no pod may start, those are requeued that were refused for another reason: they get this one.
        """
        unchanged = self._due_checked == self._queues.capacity_generation and now < self._due_again
        if not self._blocked or unchanged:
            return []
        self._due_again = math.inf
        requeues: list[Requeue] = []
        queues: dict[QueueNode, list[LocalQueue]] = {}
        for local_queue in self._blocked.queues:
            queues.setdefault(self._queues.at(local_queue), []).append(local_queue)
        for queue_node in sorted(queues, key=attrgetter("rank")):
            requeues += self._due(queues[queue_node], MOST_WAKES - len(requeues), now)
        if len(requeues) < MOST_WAKES:
            self._due_checked = self._queues.capacity_generation
        return requeues

    def _due(self, local_queues: list[LocalQueue], most: int, now: float) -> list[Requeue]:
        """The pods to requeue of all local queues of one queue."""
        given: dict[str, int] = {}
        too_much: set[Takes] = set()
        requeues: list[Requeue] = []
        why = {local_queue: self.quota.barred(local_queue) for local_queue in local_queues}
        for pod, local_queue, _, _ in merge(*(self._blocked.queues[each] for each in local_queues), key=TURN):
            barred = why[local_queue]
            if barred is not None and (pod.refusal is None or pod.refusal.sentence == barred.sentence):
                continue
            if len(requeues) == most:
                break
            takes = self._queues.takes(pod.ref.uid)
            if takes in too_much and pod.ref.uid not in self._queues.promised:
                continue
            own = self.quota.own(local_queue, (pod.ref.uid,))
            if barred is None:
                both = dict(given)
                add(both, takes)
                if self.quota.shortage(local_queue, tuple(both.items()), own) is not None:
                    too_much.add(takes)
                    continue
                given = both
            again_at, requeued = self._again.get(pod.ref.uid, (now, 0))
            if now >= again_at:
                again_at = now + again_after(requeued)
                self._again[pod.ref.uid] = again_at, requeued + 1
                requeues.append(Requeue(pod.ref))
            self._due_again = min(self._due_again, again_at)
        return requeues

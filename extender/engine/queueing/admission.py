"""Whether queues have room for who wants to start, and who of those that wait for that comes when there is some.

A queue has room while it and all above it stay within their capability with what is guaranteed to others beside, and
none of them is closed. Pods of namespaces that it does not admit start nowhere. Gangs ask for their smallest start;
pods that go singly are woken once their queue has room.
"""

from __future__ import annotations

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
"""Pods woken at once; the rest comes with the next look."""
AGAIN_S = 10.0
"""Seconds after which a pod that was woken and did not come may be woken again."""
Stamp = tuple[object, ...]


class Admission:
    """Who may start by what its queue may have."""

    def __init__(self, queues: Queues, order: PendingOrder) -> None:
        self._queues, self._order, self.batched = queues, order, queues.batched
        self.quota = Quota(queues)
        self._asked: dict[GroupKey, tuple[Stamp, tuple[str, ...], Takes]] = {}
        """What the smallest start of a gang takes, and of what that was made."""
        self._told: dict[GroupKey, tuple[Stamp, Reason | None]] = {}
        self._parked: dict[LocalQueue, dict[GroupKey, None]] = {}
        self._looked: dict[LocalQueue, int] = {}
        """The room when they were looked at."""
        self._seen = (-1, -1, -1)
        """The tree, the prices and the gains when any were looked at."""
        self._blocked = Line(UID)
        """Single pods that wait for room in their queue."""
        self._woken: dict[str, float] = {}
        """Until when those that were woken are not woken again."""
        self._gains = -1

    # -- gangs

    def local_queue(self, gang: Gang) -> LocalQueue:
        """The account that the gang's members are in."""
        return self._queues.local_queue(gang.terms.queue, gang.key.namespace)

    def withheld(self, gang: Gang, least: Callable[[], Iterable[str]]) -> Reason | None:
        """Why a gang may not start; `least`: the members that its smallest start needs besides those that run."""
        local_queue = self.local_queue(gang)
        limits = tuple(s.version for s in self.quota.limiting(local_queue))
        made_of = self._queues.epoch, self._queues.prices, gang.turnover, gang.terms
        stamp = (made_of, limits)
        told = self._told.get(gang.key)
        if told is None or told[0] != stamp:
            why = self._short_of_least(gang, local_queue, made_of, least) if limits else self.quota.barred(local_queue)
            told = self._told[gang.key] = stamp, why
        return told[1]

    def _short_of_least(
        self, gang: Gang, local_queue: LocalQueue, made_of: Stamp, least: Callable[[], Iterable[str]]
    ) -> Reason | None:
        """Why there is no room for the smallest start, but for what is promised to those of it."""
        asked = self._asked.get(gang.key)
        if asked is None or asked[0] != made_of:
            uids = tuple(least())
            asked = self._asked[gang.key] = made_of, uids, self.quota.together(uids)
        return self.quota.shortage(local_queue, asked[2], self.quota.own(local_queue, asked[1]))

    def admits(self, gang: Gang, uids: Iterable[str]) -> Reason | None:
        """Why the queue of a gang has no room for all these members, None if it has."""
        local_queue, asking = self.local_queue(gang), list(uids)
        return self.quota.shortage(local_queue, self.quota.together(asking), self.quota.own(local_queue, asking))

    def started(self, key: GroupKey) -> None:
        """What was found out of the gang while it waited is not asked any more."""
        self._told.pop(key, None)
        self._asked.pop(key, None)

    def drop(self, key: GroupKey) -> None:
        """The gang is none any more."""
        self.started(key)
        for local_queue, keys in list(self._parked.items()):
            keys.pop(key, None)
            if not keys:
                self._leave(local_queue)

    def park(self, gang: Gang) -> None:
        """The gang waits for nothing but room in its queue."""
        local_queue = self.local_queue(gang)
        self._parked.setdefault(local_queue, {})[gang.key] = None
        self._looked.setdefault(local_queue, self._room(local_queue))

    def unparked(self) -> list[GroupKey]:
        """The parked gangs that may have room by now, told once: each alone, whatever the others take."""
        seen, self._seen = self._seen, (self._queues.epoch, self._queues.prices, self._queues.capacity_generation)
        if not self._parked or seen == self._seen:
            return []
        anew, found = seen[:2] != self._seen[:2], list[GroupKey]()
        for local_queue, keys in list(self._parked.items()):
            room = self._room(local_queue)
            if not anew and room == self._looked[local_queue]:
                continue
            self._looked[local_queue] = room
            ready = list(keys if anew else self._fitting(local_queue, keys))
            for key in ready:
                del keys[key]
            found += ready
            if not keys:
                self._leave(local_queue)
        return sorted(found)

    def _leave(self, local_queue: LocalQueue) -> None:
        """None of the account is parked any more."""
        del self._parked[local_queue], self._looked[local_queue]

    def _room(self, local_queue: LocalQueue) -> int:
        """Changes when there may have come room for pods of this account."""
        return sum(queue_node.capacity_generation for queue_node in self.quota.limiting(local_queue))

    def _fitting(self, local_queue: LocalQueue, keys: Iterable[GroupKey]) -> Iterator[GroupKey]:
        """Those of these gangs that have room; many ask the same."""
        known: dict[Takes, bool] = {}
        for key in keys:
            takes = self._asked[key][2] if key in self._asked else ()
            if takes not in known:
                promised = {queue_node.name: queue_node.promised for queue_node in self._queues.at(local_queue).upwards}
                known[takes] = self.quota.shortage(local_queue, takes, promised) is None
            if known[takes]:
                yield key

    def queue_rank(self, local_queue: LocalQueue) -> tuple[tuple[int, float], ...]:
        """Whose turn it is among queues, least first."""
        return self._queues.at(local_queue).rank

    # -- pods that go singly

    def single(self, pod: PodState) -> Reason | None:
        """Why the pod's queue has no room for it, None if it has."""
        uid = pod.ref.uid
        local_queue = self._queues.of(uid)
        if local_queue is None:
            return None
        return self.quota.shortage(local_queue, self._queues.takes(uid), self.quota.own(local_queue, (uid,)))

    def block(self, pod: PodState) -> None:
        """The pod waits for room in its queue."""
        self.forget(pod.ref.uid)
        local_queue = self._queues.of(pod.ref.uid)
        if local_queue is not None:
            self._blocked.join(Waiter(pod, local_queue, pod.ask, self._order.of_pod(pod)))

    def forget(self, uid: str) -> None:
        """The pod does not wait for that any more."""
        self._woken.pop(uid, None)
        self._blocked.leave(uid)

    def reorder(self) -> None:
        """The times of pods are other ones now: all take the places that they have by those."""
        for waiter in self._blocked:
            self.block(waiter.name)

    def due(self, now: float) -> list[Requeue]:
        """The pods to wake now: of each queue in turn, no more than there is room for.

        Where nothing starts those are woken that were told another reason for that.
        """
        if not self._blocked or self._gains == self._queues.capacity_generation:
            return []
        wakes: list[Requeue] = []
        queues: dict[QueueNode, list[LocalQueue]] = {}
        for local_queue in self._blocked.queues:
            queues.setdefault(self._queues.at(local_queue), []).append(local_queue)
        for queue_node in sorted(queues, key=attrgetter("rank")):
            wakes += self._due(queues[queue_node], MOST_WAKES - len(wakes), now)
        if len(wakes) < MOST_WAKES:
            self._gains = self._queues.capacity_generation
        return wakes

    def _due(self, local_queues: list[LocalQueue], most: int, now: float) -> list[Requeue]:
        """Of one queue, whatever namespaces its pods are of."""
        given: dict[str, int] = {}
        too_much: set[Takes] = set()
        wakes: list[Requeue] = []
        why = {local_queue: self.quota.barred(local_queue) for local_queue in local_queues}
        for pod, local_queue, _, _ in merge(*(self._blocked.queues[each] for each in local_queues), key=TURN):
            barred = why[local_queue]
            if barred is not None and (pod.refusal is None or pod.refusal.sentence == barred.sentence):
                continue
            if len(wakes) == most:
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
            if now >= self._woken.get(pod.ref.uid, now):
                self._woken[pod.ref.uid] = now + AGAIN_S
                wakes.append(Requeue(pod.ref))
        return wakes

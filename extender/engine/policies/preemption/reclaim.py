"""Whose room a preemptor may take: in its queue by priority, from other queues what they have above their fair share.

Surplus members of elastic gangs yield to pending pods of their queue at equal priority too: they came into room that no
other workload requested. They preempt nothing themselves, so the room is not taken back.

Two queues are compared where their paths up the tree part. There the preemptor's queue, and each queue below it down to
the pods, must stay within its fair share with what it gets. The other queue, and each below it, must have more than its
fair share and keeps that share. If that is not enough, the largest unit taken may leave it less, but it must then lack
less than the preemptor's queue did. So the largest lack shrinks with each reclaim, and the room is not taken back. If
the preemptor's queue has a higher priority, the other keeps only its deserved amount. A queue gets its guarantee back
from queues that are not reclaimable too, and down to their guarantee.

Amounts are those of this moment: pods that leave anyway are gone, and the preemptor's queue has what others are being
evicted for. Sources: Volcano's plugins proportion and capacity (who gives, checked at every ancestor), KAI-Scheduler
(who may ask).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence

import msgspec

from extender.engine.policies.preemption.units import MayTake, Unit, pieces, price
from extender.engine.queueing.queue_node import LocalQueue, QueueNode
from extender.engine.queueing.queue_tree import SAME
from extender.engine.queueing.queues import Queues
from extender.engine.queueing.quota import Quota
from extender.engine.queueing.usage import Takes
from extender.engine.types.amounts import add
from protos.contract.queue import Queue, worded


class Level(msgspec.Struct, eq=False):
    """A queue on the path from the root to some pods; the last is those pods alone if queues are beside them."""

    queue: Queue
    """The queue; for pods alone the one that they are in."""
    priority: int
    had: dict[str, int]
    due: Mapping[str, float]
    deserved: Mapping[str, int]
    guarantee: Mapping[str, int]
    coming: dict[str, int]
    """Requests of its pods for which others are being evicted already."""
    contested: frozenset[str]
    """Resources of which it and its siblings request more than there is."""

    def over(self, resource: str) -> float:
        """What it has above its fair share."""
        return self.had.get(resource, 0) - self.due.get(resource, 0.0)

    def within(self, limit: Mapping[str, float], takes: Takes) -> bool:
        """Whether it stays within the limit with so much more, and with what is coming."""
        had, coming = self.had, self.coming
        more = ((name, had.get(name, 0) + coming.get(name, 0) + amount) for name, amount in takes if amount > 0)
        return all(amount <= limit.get(name, 0) + SAME for name, amount in more)


Reclaimed = tuple[dict[str, int], dict[str, int]]
"""What a queue gives in all, and the most that one unit takes, by resource."""


class ReclaimLimit(msgspec.Struct, frozen=True):
    """What may be taken from a queue."""

    levels: Sequence[Level]
    """The levels that must keep something."""
    resources: frozenset[str]
    """The resources of which they must keep it."""
    over: frozenset[str]
    """Resources of which they have more than their fair share."""
    floors: Sequence[Mapping[str, float]]
    """What each level must keep."""
    lacking: Mapping[str, float]
    """What the preemptor's queue lacks."""

    def keeps(self, gone: Mapping[Level, Reclaimed], *, overshoot: bool) -> bool:
        """Whether all levels keep what they must without so much.

        `overshoot`: a level may fall below by the largest unit, if it then lacks less than the preemptor's queue.
        """
        for level, floor in zip(self.levels, self.floors, strict=True):
            freed, largest = gone[level]
            for resource in self.resources & freed.keys():
                lacks = floor.get(resource, 0) - level.had.get(resource, 0) + freed[resource]
                if not freed[resource] or lacks <= SAME:
                    continue
                by_one = largest[resource] - lacks > SAME
                if not overshoot or not by_one or lacks >= self.lacking[resource] - SAME:
                    return False
        return True


class ReclaimPolicy:
    """What a preemptor may take, as of the moment when this is made."""

    def __init__(
        self,
        queues: Queues,
        quota: Quota,
        uids: Sequence[str],
        priority: int,
        *,
        going: Iterable[str] = (),
        coming: Iterable[str] = (),
    ) -> None:
        """For these pending pods (UIDs). `going` leave anyway; for `coming` other pods are being evicted already."""
        self._queues, self._quota, self._priority = queues, quota, priority
        self._levels: dict[tuple[QueueNode, bool], Level] = {}
        self._paths: dict[LocalQueue, Sequence[Level]] = {}
        self._limits: dict[LocalQueue, ReclaimLimit | None] = {}
        for uid in going:
            for level in self._above(uid):
                add(level.had, queues.takes(uid), -1)
        for uid in coming:
            for level in self._above(uid):
                add(level.coming, queues.takes(uid))
        self._local_queue = queues.of(uids[0])
        self._requests = quota.together(uids)
        self._takes = tuple((name, amount) for name, amount in self._requests if name in queues.fair)
        self._gone = [*going, *(uid for uid in uids if uid in queues.promised)]
        own = self._local_queue
        self._unlimited = own is None or quota.shortage(own, self._requests, self._less(self._gone)) is None

    # -- what may be taken

    def may_take(self, unit: Unit) -> bool:
        """Whether the unit may go, if no other does."""
        local_queue = self._queues.of(unit.victims[0].uid)
        if local_queue is None or self._is_own(local_queue):
            return unit.priority < self._priority + unit.yields
        limit = self._limit(unit)
        return limit is not None and any(
            amount > 0 and name in limit.over
            for victim in unit.victims
            for name, amount in self._queues.takes(victim.uid)
        )

    def tally(self, *, overshoot: bool) -> MayTake:
        """Adds up units that go together, and says of each whether all queues keep what they must without it too.

        `overshoot`: the largest unit may leave a queue less than it must keep. A pod in two units counts once.
        """
        seen: set[str] = set()
        gone: dict[Level, Reclaimed] = {}

        def take(unit: Unit) -> bool:
            limit = self._limit(unit)
            if limit is None:
                return True
            new = [victim.uid for victim in unit.victims if victim.uid not in seen]
            takes: dict[str, int] = {}
            for uid in new:
                add(takes, self._queues.takes(uid))
            with_unit = {level: _more(gone.get(level, ({}, {})), takes) for level in limit.levels}
            if not limit.keeps(with_unit, overshoot=overshoot):
                return False
            gone.update(with_unit)
            seen.update(new)
            return True

        return take

    def allow(self, units: Sequence[Unit]) -> bool:
        """Whether all of these may go together."""
        return all(map(self.may_take, units)) and all(map(self.tally(overshoot=True), units))

    def roomy(self, units: Iterable[Unit]) -> Generator[int, None, bool]:
        """Whether the preemptor's queue, and each above it, has quota left once these units are gone."""
        if self._unlimited or self._local_queue is None:
            return True
        less, counted = self._less(self._gone), set(self._gone)
        for piece in pieces(units):
            uids = {victim.uid: None for unit in piece for victim in unit.victims if victim.uid not in counted}
            counted.update(uids)
            for name, amounts in self._less(uids).items():
                add(less.setdefault(name, {}), amounts.items())
            yield price(piece)
        return self._quota.shortage(self._local_queue, self._requests, less) is None

    def _less(self, uids: Iterable[str]) -> dict[str, dict[str, int]]:
        """What does not count in the preemptor's queue and those above it without these pods, by queue name."""
        assert self._local_queue is not None
        own = {queue_node.name for queue_node in self._queues.at(self._local_queue).path}
        less: dict[str, dict[str, int]] = {}
        for uid in dict.fromkeys(uids):
            local_queue = self._queues.of(uid)
            for queue_node in self._queues.at(local_queue).path if local_queue is not None else ():
                if queue_node.name in own:
                    add(less.setdefault(queue_node.name, {}), self._queues.takes(uid))
            add(less.setdefault(self._queues.root.name, {}), self._queues.takes(uid))
        return less

    def marked(self, unit: Unit) -> Unit:
        """The unit with what its queue has and is due, if it is in another queue."""
        limit = self._limit(unit)
        if limit is None:
            return unit
        name, level = max(limit.over), limit.levels[0]
        had, due = (worded(name, amount) for amount in (level.had.get(name, 0), level.due.get(name, 0.0)))
        return msgspec.structs.replace(unit, over_quota=f"queue {level.queue.name} has {had}, {due} are its due")

    # -- limits

    def _limit(self, unit: Unit) -> ReclaimLimit | None:
        """What may be taken from the unit's queue; None if nothing, or if it is the preemptor's own."""
        local_queue = self._queues.of(unit.victims[0].uid)
        if local_queue is None:
            return None
        if local_queue not in self._limits:
            self._limits[local_queue] = None if self._is_own(local_queue) else self._limit_of(local_queue)
        return self._limits[local_queue]

    def _is_own(self, local_queue: LocalQueue) -> bool:
        return self._local_queue is None or self._queues.at(local_queue) is self._queues.at(self._local_queue)

    def _limit_of(self, local_queue: LocalQueue) -> ReclaimLimit | None:
        assert self._local_queue is not None
        own, theirs = self._path(self._local_queue), self._path(local_queue)
        while own[0] is theirs[0]:
            own, theirs = own[1:], theirs[1:]
        resources = frozenset(name for name, more in self._takes if more > 0) & own[0].contested
        over = frozenset(name for name in resources if all(level.over(name) > SAME for level in theirs))
        if not over:
            return None
        needed = tuple((name, more) for name, more in self._takes if name in resources)
        limits: list[Mapping[str, float]]
        floors: list[Mapping[str, float]]
        if all(level.within(level.guarantee, needed) for level in own):
            limits, floors = [level.guarantee for level in own], [level.guarantee for level in theirs]
        elif all(level.within(level.due, self._takes) for level in own) and all(
            other.queue.reclaimable for other in theirs
        ):
            prior = own[0].priority > theirs[0].priority
            limits = [level.due for level in own]
            floors = [level.deserved if prior else level.due for level in theirs]
        else:
            return None
        lacking = {
            name: min(
                limit.get(name, 0) - level.had.get(name, 0) - level.coming.get(name, 0)
                for level, limit in zip(own, limits, strict=True)
            )
            for name in resources
        }
        return ReclaimLimit(theirs, resources, over, floors, lacking)

    def _above(self, uid: str) -> Sequence[Level]:
        local_queue = self._queues.of(uid)
        return self._path(local_queue) if local_queue is not None else ()

    def _path(self, local_queue: LocalQueue) -> Sequence[Level]:
        """From the top of the tree down to the pods of a local queue."""
        if local_queue not in self._paths:
            at = self._queues.at(local_queue)
            path = [self._level(queue_node, own=False) for queue_node in reversed(list(at.path))]
            self._paths[local_queue] = [*path, self._level(at, own=True)] if at.below else path
        return self._paths[local_queue]

    def _level(self, at: QueueNode, *, own: bool) -> Level:
        """A queue, or (`own`) only the pods directly in it."""
        level = self._levels.get((at, own))
        if level is None:
            above = at if own else at.above
            contested = above.contested if above is not None else frozenset[str]()
            had = at.own_allocated if own else dict(at.allocated)
            queue, due = (Queue(name=at.name), at.own_due) if own else (at.queue, at.due)
            deserved = {r: max(queue.guarantee.get(r, 0), queue.deserved.get(r, 0)) for r in due}
            level = Level(at.queue, queue.priority, had, due, deserved, queue.guarantee, {}, contested)
            self._levels[at, own] = level
        return level


def _more(before: Reclaimed, takes: Mapping[str, int]) -> Reclaimed:
    freed, largest = dict(before[0]), dict(before[1])
    for name, amount in takes.items():
        freed[name] = freed.get(name, 0) + amount
        largest[name] = max(largest.get(name, 0), amount)
    return freed, largest

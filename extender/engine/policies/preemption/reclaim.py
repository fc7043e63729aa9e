"""Whose room one that waits may take: inside its queue by priority, from other queues what they have beyond their due.

Inside a queue what a gang can spare is behind those that wait at the same priority, so they may take that too: it came
into room that nobody asked for then. It takes nothing itself, so it is not taken back.

Two queues are compared where their ways up the tree part. There the one that wants, and every queue on its way down to
the pods, must stay within its due with what it gets; the other, and every queue on that way, must have more than its
due and keeps its due. If that is not enough, the largest that goes may leave it less, but lacking less than the first
did: so what is lacking most becomes ever less, and nobody is within a right to take it back. For a queue of a higher
priority the other keeps what it deserves. What is guaranteed to a queue it gets back from queues that are not
reclaimable too, and down to what is guaranteed to those.

Amounts are those of the moment: what goes anyway is gone, and who wants has what others go for already. Sources:
Volcano's plugins proportion and capacity (who gives, checked at every ancestor), KAI-Scheduler (who may ask).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

import msgspec

from extender.engine.policies.preemption.units import Unit, pieces, price
from extender.engine.queueing.queue_node import LocalQueue, QueueNode
from extender.engine.queueing.queue_tree import SAME
from extender.engine.queueing.queues import Queues
from extender.engine.queueing.quota import Quota
from extender.engine.queueing.usage import Takes
from extender.engine.types.amounts import add
from protos.contract.queue import Queue, worded


class Level(msgspec.Struct, eq=False):
    """A queue on the way from the root to some pods; the last is those pods alone if there are queues beside them."""

    queue: Queue
    """The queue, of these pods alone that which they are in."""
    priority: int
    had: dict[str, int]
    due: Mapping[str, float]
    deserved: Mapping[str, int]
    guarantee: Mapping[str, int]
    coming: dict[str, int]
    """What those of them ask for whom others go already."""
    contested: frozenset[str]
    """What it and those beside it do not all get of what they ask."""

    def over(self, resource: str) -> float:
        """What it has beyond its due."""
        return self.had.get(resource, 0) - self.due.get(resource, 0.0)

    def within(self, limit: Mapping[str, float], takes: Takes) -> bool:
        """Whether it stays within that with so much more, and with what is coming."""
        had, coming = self.had, self.coming
        more = ((name, had.get(name, 0) + coming.get(name, 0) + amount) for name, amount in takes if amount > 0)
        return all(amount <= limit.get(name, 0) + SAME for name, amount in more)


class ReclaimLimit(msgspec.Struct, frozen=True):
    """What may be taken of a queue."""

    levels: Sequence[Level]
    """Those that must keep something."""
    resources: frozenset[str]
    """Of what they must keep it."""
    over: frozenset[str]
    """Of what they have more than their due."""
    floors: Sequence[Mapping[str, float]]
    """What they must keep."""
    lacking: Mapping[str, float]
    """What the queue that wants lacks."""

    def keeps(self, gone: Mapping[Level, Reclaimed], *, overshoot: bool) -> bool:
        """Whether all keep what they must without so much.

        `overshoot`: or would without the largest of it, and then lack less than the queue that wants.
        """
        for level, floor in zip(self.levels, self.floors, strict=True):
            for resource in self.resources:
                freed = gone[level].freed.get(resource, 0)
                lacks = floor.get(resource, 0) - level.had.get(resource, 0) + freed
                if not freed or lacks <= SAME:
                    continue
                by_one = gone[level].largest.get(resource, 0) - lacks > SAME
                if not overshoot or not by_one or lacks >= self.lacking[resource] - SAME:
                    return False
        return True


class Reclaimed:
    """What a queue gives."""

    def __init__(self) -> None:
        self.freed: dict[str, int] = {}
        self.largest: dict[str, int] = {}
        """Of one that goes."""

    def more(self, takes: Iterable[tuple[str, int]]) -> Reclaimed:
        """The same, and one more."""
        made = Reclaimed()
        made.freed, made.largest = dict(self.freed), dict(self.largest)
        for name, amount in takes:
            made.freed[name] = made.freed.get(name, 0) + amount
            made.largest[name] = max(made.largest.get(name, 0), amount)
        return made


class ReclaimPolicy:
    """What one that waits may take, as things stand when this is made."""

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
        """For these pods (UIDs) that wait; `going` leave anyway, for `coming` others leave already."""
        self._queues, self._quota, self._priority = queues, quota, priority
        self._levels: dict[tuple[QueueNode, bool], Level] = {}
        self._ways: dict[LocalQueue, Sequence[Level]] = {}
        self._claims: dict[LocalQueue, ReclaimLimit | None] = {}
        for uid in going:
            for level in self._over(uid):
                add(level.had, queues.takes(uid), -1)
        for uid in coming:
            for level in self._over(uid):
                add(level.coming, queues.takes(uid))
        self._local_queue = queues.of(uids[0])
        self._asked = quota.together(uids)
        self._takes = tuple((name, amount) for name, amount in self._asked if name in queues.fair)
        self._gone = [*going, *(uid for uid in uids if uid in queues.promised)]
        mine = self._local_queue
        self._unlimited = mine is None or quota.shortage(mine, self._asked, self._less(self._gone)) is None

    # -- who

    def may_take(self, unit: Unit) -> bool:
        """Whether the unit may go, if nobody else does."""
        local_queue = self._queues.of(unit.victims[0].uid)
        if local_queue is None or self._is_own(local_queue):
            return unit.priority < self._priority + unit.spare
        claim = self._claim_on(unit)
        return claim is not None and any(
            amount > 0 and name in claim.over
            for victim in unit.victims
            for name, amount in self._queues.takes(victim.uid)
        )

    def tally(self, *, overshoot: bool) -> Tally:
        """Adds up units that go together; `overshoot`: the largest may leave a queue less than it is to keep."""
        return Tally(self._queues, self._claim_on, overshoot=overshoot)

    def allow(self, units: Sequence[Unit]) -> bool:
        """Whether all of these may go together."""
        return all(map(self.may_take, units)) and all(map(self.tally(overshoot=True).add, units))

    def roomy(self, units: Iterable[Unit]) -> Generator[int, None, bool]:
        """Whether all queues that limit what those have who want may have that too once these are gone."""
        if self._unlimited or self._local_queue is None:
            return True
        less, counted = self._less(self._gone), set(self._gone)
        for some in pieces(units):
            uids = {victim.uid: None for unit in some for victim in unit.victims if victim.uid not in counted}
            counted.update(uids)
            for name, amounts in self._less(uids).items():
                add(less.setdefault(name, {}), amounts.items())
            yield price(some)
        return self._quota.shortage(self._local_queue, self._asked, less) is None

    def _less(self, uids: Iterable[str]) -> dict[str, dict[str, int]]:
        """What of the queues that limit those who want does not count without these pods, by the names of queues."""
        assert self._local_queue is not None
        mine = {queue_node.name for queue_node in self._queues.at(self._local_queue).path}
        less: dict[str, dict[str, int]] = {}
        for uid in dict.fromkeys(uids):
            local_queue = self._queues.of(uid)
            for queue_node in self._queues.at(local_queue).path if local_queue is not None else ():
                if queue_node.name in mine:
                    add(less.setdefault(queue_node.name, {}), self._queues.takes(uid))
            add(less.setdefault(self._queues.root.name, {}), self._queues.takes(uid))
        return less

    def marked(self, unit: Unit) -> Unit:
        """The unit with what its queue has and is due, if it is of another."""
        claim = self._claim_on(unit)
        if claim is None:
            return unit
        name, level = max(claim.over), claim.levels[0]
        had, due = (worded(name, amount) for amount in (level.had.get(name, 0), level.due.get(name, 0.0)))
        return msgspec.structs.replace(unit, over_quota=f"queue {level.queue.name} has {had}, {due} are its due")

    # -- what may be claimed

    def _claim_on(self, unit: Unit) -> ReclaimLimit | None:
        """What may be taken of the queue that the unit is in."""
        local_queue = self._queues.of(unit.victims[0].uid)
        if local_queue is None:
            return None
        if local_queue not in self._claims:
            self._claims[local_queue] = None if self._is_own(local_queue) else self._claimed(local_queue)
        return self._claims[local_queue]

    def _is_own(self, local_queue: LocalQueue) -> bool:
        """Whether these pods are in the queue of those that wait."""
        return self._local_queue is None or self._queues.at(local_queue) is self._queues.at(self._local_queue)

    def _claimed(self, local_queue: LocalQueue) -> ReclaimLimit | None:
        assert self._local_queue is not None
        mine, theirs = self._way(self._local_queue), self._way(local_queue)
        while mine[0] is theirs[0]:
            mine, theirs = mine[1:], theirs[1:]
        resources = frozenset(name for name, more in self._takes if more > 0) & mine[0].contested
        over = frozenset(name for name in resources if all(level.over(name) > SAME for level in theirs))
        if not over:
            return None
        needed = tuple((name, more) for name, more in self._takes if name in resources)
        if all(level.within(level.guarantee, needed) for level in mine):
            lacking = _lacking(mine, [level.guarantee for level in mine], resources)
            return ReclaimLimit(theirs, resources, over, [level.guarantee for level in theirs], lacking)
        entitled = all(level.within(level.due, self._takes) for level in mine)
        if not entitled or not all(level.queue.reclaimable for level in theirs):
            return None
        prior = mine[0].priority > theirs[0].priority
        floors = [level.deserved if prior else level.due for level in theirs]
        return ReclaimLimit(theirs, resources, over, floors, _lacking(mine, [level.due for level in mine], resources))

    def _over(self, uid: str) -> Sequence[Level]:
        local_queue = self._queues.of(uid)
        return self._way(local_queue) if local_queue is not None else ()

    def _way(self, local_queue: LocalQueue) -> Sequence[Level]:
        """From the top of the tree down to the pods of an account."""
        if local_queue not in self._ways:
            at = self._queues.at(local_queue)
            path = [self._level(queue_node, own=False) for queue_node in reversed(list(at.path))]
            self._ways[local_queue] = [*path, self._level(at, own=True)] if at.below else path
        return self._ways[local_queue]

    def _level(self, at: QueueNode, *, own: bool) -> Level:
        """A queue, or only the pods directly in it."""
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


def _lacking(
    levels: Sequence[Level], limits: Sequence[Mapping[str, float]], resources: Iterable[str]
) -> dict[str, float]:
    """What all of these still lack of that, with what is coming."""
    return {
        name: min(
            limit.get(name, 0) - level.had.get(name, 0) - level.coming.get(name, 0)
            for level, limit in zip(levels, limits, strict=True)
        )
        for name in resources
    }


class Tally:
    """What queues give, added up; a pod that is of two units counts once."""

    def __init__(self, queues: Queues, claim: Callable[[Unit], ReclaimLimit | None], *, overshoot: bool) -> None:
        self._queues, self._claim, self._crossing = queues, claim, overshoot
        self._seen: set[str] = set()
        self._gone: dict[Level, Reclaimed] = {}

    def add(self, unit: Unit) -> bool:
        """Have the unit go too, if all keep what they must without it; returns whether they do."""
        claim = self._claim(unit)
        if claim is None:
            return True
        new = [victim.uid for victim in unit.victims if victim.uid not in self._seen]
        takes: dict[str, int] = {}
        for uid in new:
            add(takes, self._queues.takes(uid))
        gone = {level: self._gone.get(level, Reclaimed()).more(takes.items()) for level in claim.levels}
        if not claim.keeps(gone, overshoot=self._crossing):
            return False
        self._gone |= gone
        self._seen.update(new)
        return True

"""A queue in the tree with its amounts, and the local queues of pods that are in it."""

from __future__ import annotations

from collections.abc import Iterator

from extender.engine.queueing import shares
from extender.engine.queueing.usage import Takes
from extender.engine.types.amounts import add
from protos.contract.queue import DEFAULT, Queue

ALWAYS = Queue(name=DEFAULT, source="")
"""The queue `default` where no object defines it."""


class QueueNode:
    """A queue in the tree. Its amounts are sums over the pods in it and in the queues below, unless said otherwise."""

    __slots__ = (
        "above", "allocated", "below", "capacity_generation", "contested", "due", "idle", "known_part", "misplaced",
        "own", "own_due", "promised", "queue", "requested", "running", "shut", "strangers", "version", "waiting",
    )  # fmt: skip

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.above: QueueNode | None = None
        """None only for the root."""
        self.below: list[QueueNode] = []
        self.shut: QueueNode | None = None
        """The closed queue, it or one above, because of which no workload starts in it; None if workloads may start."""
        self.allocated: dict[str, int] = {}
        self.requested: dict[str, int] = {}
        """Of bound and of pending pods. In a closed queue pending pods request nothing."""
        self.own: dict[str, int] = {}
        """Requested by pods directly in it."""
        self.promised: dict[str, int] = {}
        """Requested by pending pods for which capacity is reserved."""
        self.idle: dict[str, int] = {}
        """Guaranteed to the queues directly below and not allocated by them."""
        self.due: dict[str, float] = {}
        """The fair share."""
        self.own_due: dict[str, float] = {}
        """The part of the fair share for pods directly in it, if there are queues below."""
        self.contested: frozenset[str] = frozenset()
        """Resources of which the queues directly below request more than is due to them."""
        self.waiting = self.running = 0
        """Pods without a node, and with one."""
        self.version = 0
        self.capacity_generation = 0
        """Counts how often quota may have become free."""
        self.known_part: float | None = 0.0
        """`part` if nothing changed since it was computed."""
        self.misplaced = ""
        """Why it hangs below the root and not below its parent, "" if it does not."""
        self.strangers: list[LocalQueue] = []
        """Local queues that would be in it if it admitted their namespace."""

    @property
    def name(self) -> str:
        return self.queue.name

    @property
    def part(self) -> float:
        """What part of its fair share it has; 1 is all of it."""
        if self.known_part is None:
            self.known_part = shares.part(self.allocated, self.due)
        return self.known_part

    @property
    def lacks(self) -> bool:
        """Whether it has less than its fair share of any resource, whatever it has of others."""
        return any(self.allocated.get(resource, 0) < due for resource, due in self.due.items())

    @property
    def own_allocated(self) -> dict[str, int]:
        had = dict(self.allocated)
        for below in self.below:
            add(had, below.allocated.items(), -1)
        return had

    @property
    def exceeds(self) -> bool:
        """Whether it, or the pods directly in it, have more than their fair share."""
        return self.part > 1 or (bool(self.below) and shares.part(self.own_allocated, self.own_due) > 1)

    @property
    def rank(self) -> tuple[tuple[int, float], ...]:
        """The rank among queues, the lowest first: from the top of the tree, by priority, then by `part`."""
        return tuple([(-queue_node.queue.priority, queue_node.part) for queue_node in reversed([*self.path])])

    @property
    def exceeded(self) -> Iterator[tuple[str, int, int]]:
        """The resources above its capability: (resource, allocated, capability)."""
        for resource, most in self.queue.capability.items():
            had = self.allocated.get(resource, 0)
            if had > most:
                yield resource, had, most

    @property
    def path(self) -> Iterator[QueueNode]:
        """The queue and those above it, without the root."""
        at = self
        while at.above is not None:
            yield at
            at = at.above

    @property
    def upwards(self) -> Iterator[QueueNode]:
        """The queue and those above it, with the root."""
        at: QueueNode | None = self
        while at is not None:
            yield at
            at = at.above

    def unmet(self, resource: str) -> int:
        """The part of its guarantee that is kept for it: what is not allocated, and nothing while it is closed."""
        if self.shut is not None:
            return 0
        return max(0, self.queue.guarantee.get(resource, 0) - self.allocated.get(resource, 0))

    def ask(self, takes: Takes, sign: int, pods: int) -> None:
        """Add pods, not yet placed, and what they request (or take away)."""
        add(self.requested, takes, sign)
        self.waiting += pods
        self.version += 1

    def place(self, takes: Takes, sign: int, pods: int) -> None:
        """Place pods of the queue, with what they request (or take their places away)."""
        guarantee, above = self.queue.guarantee, self.above
        before = {resource: self.unmet(resource) for resource in guarantee} if guarantee else {}
        add(self.allocated, takes, sign)
        if above is not None and guarantee:
            add(above.idle, ((resource, self.unmet(resource) - before[resource]) for resource in guarantee))
        self.running += pods
        self.waiting -= pods
        self.known_part = None
        self.capacity_generation += sign < 0
        self.version += 1

    def revalue(self, queue: Queue) -> None:
        """Take over other limits of the same queue."""
        above, before = self.above, {resource: self.unmet(resource) for resource in self.queue.guarantee}
        self.queue = queue
        if above is not None:
            add(above.idle, before.items(), -1)
            add(above.idle, ((resource, self.unmet(resource)) for resource in queue.guarantee))
            above.version += 1
            above.capacity_generation += 1
        self.known_part = None
        self.capacity_generation += 1
        self.version += 1

    def promise(self, takes: Takes, sign: int) -> None:
        """Add to what is promised (or take away)."""
        add(self.promised, takes, sign)
        self.capacity_generation += sign < 0
        self.version += 1


class LocalQueue:
    """The pods of one namespace that name the same queue, or none."""

    __slots__ = (
        "allocated", "at", "epoch", "missing", "named", "namespace", "refused", "requested", "running", "waiting",
    )  # fmt: skip

    def __init__(self, named: str, namespace: str) -> None:
        self.named, self.namespace = named, namespace
        self.at: QueueNode = _NOWHERE
        self.epoch = 0
        """Of the tree in which `at` was found."""
        self.missing = False
        """There are queues, and none of this name."""
        self.refused = ""
        """The queue that would be `at` if it admitted the namespace, "" if none refuses it."""
        self.allocated: dict[str, int] = {}
        self.requested: dict[str, int] = {}
        self.waiting = self.running = 0


_NOWHERE = QueueNode(ALWAYS)

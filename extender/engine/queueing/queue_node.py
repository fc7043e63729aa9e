"""A queue in the tree and how it stands, and the accounts of pods that are in it."""

from __future__ import annotations

from collections.abc import Iterator

from extender.engine.queueing import shares
from extender.engine.queueing.usage import Takes
from extender.engine.types.amounts import add
from protos.contract.queue import DEFAULT, Queue

ALWAYS = Queue(name=DEFAULT, source="")
"""The queue `default` where nobody made one."""


class QueueNode:
    """A queue in the tree, and how it stands."""

    __slots__ = (
        "above", "allocated", "below", "capacity_generation", "contested", "due", "idle", "known_part", "misplaced",
        "own", "own_due", "promised", "queue", "requested", "running", "strangers", "version", "waiting",
    )  # fmt: skip

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.above: QueueNode | None = None
        """None of the root alone."""
        self.below: list[QueueNode] = []
        self.own: dict[str, int] = {}
        """What pods directly in it have and ask."""
        self.allocated: dict[str, int] = {}
        self.requested: dict[str, int] = {}
        """What the pods in it and below have, and that with what those ask that wait."""
        self.promised: dict[str, int] = {}
        """What those of them ask that wait, and for whom room is kept."""
        self.idle: dict[str, int] = {}
        """What is guaranteed to those directly below and they do not have."""
        self.due: dict[str, float] = {}
        self.own_due: dict[str, float] = {}
        """What of that is due to the pods directly in it, if there are queues below."""
        self.contested: frozenset[str] = frozenset()
        """Resources of which those directly below ask more, all together, than is due to them."""
        self.waiting = self.running = 0
        """Pods in it and below without a node, and with one."""
        self.version = 0
        """Counts what changed of all that."""
        self.capacity_generation = 0
        """Counts how often there may have come room in it."""
        self.known_part: float | None = 0.0
        self.misplaced = ""
        """Why it hangs below the root and not where it says, "" if it does not."""
        self.strangers: list[LocalQueue] = []
        """Pods that would be in it, if it admitted their namespace."""

    @property
    def name(self) -> str:
        return self.queue.name

    @property
    def part(self) -> float:
        """How much of its due it has: 1 is all of it."""
        if self.known_part is None:
            self.known_part = shares.part(self.allocated, self.due)
        return self.known_part

    @property
    def lacks(self) -> bool:
        """Whether it has less than its due of any resource, whatever it has of others."""
        return any(self.allocated.get(resource, 0) < due for resource, due in self.due.items())

    @property
    def own_allocated(self) -> dict[str, int]:
        """What the pods directly in it have."""
        had = dict(self.allocated)
        for below in self.below:
            add(had, below.allocated.items(), -1)
        return had

    @property
    def exceeds(self) -> bool:
        """Whether it, or the pods directly in it, have more than is due to them."""
        return self.part > 1 or (bool(self.below) and shares.part(self.own_allocated, self.own_due) > 1)

    @property
    def rank(self) -> tuple[tuple[int, float], ...]:
        """Whose turn it is among queues, least first: from the top of the tree by priority, then by part of the due."""
        return tuple([(-queue_node.queue.priority, queue_node.part) for queue_node in reversed([*self.path])])

    @property
    def exceeded(self) -> Iterator[tuple[str, int, int]]:
        """Resources of which it has more than its capability: what it has, and may have."""
        for resource, most in self.queue.capability.items():
            had = self.allocated.get(resource, 0)
            if had > most:
                yield resource, had, most

    @property
    def path(self) -> Iterator[QueueNode]:
        """It, and those above it without the root."""
        at = self
        while at.above is not None:
            yield at
            at = at.above

    @property
    def upwards(self) -> Iterator[QueueNode]:
        """It, and all above it with the root."""
        at: QueueNode | None = self
        while at is not None:
            yield at
            at = at.above

    def unmet(self, resource: str) -> int:
        """What is guaranteed to it and it does not have."""
        return max(0, self.queue.guarantee.get(resource, 0) - self.allocated.get(resource, 0))

    def ask(self, takes: Takes, sign: int) -> None:
        """Pods in it, or below, have and ask so much more (or less)."""
        add(self.requested, takes, sign)
        self.version += 1

    def place(self, takes: Takes, sign: int) -> None:
        """Of that they have so much more (or less)."""
        guarantee, above = self.queue.guarantee, self.above
        before = {resource: self.unmet(resource) for resource in guarantee} if guarantee else {}
        add(self.allocated, takes, sign)
        if above is not None and guarantee:
            add(above.idle, ((resource, self.unmet(resource) - before[resource]) for resource in guarantee))
        self.known_part = None
        self.capacity_generation += sign < 0
        self.version += 1

    def revalue(self, queue: Queue) -> None:
        """It may have so much from now on."""
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
        """Room is kept for pods in it, or below, that ask so much (or not any more)."""
        add(self.promised, takes, sign)
        self.capacity_generation += sign < 0
        self.version += 1

    def count(self, running: int, waiting: int) -> None:
        """So many more pods (or less) are in it or below."""
        self.running += running
        self.waiting += waiting


class LocalQueue:
    """The pods that name one queue (or none) in one namespace."""

    __slots__ = (
        "allocated", "at", "epoch", "missing", "named", "namespace", "refused", "requested", "running", "waiting",
    )  # fmt: skip

    def __init__(self, named: str, namespace: str) -> None:
        self.named, self.namespace = named, namespace
        self.at: QueueNode = _NOWHERE
        self.epoch = 0
        """Of the tree in which that was found."""
        self.missing = False
        """There are queues, and none of this name."""
        self.refused = ""
        """The queue that they would be in if it admitted their namespace, "" if they are where they want to be."""
        self.allocated: dict[str, int] = {}
        self.requested: dict[str, int] = {}
        self.waiting = self.running = 0


_NOWHERE = QueueNode(ALWAYS)

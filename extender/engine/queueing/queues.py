"""The queues as a tree, which pods are in which, and what they use: kept up to date pod by pod.

Pods of one namespace that name the same queue are a local queue, which is in one queue. So a change of queues takes
time by local queues, not by pods. What a pod uses is added to its queue and to all queues above it.

A queue may select the namespaces that it admits. Pods of other namespaces that name it do not start; those that run
count as if they named no queue. So no tenant moves what it uses into the queue of another tenant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager

from extender.engine.queueing.queue_node import LocalQueue, QueueNode
from extender.engine.queueing.queue_tree import DeclaredQueues, alike, own_namespace
from extender.engine.queueing.usage import Takes
from extender.engine.types.amounts import add
from protos.contract.queue import DEFAULT, Queue

SWEEP = 1024
"""Local queues without pods are dropped once there are so many more than twice those that were in use."""


class Queues:
    """All queues, their pods and what these use. The tree is built when it is asked for and something changed."""

    def __init__(self, moved: Callable[[str], None] = lambda _: None) -> None:
        """`moved` is called with the UID of each pod that comes to another queue."""
        self._moved = moved
        self._declared = DeclaredQueues()
        self._local_queues: dict[tuple[str, str], LocalQueue] = {}
        self._pods: dict[str, tuple[LocalQueue, Takes, bool, bool]] = {}
        """By UID; the last values: whether the pod is placed, and whether what it would use counts as requested."""
        self.promised: dict[str, tuple[LocalQueue, Takes]] = {}
        """The pending pods (UIDs) with reserved capacity; in their queues no other pod gets it."""
        self._nodes: dict[str, dict[str, int]] = {}
        self.total: dict[str, int] = {}
        """The capacity of all nodes."""
        self._grown = self._stale = False
        """Whether the tree is up to date, and whether fair shares are not."""
        self._tree = self._declared.tree()
        self._namespaces: set[str] = set()
        """Namespaces that have local queues or ElasticQuotas."""
        self._sweep_at = SWEEP
        self._also: Mapping[str, int] = {}
        self._epoch = self._generation = 0
        self._batch: Counter[tuple[LocalQueue, Takes]] | None = None
        self.revalued = 0
        """Counts how often limits of a queue changed without a change of the tree."""
        self.prices = 0
        """Counts how often the estimated use of a pending pod changed."""
        self.dues = 0
        """Counts changes of fair shares."""
        self.touched: dict[str, None] = {}
        """The queues that changed since their status was compared."""

    # -- events

    def put(self, queue: Queue) -> None:
        before, now = self._declared.put(queue)
        if now is before:
            return
        queue_node = self._tree.nodes.get(now.name) if self._grown else None
        if before is not None and queue_node is not None and queue_node.queue is before and alike(before, now):
            queue_node.revalue(now)
            self._tree.divided()
            self.revalued += 1
            self._capacity_changed()
        else:
            self._grown = False
        self.touched[now.name] = None

    def _capacity_changed(self) -> None:
        self._stale = True
        self._generation += 1
        self._tree.root.capacity_generation += 1

    def drop(self, source: str, name: str) -> None:
        if self._declared.drop(source, name):
            self._grown = False
            self.touched.pop(name, None)

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Set the labels of a namespace; None if it is gone, or they cannot be read."""
        before = self._declared.label(name, labels)
        if self._grown and labels != before and name in self._namespaces and self._tree.distinguishes(labels, before):
            self._grown = False

    def node(self, name: str, has: Mapping[str, int]) -> None:
        """Set the capacity of a node; empty if it is gone."""
        before, now = self._nodes.pop(name, {}), dict(has)
        if now:
            self._nodes[name] = now
        if now != before:
            add(self.total, before.items(), -1)
            add(self.total, now.items())
            self._capacity_changed()

    def see(self, uid: str, named: str, namespace: str, takes: Takes, *, placed: bool, asks: bool = True) -> None:
        """Count a pod that names this queue ("" for none) and is `placed` or pending.

        `asks` is False for a pending pod that fits on no node: it waits, and requests nothing of its queue.
        """
        local_queue = self.local_queue(named, namespace)
        before, now = self._pods.get(uid), (local_queue, takes, placed, asks)
        if now == before:
            return
        self._pods[uid] = now
        if uid in self.promised:
            self.promise(uid, not placed)
        if before is not None and (*before[:2], before[3]) == (*now[:2], now[3]):
            self._place(local_queue, takes, 1 if placed else -1)
            return
        if before is not None:
            self.prices += before[1] != takes and not (before[2] or placed)
            self._add(*before, -1)
        self._add(*now, 1)
        if before is not None and before[0] is not local_queue:
            self._moved(uid)

    @contextmanager
    def batched(self) -> Iterator[None]:
        """Collect pods that get or lose a place, and count equal ones at once at the end: those of a gang are alike."""
        batch = self._batch = Counter()
        try:
            yield
        finally:
            self._batch = None
            for (local_queue, takes), count in batch.items():
                self._count(local_queue, takes, count)

    def forget(self, uid: str) -> None:
        before = self._pods.pop(uid, None)
        if before is not None:
            self._add(*before, -1)
        self.promise(uid, False)

    def promise(self, uid: str, yes: bool) -> None:
        """Set whether capacity is reserved for this pod; it counts while the pod is pending."""
        before, known = self.promised.pop(uid, None), self._pods.get(uid)
        if before is not None:
            self._promise(*before, -1)
        if yes and known is not None and not known[2]:
            self.promised[uid] = known[:2]
            self._promise(*known[:2], 1)

    def _promise(self, local_queue: LocalQueue, takes: Takes, sign: int) -> None:
        for queue_node in local_queue.at.upwards if self._grown else ():
            queue_node.promise(takes, sign)
            self._generation += sign < 0

    def _add(self, local_queue: LocalQueue, takes: Takes, placed: bool, asks: bool, sign: int) -> None:
        """Add a pod to a local queue (or take it away)."""
        requested = takes if asks else ()
        add(local_queue.requested, requested, sign)
        local_queue.waiting += sign
        if self._grown:
            requested = requested if local_queue.at.shut is None else ()
            add(local_queue.at.own, requested, sign)
            for queue_node in local_queue.at.upwards:
                queue_node.ask(requested, sign, sign)
                self.touched[queue_node.name] = None
            self._stale = True
        if placed:
            self._place(local_queue, takes, sign)

    def _place(self, local_queue: LocalQueue, takes: Takes, sign: int) -> None:
        """A pod of the local queue gets (or loses) its place."""
        if self._batch is not None:
            self._batch[local_queue, takes] += sign
        else:
            self._count(local_queue, takes, sign)

    def _count(self, local_queue: LocalQueue, takes: Takes, pods: int) -> None:
        """So many equal pods get their places (or lose them)."""
        add(local_queue.allocated, takes, pods)
        local_queue.running, local_queue.waiting = local_queue.running + pods, local_queue.waiting - pods
        if self._grown:
            requested = takes if local_queue.at.shut is not None else ()
            add(local_queue.at.own, requested, pods)
            for queue_node in local_queue.at.upwards:
                queue_node.ask(requested, pods, 0)
                queue_node.place(takes, pods, pods)
                self.touched[queue_node.name] = None
            self._stale = True
            self._generation += pods < 0

    def recount(self, alive: Container[str]) -> list[str]:
        """Count all pods again, since an error may have left one counted by half; return UIDs that are not `alive`."""
        gone = [uid for uid in self._pods if uid not in alive]
        for uid in gone:
            self.forget(uid)
        for local_queue in self._local_queues.values():
            local_queue.allocated, local_queue.requested, local_queue.running, local_queue.waiting = {}, {}, 0, 0
        self._grown = False
        for pod in self._pods.values():
            self._add(*pod, 1)
        return gone

    # -- the queues of pods

    def local_queue(self, named: str, namespace: str) -> LocalQueue:
        named = "" if named == DEFAULT else named
        local_queue = self._local_queues.get((named, namespace))
        if local_queue is None:
            if len(self._local_queues) >= self._sweep_at:
                self._grown = False
            local_queue = self._local_queues[named, namespace] = LocalQueue(named, namespace)
            if self._grown:
                self._settle(local_queue)
        return local_queue

    def of(self, uid: str) -> LocalQueue | None:
        """The local queue of a pod, None if it is in none."""
        found = self._pods.get(uid)
        return found[0] if found is not None else None

    def takes(self, uid: str) -> Takes:
        """What a pod uses, or would use."""
        found = self._pods.get(uid)
        return found[1] if found is not None else ()

    def home(self, uid: str) -> QueueNode:
        """The queue of a pod, the root if it is in none."""
        found = self._pods.get(uid)
        return self.at(found[0]) if found is not None else self.root

    @property
    def root(self) -> QueueNode:
        self._grow()
        return self._tree.root

    @property
    def queue_nodes(self) -> Mapping[str, QueueNode]:
        self._grow()
        return self._tree.nodes

    @property
    def epoch(self) -> int:
        self._grow()
        return self._epoch

    @property
    def capacity_generation(self) -> int:
        """Counts how often quota may have become free in any queue."""
        self._grow()
        return self._generation

    def at(self, local_queue: LocalQueue) -> QueueNode:
        """The queue that a local queue is in, also if it has no pods yet."""
        if not self._grown:
            self._grow()
        if local_queue.epoch != self._epoch:
            self._settle(local_queue)
        return local_queue.at

    def _grow(self) -> None:
        if self._grown:
            return
        self._grown, self._stale = True, True
        self._epoch += 1
        self._generation += 1
        self._tree = self._declared.tree(self._tree)
        self.touched |= dict.fromkeys(self._tree.nodes)
        self._local_queues = {key: each for key, each in self._local_queues.items() if each.waiting or each.running}
        self._sweep_at = 2 * len(self._local_queues) + SWEEP
        self._namespaces = {own_namespace(queue_node) for queue_node in self._tree.nodes.values()}
        for local_queue in self._local_queues.values():
            self._settle(local_queue)
            self._tree.refill(local_queue)
        for local_queue, takes in self.promised.values():
            self._promise(local_queue, takes, 1)

    def _settle(self, local_queue: LocalQueue) -> None:
        local_queue.epoch = self._epoch
        self._namespaces.add(local_queue.namespace)
        self._tree.settle(local_queue)

    def reckon(self, also: Mapping[str, int]) -> bool:
        """Compute the fair shares; return whether that was due. `also`: capacity that no node states, as of a class."""
        self._grow()
        if not self._stale and also == self._also:
            return False
        self._stale, self._also = False, dict(also)
        changed = self._tree.divide({each: also.get(each, self.total.get(each, 0)) for each in self._tree.fair})
        self.touched |= dict.fromkeys(changed)
        self.dues += len(changed)
        return True

    @property
    def fair(self) -> frozenset[str]:
        """The resources that are divided into fair shares."""
        self._grow()
        return self._tree.fair

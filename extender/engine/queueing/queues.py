"""The queues as a tree, which pods are in which, and what they take: kept up to date pod by pod.

Pods that name the same queue in the same namespace share an account; an account is in one queue, so that a queue that
comes, goes or moves costs by accounts and not by pods. What a pod takes is added to its queue and to all above it.
Queues whose parent is missing, or that are their own ancestors, hang below the root.

A queue may select the namespaces that it admits. Pods of another one that name it start nowhere; those that run count
where they would be if they named none. So nobody moves what it has into the queue of somebody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager

from extender.engine.queueing.declared import DeclaredQueues, alike
from extender.engine.queueing.queue_node import LocalQueue, QueueNode
from extender.engine.queueing.queue_tree import own_namespace
from extender.engine.queueing.usage import Takes
from extender.engine.types.amounts import add
from protos.contract.queue import DEFAULT, Queue

SWEEP = 1024
"""Accounts without pods are dropped when there are twice as many as were in use, and so many more."""


class Queues:
    """All queues."""

    def __init__(self, moved: Callable[[str], None] = lambda _: None) -> None:
        """`moved` is told of each pod (its UID) that comes to another queue."""
        self._moved = moved
        self._declared = DeclaredQueues()
        self._accounts: dict[tuple[str, str], LocalQueue] = {}
        self._pods: dict[str, tuple[LocalQueue, Takes, bool]] = {}
        self.promised: dict[str, tuple[LocalQueue, Takes]] = {}
        """The pods (UIDs) that wait, and for whom room is kept: nobody else gets that room in their queues before."""
        self._nodes: dict[str, dict[str, int]] = {}
        self.total: dict[str, int] = {}
        """What all nodes have."""
        self._grown = self._stale = False
        self._tree = self._declared.tree()
        self._peopled: set[str] = set()
        """Namespaces of which there are accounts or queues."""
        self._sweep_at = SWEEP
        self._also: Mapping[str, int] = {}
        self._epoch = self._gains = 0
        self._batch: Counter[tuple[LocalQueue, Takes]] | None = None
        self.revalued = 0
        """Counts how often a queue may have something else, and the tree stayed as it is."""
        self.prices = 0
        """Counts how often what a pod that waits would take turned out to be something else."""
        self.dues = 0
        """Counts how often something else was due to somebody."""
        self.touched: dict[str, None] = {}
        """Queues of which something changed since that was told."""

    # -- the world

    def put(self, queue: Queue) -> None:
        """The queue is there, or another one now."""
        before, now = self._declared.put(queue)
        if now is before:
            return
        queue_node = self._tree.nodes.get(now.name) if self._grown else None
        if before is not None and queue_node is not None and queue_node.queue is before and alike(before, now):
            queue_node.revalue(now)
            self._tree.divided()
            self.revalued += 1
            self._may_have_room()
        else:
            self._grown = False
        self.touched[now.name] = None

    def _may_have_room(self) -> None:
        """There may have come room for anybody."""
        self._stale = True
        self._gains += 1
        self._tree.root.capacity_generation += 1

    def drop(self, source: str, name: str) -> None:
        """The queue is gone."""
        if self._declared.drop(source, name):
            self._grown = False
            self.touched.pop(name, None)

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """The namespace has these labels now; None if it is gone, or they cannot be read."""
        before = self._declared.label(name, labels)
        if self._grown and labels != before and name in self._peopled and self._tree.distinguishes(labels, before):
            self._grown = False

    def node(self, name: str, has: Mapping[str, int]) -> None:
        """The node has so much for pods; nothing if it is gone."""
        before, now = self._nodes.pop(name, {}), dict(has)
        if now:
            self._nodes[name] = now
        if now != before:
            add(self.total, before.items(), -1)
            add(self.total, now.items())
            self._may_have_room()

    def see(self, uid: str, named: str, namespace: str, takes: Takes, *, placed: bool) -> None:
        """The pod names this queue ("" for none), takes so much, and is `placed` or waits."""
        local_queue = self.local_queue(named, namespace)
        before, now = self._pods.get(uid), (local_queue, takes, placed)
        if now == before:
            return
        self._pods[uid] = now
        if uid in self.promised:
            self.promise(uid, not placed)
        if before is not None and before[:2] == now[:2]:
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
        """Adds up pods that get a place, or lose theirs, and counts them at the end: those of a gang are alike."""
        batch = self._batch = Counter()
        try:
            yield
        finally:
            self._batch = None
            for (local_queue, takes), count in batch.items():
                self._count(local_queue, takes, count)

    def forget(self, uid: str) -> None:
        """The pod is over."""
        before = self._pods.pop(uid, None)
        if before is not None:
            self._add(*before, -1)
        self.promise(uid, False)

    def promise(self, uid: str, yes: bool) -> None:
        """Whether room is kept for this pod."""
        before, known = self.promised.pop(uid, None), self._pods.get(uid)
        if before is not None:
            self._promise(*before, -1)
        if yes and known is not None and not known[2]:
            self.promised[uid] = known[:2]
            self._promise(*known[:2], 1)

    def _promise(self, local_queue: LocalQueue, takes: Takes, sign: int) -> None:
        for queue_node in local_queue.at.upwards if self._grown else ():
            queue_node.promise(takes, sign)
            self._gains += sign < 0

    def _add(self, local_queue: LocalQueue, takes: Takes, placed: bool, sign: int) -> None:
        """One more pod (or less) is in it."""
        add(local_queue.requested, takes, sign)
        local_queue.waiting += sign
        if self._grown:
            add(local_queue.at.own, takes, sign)
            for queue_node in local_queue.at.upwards:
                queue_node.ask(takes, sign)
                queue_node.count(0, sign)
                self.touched[queue_node.name] = None
            self._stale = True
        if placed:
            self._place(local_queue, takes, sign)

    def _place(self, local_queue: LocalQueue, takes: Takes, sign: int) -> None:
        """One that waits in it has (or has no more) what it asks."""
        if self._batch is not None:
            self._batch[local_queue, takes] += sign
        else:
            self._count(local_queue, takes, sign)

    def _count(self, local_queue: LocalQueue, takes: Takes, pods: int) -> None:
        """So many more pods that take so much (or less) have a place."""
        add(local_queue.allocated, takes, pods)
        local_queue.running, local_queue.waiting = local_queue.running + pods, local_queue.waiting - pods
        if self._grown:
            for queue_node in local_queue.at.upwards:
                queue_node.place(takes, pods)
                queue_node.count(pods, -pods)
                self.touched[queue_node.name] = None
            self._stale = True
            self._gains += pods < 0

    def recount(self, alive: Container[str]) -> list[str]:
        """Count anew: an error may have left a pod counted by half. Returns those (UIDs) that are not `alive`."""
        gone = [uid for uid in self._pods if uid not in alive]
        for uid in gone:
            self.forget(uid)
        for local_queue in self._accounts.values():
            local_queue.allocated, local_queue.requested, local_queue.running, local_queue.waiting = {}, {}, 0, 0
        self._grown = False
        for pod in self._pods.values():
            self._add(*pod, 1)
        return gone

    # -- who is where

    def local_queue(self, named: str, namespace: str) -> LocalQueue:
        """The account of pods of this namespace that name this queue."""
        named = "" if named == DEFAULT else named
        local_queue = self._accounts.get((named, namespace))
        if local_queue is None:
            if len(self._accounts) >= self._sweep_at:
                self._grown = False
            local_queue = self._accounts[named, namespace] = LocalQueue(named, namespace)
            if self._grown:
                self._settle(local_queue)
        return local_queue

    def of(self, uid: str) -> LocalQueue | None:
        """The account of a pod, None if it is in none."""
        found = self._pods.get(uid)
        return found[0] if found is not None else None

    def takes(self, uid: str) -> Takes:
        """What a pod takes, or would take."""
        found = self._pods.get(uid)
        return found[1] if found is not None else ()

    def home(self, uid: str) -> QueueNode:
        """The queue that a pod is in; the root if it is in none."""
        found = self._pods.get(uid)
        return self.at(found[0]) if found is not None else self.root

    @property
    def root(self) -> QueueNode:
        """What is above all queues."""
        self._grow()
        return self._tree.root

    @property
    def queue_nodes(self) -> Mapping[str, QueueNode]:
        """All queues by name, as they stand."""
        self._grow()
        return self._tree.nodes

    @property
    def epoch(self) -> int:
        """Counts how often the tree changed."""
        self._grow()
        return self._epoch

    @property
    def capacity_generation(self) -> int:
        """Counts how often there may have come room for somebody."""
        self._grow()
        return self._gains

    def at(self, local_queue: LocalQueue) -> QueueNode:
        """The queue that these pods are in, also if there are none yet."""
        if not self._grown:
            self._grow()
        if local_queue.epoch != self._epoch:
            self._settle(local_queue)
        return local_queue.at

    def _grow(self) -> None:
        """Build the tree anew, if that changed."""
        if self._grown:
            return
        self._grown, self._stale = True, True
        self._epoch += 1
        self._gains += 1
        self._tree = self._declared.tree(self._tree)
        self.touched |= dict.fromkeys(self._tree.nodes)
        self._accounts = {key: a for key, a in self._accounts.items() if a.waiting or a.running}
        self._sweep_at = 2 * len(self._accounts) + SWEEP
        self._peopled = {own_namespace(queue_node) for queue_node in self._tree.nodes.values()}
        for local_queue in self._accounts.values():
            self._settle(local_queue)
            self._tree.refill(local_queue)
        for local_queue, takes in self.promised.values():
            self._promise(local_queue, takes, 1)

    def _settle(self, local_queue: LocalQueue) -> None:
        local_queue.epoch = self._epoch
        self._peopled.add(local_queue.namespace)
        self._tree.settle(local_queue)

    def reckon(self, also: Mapping[str, int]) -> bool:
        """Whether fair shares changed. `also`: what there is of resources that no node tells, like GPUs of a class."""
        self._grow()
        if not self._stale and also == self._also:
            return False
        self._stale, self._also = False, dict(also)
        there = {resource: also.get(resource, self.total.get(resource, 0)) for resource in self._tree.fair}
        changed = self._tree.divide(there)
        self.touched |= dict.fromkeys(changed)
        self.dues += len(changed)
        return True

    @property
    def fair(self) -> frozenset[str]:
        """The resources that are divided: GPUs, and whatever a queue is guaranteed or deserves."""
        self._grow()
        return self._tree.fair

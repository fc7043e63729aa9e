"""What pods use of queues, and the capacity of nodes that queues divide: in-tree resources, and GPUs in one unit.

Of each of its GPUs a pod uses the larger of memory ÷ the GPU's memory and slices ÷ the GPU's slices, or all. A pod
without GPUs counts as if on the smallest suitable GPU, so that it never counts more once it is placed. Source: the
dominant share of DRF (Ghodsi et al., NSDI 2011), here over the resources of a GPU.

GPUs that are unhealthy, gone, in MIG mode or cordoned are no capacity, except for what pods hold of them. The same is
true of all resources of a node that takes no new pods.
"""

from __future__ import annotations

from collections import Counter

from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import PodState
from extender.engine.state.stock import GpuKind, kind
from extender.engine.types.amounts import interned
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook
from protos.contract.inventory import Inventory
from protos.contract.queue import CLASS, GPU, GPUS
from protos.contract.selection import Selection, suits

REMEMBERED = 1024
"""Asks whose estimated use is kept."""
Takes = tuple[tuple[str, int], ...]
"""Amounts by resource, as queues count them."""


class UsageCalculator:
    """What pods use, by the GPUs in the cluster."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._replicas: Counter[tuple[str, int]] = Counter()
        """How many nodes serve a whole-GPU resource as so many replicas of a GPU; 1: as whole GPUs."""
        self._served: dict[str, tuple[tuple[str, int], ...]] = {}
        """The same pairs, by node."""
        self._known: dict[PodAsk, int] = {}
        """The estimates."""
        self._kinds: tuple[frozenset[GpuKind], frozenset[tuple[str, int]]] = frozenset(), frozenset()
        """The kinds of GPUs, and the replicas, that the estimates were made of."""
        self._stock_version = 0
        """Of the stock when the kinds of GPUs were last compared."""
        self._outdated = False
        """Whether the kinds have changed since `outdated` was last called."""

    def node(self, name: str, inventory: Inventory | None, whole: str) -> None:
        """Take in the node's inventory, None if it is gone; `whole`: the resource of whole GPUs."""
        now = tuple({whole: 1, **inventory.replicas}.items()) if inventory is not None else ()
        before = self._served.pop(name, ())
        if now:
            self._served[name] = now
        if now != before:
            self._replicas.subtract(before)
            self._replicas.update(now)
            self._replicas = +self._replicas
            self._stock_version = -1

    def outdated(self) -> bool:
        """Whether the kinds of GPUs, or of replicas, have changed since the last call: then estimates are others."""
        self._compare()
        outdated, self._outdated = self._outdated, False
        return outdated

    def _compare(self) -> None:
        """Drop the estimates if the kinds have changed."""
        stock = self._ledger.stock
        if self._stock_version != stock.version:
            self._stock_version = stock.version
            kinds = frozenset(stock.gpus), frozenset(self._replicas)
            if kinds != self._kinds:
                self._kinds, self._known, self._outdated = kinds, {}, True

    def of(self, pod: PodState, gpu_class: str) -> Takes:
        """What the pod uses, or would use; `gpu_class`: the GpuClass that it names, "" if none."""
        if pod.ask is None:
            return pod.requests
        gpus = self._held(pod)
        if gpus is None:
            gpus = self._estimate(pod.ask)
        of_class = ((CLASS + gpu_class, gpus),) if gpu_class else ()
        return interned((*pod.requests, (GPUS, gpus), *of_class))

    def _held(self, pod: PodState) -> int | None:
        """The amount of the GPUs that the pod is on, None if it is unknown which these are."""
        node = self._ledger.nodes.get(pod.node) if pod.node else None
        entry = node.books.entries.get(pod.ref.uid) if node is not None and node.books is not None else None
        if node is None or node.books is None or entry is None or not entry.placed:
            return None
        gpus, held = node.books.gpus, entry.charges.items()
        return sum([GPU if demand.whole else part_of(demand, gpus.get(uuid)) for uuid, demand in held])

    def _estimate(self, ask: PodAsk) -> int:
        """By the kubelet's rule: the maximum of the init containers, and of the sum of all others."""
        self._compare()
        known = self._known.get(ask)
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            together = most = 0
            for container in ask.containers:
                amount = self._container(container, ask.selection)
                if container.kind == "init":
                    most = max(most, together + amount)
                else:
                    together += amount
            known = self._known[ask] = max(most, together)
        return known

    def _container(self, ask: ContainerAsk, selection: Selection) -> int:
        if ask.whole:
            served = [count for name, count in self._replicas if name == ask.whole]
            return ask.gpus * GPU // min(served, default=1)
        mems = [gpu.mem for gpu in self._ledger.stock.gpus if gpu.mem >= max(1, ask.mem) and suits(selection, gpu)]
        if not mems:
            return ask.gpus * GPU
        per_gpu = max(ask.mem / min(mems), ask.slices / self._ledger.slices_per_gpu)
        return ask.gpus * min(GPU, int(per_gpu * GPU + 1e-6))


class Supply:
    """Computes the capacity of nodes and classes; keeps what is withheld of each node."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._withheld: dict[str, Counter[GpuKind]] = {}
        """By node whose capacity is partial: the GPUs that neither count nor are held."""
        self._in_all: Counter[GpuKind] = Counter()

    def partial(self, name: str) -> bool:
        """Whether part of the node does not count: then its capacity depends on what is held there."""
        return name in self._withheld

    def of_node(self, name: str) -> dict[str, int]:
        """The capacity of the node now; nothing if it is gone."""
        self._in_all.subtract(self._withheld.pop(name, ()))
        node = self._ledger.nodes.get(name)
        withheld: Counter[GpuKind] = Counter()
        has: dict[str, int] = {}
        if node is not None and node.seen:
            closed = node.unschedulable or bool(node.leaving)
            used, most = node.used, node.allocatable
            has = {each: min(most[each], used.get(each, 0)) for each in most} if closed else dict(most)
            if node.books is not None:
                withheld = _withheld(node.books, closed or bool(node.problem))
                has[GPUS] = len(node.books.gpus) * GPU - withheld.total()
            if closed or withheld:
                self._withheld[name] = withheld
        self._in_all.update(withheld)
        self._in_all = +self._in_all
        return has

    def of_class(self, selection: Selection) -> int:
        """The capacity of all nodes in GPUs of a class."""
        there = self._ledger.stock.matching(selection)[0] * GPU
        return there - sum(amount for found, amount in self._in_all.items() if suits(selection, found))


def part_of(demand: Demand, book: GpuBook | None) -> int:
    """Millionths of a GPU, rounded down: parts of one GPU never add up to more than it."""
    if book is None:
        return GPU
    by_mem = demand.mem * GPU // book.gpu.mem if book.gpu.mem else 0
    return max(by_mem, demand.slices * GPU // max(1, book.slices_per_gpu))


def _withheld(books: NodeBooks, closed: bool) -> Counter[GpuKind]:
    """What of the node's GPUs neither counts nor is held."""
    closed = closed or books.inventory.state != "ready"
    amounts: Counter[GpuKind] = Counter()
    for book in books.gpus.values():
        if closed or not book.offered:
            amounts[kind(book.gpu)] += GPU - _held(book)
    return +amounts


def _held(book: GpuBook) -> int:
    """The held part of a GPU: the larger of its parts of memory and of slices."""
    return GPU if book.wholes else min(GPU, part_of(Demand(book.mem_used, book.slices_used, False), book))

"""What pods use of queues, and the capacity of nodes that queues divide: in-tree resources, and GPUs in one unit.

Of each of its GPUs a pod uses the larger of memory ÷ the GPU's memory and slices ÷ the GPU's slices, or all. A pod
without GPUs counts as if on the smallest suitable GPU, so that it never counts more once it is placed. Source: the
dominant share of DRF (Ghodsi et al., NSDI 2011), here over the resources of a GPU. A MIG instance counts as its compute
slices, of which a GPU has seven, in capacity and in use.

GPUs that are unhealthy, gone, in MIG mode or cordoned are no capacity, except for what pods hold of them. The same is
true of all resources of a node that takes no new pods.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import PodState
from extender.engine.state.stock import GpuKind, kind
from extender.engine.types.amounts import interned
from protos.contract import mig
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook
from protos.contract.instances import slices_of
from protos.contract.inventory import IN_MIG_MODE, Gpu, Instance, Inventory
from protos.contract.mig import FIRST, SLICES
from protos.contract.queue import CLASS, GPU, GPUS
from protos.contract.remembered import Remembered
from protos.contract.selection import Selection, suits

REMEMBERED, WEIGHT = 1024, 2**20
"""Asks whose estimated use is kept, and the characters of the globs in them."""
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
        self._known: Remembered[PodAsk, int] = Remembered(REMEMBERED, WEIGHT, lambda ask: ask.selection.length)
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
                self._kinds, self._outdated = kinds, True
                self._known.clear()

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
        gpus, held, per_gpu = node.books.gpus, entry.charges.items(), node.books.inventory.slices_per_gpu
        return sum([_of_gpu(uuid, demand, gpus.get(uuid), per_gpu) for uuid, demand in held])

    def _estimate(self, ask: PodAsk) -> int:
        """By the kubelet's rule: the maximum of the init containers, and of the sum of all others."""
        self._compare()
        known = self._known.get(ask)
        if known is None:
            together = most = 0
            for container in ask.containers:
                amount = self._container(container, ask.selection)
                if container.kind == "init":
                    most = max(most, together + amount)
                else:
                    together += amount
            known = self._known.put(ask, max(most, together))
        return known

    def _container(self, ask: ContainerAsk, selection: Selection) -> int:
        if ask.profile:
            return ask.gpus * _unit(_instance(ask.profile))
        if ask.whole:
            served = [count for name, count in self._replicas if name == ask.whole]
            return ask.gpus * GPU // min(served, default=1)
        large = [gpu for gpu in self._ledger.stock.gpus if gpu.mem >= max(1, ask.mem) and suits(selection, gpu)]
        mems = [gpu.mem for gpu in large if not gpu.mig]
        part = 0
        if mems:
            per_gpu = max(ask.mem / min(mems), ask.slices / self._ledger.slices_per_gpu)
            part = min(GPU, int(per_gpu * GPU + 1e-6))
        if ask.gpus == 1:
            slices = self._ledger.slices_per_gpu
            satisfying = [gpu for gpu in large if gpu.mig and ask.slices <= slices_of(gpu, slices)]
            made = [_unit(gpu) for gpu in satisfying if isinstance(gpu, Instance)]
            whole = [_unit(gpu) for gpu in satisfying if not isinstance(gpu, Instance)]
            part = max(part, max(whole, default=0), min(made, default=0))
        return ask.gpus * (part if part or mems else GPU)


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
                has[GPUS] = units(node.books) - withheld.total()
            if closed or withheld:
                self._withheld[name] = withheld
        self._in_all.update(withheld)
        self._in_all = +self._in_all
        return has

    def of_class(self, selection: Selection) -> int:
        """The capacity of all nodes in GPUs of a class."""
        there = self._ledger.stock.amount(selection) * GPU // SLICES
        counted = ((found, amount) for found, amount in self._in_all.items() if found.health != IN_MIG_MODE)
        return there - sum(amount for found, amount in counted if suits(selection, found))


def units(books: NodeBooks) -> int:
    """All GPUs of a node. A GPU in MIG mode counts as well: `Supply` withholds what is not held of it."""
    if not books.profiles:
        return len(books.gpus) * GPU
    return sum(_capacity(book.gpu) for book in books.gpus.values())


def usable(books: NodeBooks) -> int:
    """Those of an empty node that new pods may get."""
    return sum(_capacity(book.gpu) for book in books.gpus.values() if book.offered or book.divisible)


def _capacity(gpu: Gpu) -> int:
    """The same without instances that can be made on demand: the GPU that they are made of has the capacity."""
    return 0 if isinstance(gpu, Instance) else _unit(gpu)


def _unit(gpu: Gpu) -> int:
    """A GPU, or the part that a MIG instance is of one."""
    return GPU * gpu.slices // SLICES if gpu.mig else GPU


@lru_cache(maxsize=256)
def _instance(profile: str) -> Gpu:
    """An instance of this profile."""
    return Gpu(index=FIRST, uuid="-", mem=0, mig=profile)


def _of_gpu(uuid: str, demand: Demand, book: GpuBook | None, per_gpu: int) -> int:
    """What a pod uses of one GPU."""
    if not demand.whole:
        return part_of(demand, book)
    if book is not None:
        return _unit(book.gpu)
    of_instance = GPU * demand.slices // per_gpu if uuid.startswith("MIG-") or mig.place(uuid) else GPU
    return of_instance if 0 < of_instance < GPU else GPU


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
        if closed or not (book.offered or book.divisible):
            amounts[kind(book.gpu)] += _capacity(book.gpu) - _held(book)
    return +amounts


def _held(book: GpuBook) -> int:
    """The held part of a GPU: the larger of its parts of memory and of slices."""
    unit = _capacity(book.gpu)
    if book.cut:
        return min(unit, GPU * book.cut // SLICES)
    return unit if book.wholes else min(unit, part_of(Demand(book.mem_used, book.slices_used, False), book))

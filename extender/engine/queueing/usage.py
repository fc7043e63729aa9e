"""What a pod takes of its queue: its in-tree requests, and its GPUs in one unit of account, parts of them as parts.

Of each GPU that it is on it takes the larger of its memory ÷ the GPU's memory and its slices ÷ the GPU's slices, or all
of it. While it is on none, the smallest GPU that would do stands for those to come, so that it never takes more once it
is placed. Source: the dominant share of DRF (Ghodsi et al., NSDI 2011), here over what a GPU has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import PodState
from extender.engine.state.stock import GpuKind
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.gpu_book import GpuBook
from protos.contract.inventory import Inventory
from protos.contract.queue import CLASS, GPU, GPUS
from protos.contract.selection import Selection, suits

REMEMBERED = 1024
"""Asks of which it is known what they take."""
GUESSED = 8
"""What it costs to find the amount of one ask, in `attempt.LOOK`s."""
Takes = tuple[tuple[str, int], ...]
"""Amounts by resource, as queues count them."""


class UsageCalculator:
    """What pods take, by the GPUs that there are."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._replicas: Counter[tuple[str, int]] = Counter()
        """How many nodes serve a whole-GPU resource as so many replicas of a GPU; 1: as whole ones."""
        self._served: dict[str, tuple[tuple[str, int], ...]] = {}
        self._known: dict[PodAsk, int] = {}
        self._lost = False
        """Some of what was known was dropped: nobody can tell whether that is another amount now."""
        self._looked_at = 0
        """The version of the stock when the kinds were last compared."""
        self._kinds: tuple[frozenset[GpuKind], frozenset[tuple[str, int]]] = frozenset(), frozenset()
        """The kinds of GPUs, and the replicas, of which the amounts were made."""

    def node(self, name: str, inventory: Inventory | None, whole: str) -> None:
        """The node has this inventory now, none if it is gone; `whole` is the resource of whole GPUs."""
        now: tuple[tuple[str, int], ...] = ()
        if inventory is not None:
            now = tuple({whole: 1, **inventory.replicas}.items())
        before = self._served.pop(name, ())
        if now:
            self._served[name] = now
        if now != before:
            self._replicas.subtract(before)
            self._replicas.update(now)
            self._replicas = +self._replicas
            self._looked_at = -1

    def outdated(self) -> bool:
        """Whether there are other kinds of GPUs, or of replicas, than when this was asked last."""
        stock = self._ledger.stock
        if self._looked_at == stock.version:
            return False
        before, self._kinds = self._kinds, (frozenset(stock.gpus), frozenset(self._replicas))
        self._looked_at = stock.version
        return self._kinds != before

    def changed(self) -> Generator[int, None, bool]:
        """Whether pods on no GPU may take another amount by now. Work is told in `attempt.LOOK`s."""
        before, self._known = self._known, {}
        changed, self._lost = self._lost, False
        for ask, took in before.items():
            if changed:
                break
            changed = self._guess(ask) != took
            yield GUESSED
        return changed

    def of(self, pod: PodState, gpu_class: str) -> Takes:
        """What the pod takes, or would take; `gpu_class` is the GpuClass that it names, "" if none."""
        if pod.ask is None:
            return pod.requests
        gpus = self._held(pod)
        if gpus is None:
            gpus = self._guess(pod.ask)
        of_class = ((CLASS + gpu_class, gpus),) if gpu_class else ()
        return self._ledger.intern((*pod.requests, (GPUS, gpus), *of_class))

    def _held(self, pod: PodState) -> int | None:
        """The account of the GPUs that it is on, None if nobody says which those are."""
        node = self._ledger.nodes.get(pod.node) if pod.node else None
        entry = node.books.entries.get(pod.ref.uid) if node is not None and node.books is not None else None
        if node is None or node.books is None or entry is None or not entry.placed:
            return None
        gpus, held = node.books.gpus, entry.charges.items()
        return sum([GPU if demand.whole else _part_of(demand, gpus.get(uuid)) for uuid, demand in held])

    def _guess(self, ask: PodAsk) -> int:
        known = self._known.get(ask)
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known, self._lost = {}, True
            known = self._known[ask] = self._reckoned(ask)
        return known

    def _reckoned(self, ask: PodAsk) -> int:
        """By the kubelet's rule: the most of the init containers, and of all others together."""
        together = most = 0
        for container in ask.containers:
            takes = self._container(container, ask.selection)
            if container.kind == "init":
                most = max(most, together + takes)
            else:
                together += takes
        return max(most, together)

    def _container(self, ask: ContainerAsk, selection: Selection) -> int:
        if ask.whole:
            served = [count for name, count in self._replicas if name == ask.whole]
            return ask.gpus * GPU // min(served, default=1)
        mems = [gpu.mem for gpu in self._ledger.stock.gpus if gpu.mem >= max(1, ask.mem) and suits(selection, gpu)]
        if not mems:
            return ask.gpus * GPU
        per_gpu = max(ask.mem / min(mems), ask.slices / self._ledger.slices_per_gpu)
        return ask.gpus * min(GPU, int(per_gpu * GPU + 1e-6))


def _part_of(demand: Demand, book: GpuBook | None) -> int:
    """Millionths of a GPU, rounded down, so that parts that make up a GPU are never more than one."""
    if book is None:
        return GPU
    by_mem = demand.mem * GPU // book.gpu.mem if book.gpu.mem else 0
    return max(by_mem, demand.slices * GPU // max(1, book.slices_per_gpu))

"""How much of the free GPUs of a node later pods can use: V of `score`, for nodes of one kind."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate

from extender.engine.types.shape import Shape
from protos.contract.ask import PodAsk
from protos.contract.books import NodeBooks
from protos.contract.inventory import IN_MIG_MODE, Gpu
from protos.contract.mig import SLICES
from protos.contract.selection import Selection, suits

GPU = 1000
"""One GPU."""
BESIDE = 0.85
"""A GPU with less than this part of the average CPU and memory per GPU counts as stranded."""
RATES = 16
"""Amounts of CPU for which they are kept at a time."""
EXACT = 1 << 32
"""Shares are multiples of 1 / EXACT, so that their sums do not depend on the order of addition."""

Rests = tuple[int, ...]
"""How much of each GPU is free for new pods, in thousandths: the scarcer of memory and slices."""
Takes = Mapping[Shape, tuple[int, int]]
"""By shape that can run on a node: how many GPUs it takes there, and how much of each (0..1000)."""
Worth = tuple[float, tuple[tuple[int, float, float], ...]]
"""V of a node. Then of each request for several GPUs that fits: how much of each GPU it takes, its share, and the part
of V that is lost when one GPU fewer has so much free; 0 if enough are left."""


class Rates:
    """The value of free GPUs to typical requests that run with the free CPU."""

    __slots__ = ("several", "shares", "sizes")

    def __init__(self, steps: Iterable[tuple[int, int, float]]) -> None:
        """Each step: how many GPUs are requested, how much of each, by which share of the requests."""
        ordered = sorted(steps)
        self.sizes = [of for count, of, _ in ordered if count == 1]
        """How much requests for one GPU take, ascending."""
        self.shares = list(accumulate((share for count, _, share in ordered if count == 1), initial=0.0))
        """By how many of these sizes fit: the share of the requests that can use the GPU."""
        self.several = [step for step in ordered if step[0] > 1]

    def worth(self, free: Rests) -> Worth:
        """V of a node with these free GPUs, and what it is made of."""
        sizes, shares = self.sizes, self.shares
        total = sum([shares[bisect_right(sizes, rest)] * rest for rest in free])
        several = []
        for count, of, share in self.several:
            fitting = [rest for rest in free if rest >= of]
            if len(fitting) >= count:
                value = share * sum(fitting)
                total += value
                several.append((of, share, value if len(fitting) == count else 0.0))
        return total, tuple(several)

    def loss(self, worth: Worth, before: int, after: int) -> float:
        """How much V falls when one of the GPUs has `after` free instead of `before`."""
        sizes, shares = self.sizes, self.shares
        lost = shares[bisect_right(sizes, before)] * before - shares[bisect_right(sizes, after)] * after
        for of, share, last in worth[1]:
            if before >= of:
                lost += share * (before - after) if after >= of else last or share * before
        return lost


class Usable:
    """How much of the free GPUs of nodes of one kind typical requests can use."""

    def __init__(
        self, mix: Mapping[Shape, float], typical: Iterable[tuple[Shape, float]], takes: Takes, price: float = 0.0
    ) -> None:
        """`mix`, `typical`: shapes with their shares; `takes`: what they take of a node; `price`: of term `wanted`."""
        steps: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for of, share in typical:
            if of in takes:
                steps.setdefault(takes[of], []).append((of.cpu, share))
        cpu = memory = gpus = 0.0
        for of, taken in takes.items():
            share = mix[of]
            cpu, memory = cpu + share * of.cpu, memory + share * of.memory
            gpus += share * size(taken) / GPU
        self._gpu_per_cpu = GPU * gpus / (BESIDE * cpu) if cpu else 0.0
        self._gpu_per_memory = GPU * gpus / (BESIDE * memory) if memory else 0.0
        self.price = price
        self._steps = steps
        self._thresholds = sorted({cpu for asks in steps.values() for cpu, _ in asks})
        self._rates: dict[int, Rates] = {}
        """By how many of the thresholds are met."""

    def rates(self, cpu: int) -> Rates:
        met = bisect_right(self._thresholds, cpu)
        rates = self._rates.get(met)
        if rates is None:
            if len(self._rates) >= RATES:
                self._rates.clear()
            running = {step: sum(share for least, share in asks if least <= cpu) for step, asks in self._steps.items()}
            steps = ((*step, round(share * EXACT) / EXACT) for step, share in running.items() if share)
            rates = self._rates[met] = Rates(steps)
        return rates

    def stranded(self, cpu: int, memory: int, free: int) -> float:
        """S of a node with so much free GPU, CPU and memory."""
        by_cpu = cpu * self._gpu_per_cpu if self._gpu_per_cpu else free
        by_memory = memory * self._gpu_per_memory if self._gpu_per_memory else free
        left = by_cpu if by_cpu < by_memory else by_memory
        return 0.0 if left >= free else free - left if left > 0 else free


def taking(ask: PodAsk | None, books: NodeBooks) -> tuple[int, int] | None:
    """How many GPUs the largest container takes of a node, and how much of each (0..1000); None if it cannot run."""
    per_gpu = books.inventory.slices_per_gpu
    if ask is None or not (gpus := _like(ask.selection, books)):
        return None
    taken: list[tuple[int, int]] = []
    for container in ask.containers:
        gpu, demand = next(((gpu, found) for gpu in gpus if (found := books.demand(container, gpu))), (None, None))
        if gpu is None or demand is None:
            return None
        of = (
            GPU * gpu.slices // SLICES
            if demand.whole
            else max(demand.mem * GPU / max(1, gpu.mem), demand.slices * GPU / per_gpu)
        )
        if of > GPU:
            return None
        taken.append((container.gpus, int(of)))
    return max(taken, key=size)


def _like(selection: Selection, books: NodeBooks) -> list[Gpu]:
    """A GPU that stands for those of the node, and MIG instances of each profile, as far as the selection accepts them.

    A GPU in MIG mode stands for none.
    """
    gpus = [book.gpu for book in books.gpus.values()]
    if books.profiles:
        kinds = {gpu.profile: gpu for gpu in reversed(gpus) if gpu.health != IN_MIG_MODE}
        gpus = [kinds[profile] for profile in sorted(kinds)]
    else:
        gpus = gpus[:1]
    return [gpu for gpu in gpus if suits(selection, gpu)]


def takes(shapes: Iterable[Shape], books: NodeBooks) -> Takes:
    """What these shapes take of such a node, without those that cannot run there."""
    return {of: taken for of in shapes if (taken := taking(of.ask, books)) is not None}


def size(taken: tuple[int, int]) -> int:
    """How much GPU that is in all, in thousandths."""
    return taken[0] * taken[1]

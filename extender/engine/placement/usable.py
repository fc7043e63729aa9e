"""How much of what is free on a node those can use who are still to come: V of `score`, for nodes of one kind."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate

from extender.engine.types.shape import Shape
from protos.contract.ask import ContainerAsk, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.inventory import Gpu
from protos.contract.selection import suits

GPU = 1000
"""One GPU."""
BESIDE = 0.85
"""Of the CPU and memory that go with a GPU on average, so much must be there for it not to count as stranded."""
RATES = 16
"""Amounts of CPU for which they are kept at a time."""
EXACT = 1 << 32
"""Shares are multiples of 1 / EXACT: so sums of them are the same in whatever order they are added."""

Rests = tuple[int, ...]
"""How much of each GPU is free to be given, in thousandths: the scarcer of memory and slices."""
Takes = Mapping[Shape, tuple[int, int]]
"""How many GPUs of a node, and how much of each (0..1000): of those shapes that can run there."""
Worth = tuple[float, tuple[tuple[int, float, float], ...]]
"""V of a node, and of those who ask for several GPUs and find them there: how much of each they take, their share, and
what is lost when so much is free on one GPU less."""


class Rates:
    """What free GPUs are worth, to typical asks that run with so much CPU."""

    __slots__ = ("several", "shares", "sizes")

    def __init__(self, steps: Iterable[tuple[int, int, float]]) -> None:
        """How many GPUs are asked, how much of each, by which share of the asks."""
        ordered = sorted(steps)
        self.sizes = [of for count, of, _ in ordered if count == 1]
        """How much of one GPU those take that ask for one, ascending."""
        self.shares = list(accumulate((share for count, _, share in ordered if count == 1), initial=0.0))
        """By how many of these sizes fit: the share of the asks that can use what is free."""
        self.several = [step for step in ordered if step[0] > 1]

    def worth(self, free: Rests) -> Worth:
        """Of a node with so much free."""
        sizes, shares = self.sizes, self.shares
        total = sum([shares[bisect_right(sizes, rest)] * rest for rest in free])
        found = []
        for count, of, share in self.several:
            fitting = [rest for rest in free if rest >= of]
            if len(fitting) >= count:
                value = share * sum(fitting)
                total += value
                found.append((of, share, value if len(fitting) == count else 0.0))
        return total, tuple(found)

    def loss(self, worth: Worth, before: int, after: int) -> float:
        """What of V is lost when one of the GPUs has `after` free rather than `before`."""
        sizes, shares = self.sizes, self.shares
        lost = shares[bisect_right(sizes, before)] * before - shares[bisect_right(sizes, after)] * after
        for of, share, last in worth[1]:
            if before >= of:
                lost += share * (before - after) if after >= of else last or share * before
        return lost


class Usable:
    """How much of the free GPUs of nodes of one kind typical asks can use."""

    def __init__(self, mix: Mapping[Shape, float], typical: Iterable[tuple[Shape, float]], takes: Takes) -> None:
        """All asks with their shares, and the typical ones with theirs; `takes`: what they take of such a node."""
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
        self.price = 0.0
        """How much GPU of this kind is wanted by its name."""
        self._steps = steps
        self._thresholds = sorted({cpu for found in steps.values() for cpu, _ in found})
        self._rates: list[Rates | None] = [None] * (len(self._thresholds) + 1)
        """By how many of the thresholds are met."""
        self._kept = 0
        """How many of them are there."""

    def rates(self, cpu: int) -> Rates:
        """Where so much CPU is free."""
        met = bisect_right(self._thresholds, cpu)
        found = self._rates[met]
        if found is None:
            if self._kept >= RATES:
                self._rates, self._kept = [None] * len(self._rates), 0
            found = self._rates[met] = self._reckon(cpu)
            self._kept += 1
        return found

    def _reckon(self, cpu: int) -> Rates:
        running = {step: sum(share for least, share in asks if least <= cpu) for step, asks in self._steps.items()}
        return Rates((*step, round(share * EXACT) / EXACT) for step, share in running.items() if share)

    def stranded(self, cpu: int, memory: int, free: int) -> float:
        """S of a node with so much free GPU."""
        by_cpu = cpu * self._gpu_per_cpu if self._gpu_per_cpu else free
        by_memory = memory * self._gpu_per_memory if self._gpu_per_memory else free
        left = by_cpu if by_cpu < by_memory else by_memory
        return 0.0 if left >= free else free - left if left > 0 else free


def taking(ask: PodAsk | None, books: NodeBooks) -> tuple[int, int] | None:
    """How many GPUs like its first one the largest container takes of a node, and how much of each (0..1000).

    None where the pod cannot run.
    """
    gpu = next(iter(books.gpus.values())).gpu
    if ask is None or not suits(ask.selection, gpu):
        return None
    found = [_taking(container, gpu, books) for container in ask.containers]
    return max((one for one in found if one is not None), key=size) if None not in found else None


def _taking(container: ContainerAsk, gpu: Gpu, books: NodeBooks) -> tuple[int, int] | None:
    demand = books.demand(container, gpu)
    if demand is None:
        return None
    per_gpu = books.inventory.slices_per_gpu
    of = GPU if demand.whole else max(demand.mem * GPU / max(1, gpu.mem), demand.slices * GPU / per_gpu)
    return (container.gpus, int(of)) if of <= GPU else None


def takes(shapes: Iterable[Shape], books: NodeBooks) -> Takes:
    """What these take of a node like that, without those that cannot run there."""
    return {of: taken for of in shapes if (taken := taking(of.ask, books)) is not None}


def size(taken: tuple[int, int]) -> int:
    """How much GPU that is in all."""
    return taken[0] * taken[1]

"""The policies of the FGD experiment as they ran: the score of a node for a spec, and the GPUs that it would give.

Pure functions of what is free on one node. Scores are whole numbers, larger is better; who wins among equals is not
decided here. Every function expects a node that takes the spec. Stretching BestFit's scores to 0..100 changes no order,
so it is left out. Sources: Weng et al., USENIX ATC 2023, section 6; hkust-adsl/kubernetes-scheduler-simulator.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from extender.sim.openb.cluster import Room, kind
from extender.sim.openb.fragment import Fragmentation
from extender.sim.openb.trace import MILLI, Spec

MOST_CPU = 128_000
"""Thousandths of a core by which CPU is made comparable: the largest node of the trace."""
MOST_GPU = 8 * MILLI
"""GPU milli of the largest node."""

Gpus = tuple[int, ...]


class Policy(Protocol):
    """A way to score nodes one by one."""

    def score(self, room: Room, spec: Spec) -> int: ...

    def gpus(self, room: Room, spec: Spec) -> Gpus: ...


def tightest(room: Room, spec: Spec) -> Gpus:
    """Those GPUs that fit and have the least free, lowest index first."""
    fitting = sorted((free, i) for i, free in enumerate(room.gpus) if free >= spec.milli)
    return tuple(i for _, i in fitting[: spec.gpus])


class Tightest:
    """What most policies do within a node."""

    def gpus(self, room: Room, spec: Spec) -> Gpus:
        return tightest(room, spec)


class Random:
    """Every node is as good as another, and so is every GPU."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def score(self, room: Room, spec: Spec) -> int:  # noqa: ARG002  # one of several policies
        return 0

    def gpus(self, room: Room, spec: Spec) -> Gpus:
        fitting = [i for i, free in enumerate(room.gpus) if free >= spec.milli]
        return tuple(sorted(self._rng.sample(fitting, spec.gpus)))


class BestFit(Tightest):
    """The least left over of CPU and GPU, each as a part of the largest node's."""

    def score(self, room: Room, spec: Spec) -> int:
        cpu = (room.cpu - spec.cpu_milli) / MOST_CPU
        gpu = (sum(room.gpus) - spec.gpu_milli) / MOST_GPU
        return math.floor(100 * (1 - (cpu + gpu) / 2))


class DotProd(Tightest):
    """The smallest inner product of what is free and what is asked."""

    def score(self, room: Room, spec: Spec) -> int:
        cpu = room.cpu / MOST_CPU * spec.cpu_milli / MOST_CPU
        gpu = sum(room.gpus) / MOST_GPU * spec.gpu_milli / MOST_GPU
        return math.floor(100 * (1 - (cpu + gpu) / 2))


class Packing(Tightest):
    """Used GPUs before free ones of used nodes, those before idle nodes."""

    def score(self, room: Room, spec: Spec) -> int:
        if not spec.gpus:
            return 0
        free = room.gpus.count(MILLI)
        if free == len(room.gpus):
            return max(33 - free, free)
        left = [room.gpus[i] for i in tightest(room, spec)]
        if fresh := left.count(MILLI):
            return max(50 - fresh, 33)
        return max(100 - sum(milli * 100 // MILLI for milli in left) // 10, 50)


class Clustering(Tightest):
    """Nodes that hold the same kind of GPU request, the fuller the better."""

    def score(self, room: Room, spec: Spec) -> int:
        if not spec.gpus:
            return 0
        same = kind(spec) in room.kinds
        if same:
            band = 75 if len(room.kinds) == 1 else 50
        else:
            band = 0 if room.kinds else 25
        return band + 25 * (MOST_GPU - sum(room.gpus)) // MOST_GPU


class _Descent(NamedTuple):
    score: int
    gpus: Gpus


class Fgd:
    """Fragmentation gradient descent: where the node's fragments grow least, or shrink most."""

    def __init__(self, fragmentation: Fragmentation) -> None:
        self._fragments = fragmentation.of
        self._milli = 1000.0 * fragmentation.weight

    def score(self, room: Room, spec: Spec) -> int:
        return self._best(room, spec).score

    def gpus(self, room: Room, spec: Spec) -> Gpus:
        return self._best(room, spec).gpus

    def _best(self, room: Room, spec: Spec) -> _Descent:
        """Of GPUs with equally much free the first stands for all."""
        before = self._fragments(room.cpu, room.gpus, room.model)
        cpu = room.cpu - spec.cpu_milli
        best = _Descent(-1, ())
        for chosen in _choices(room.gpus, spec):
            gpus = list(room.gpus)
            for i in chosen:
                gpus[i] -= spec.milli
            descent = before - self._fragments(cpu, gpus, room.model)
            score = _sigmoid(descent / self._milli)
            if score > best.score:
                best = _Descent(score, chosen)
        return best


def _choices(gpus: Sequence[int], spec: Spec) -> list[Gpus]:
    """The sets of GPUs that differ, by lowest index."""
    if not spec.gpus:
        return [()]
    if spec.gpus > 1 or spec.milli == MILLI:
        return [tuple(i for i, free in enumerate(gpus) if free == MILLI)[: spec.gpus]]
    seen: dict[int, Gpus] = {}
    for i, free in enumerate(gpus):
        if free >= spec.milli:
            seen.setdefault(free, (i,))
    return list(seen.values())


def _sigmoid(descent: float) -> int:
    """0..100; `descent` in GPUs."""
    return math.floor(100 / (1 + math.exp(-descent)))

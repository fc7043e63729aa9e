"""The policies of the FGD experiment: a score for each node, and the GPUs of the chosen node.

Scores are whole numbers, and the largest wins; `ranking` breaks ties. Every function expects a node that takes the
spec. The experiment also scales BestFit's scores to 0..100, which does not change their order.
Sources: Weng et al., USENIX ATC 2023, section 6; hkust-adsl/kubernetes-scheduler-simulator.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from extender.sim.openb.cluster import Room, kind
from extender.sim.openb.fragment import Fragmentation
from extender.sim.openb.trace import MILLI, Spec

MAX_CPU_MILLI = 128_000
"""CPU of the largest node of the trace, which makes CPU comparable."""
MAX_GPU_MILLI = 8 * MILLI
"""GPU of the largest node."""

Gpus = tuple[int, ...]


def tightest(room: Room, spec: Spec) -> Gpus:
    """The fitting GPUs with the least free, lowest index first."""
    fitting = sorted((free, i) for i, free in enumerate(room.gpus) if free >= spec.milli)
    return tuple(i for _, i in fitting[: spec.gpus])


class Policy(NamedTuple):
    """Scores nodes one by one, and chooses GPUs of a node."""

    score: Callable[[Room, Spec], int]
    gpus: Callable[[Room, Spec], Gpus] = tightest


def at_random(rng: random.Random) -> Policy:
    """Any GPUs; all nodes score the same."""

    def gpus(room: Room, spec: Spec) -> Gpus:
        fitting = [i for i, free in enumerate(room.gpus) if free >= spec.milli]
        return tuple(sorted(rng.sample(fitting, spec.gpus)))

    return Policy(lambda room, spec: 0, gpus)  # noqa: ARG005  # the signature of a score


def best_fit(room: Room, spec: Spec) -> int:
    """The least CPU and GPU left over, as parts of the largest node's."""
    cpu = (room.cpu - spec.cpu_milli) / MAX_CPU_MILLI
    gpu = (sum(room.gpus) - spec.gpu_milli) / MAX_GPU_MILLI
    return math.floor(100 * (1 - (cpu + gpu) / 2))


def dot_product(room: Room, spec: Spec) -> int:
    """The smallest inner product of free and requested resources."""
    cpu = room.cpu / MAX_CPU_MILLI * spec.cpu_milli / MAX_CPU_MILLI
    gpu = sum(room.gpus) / MAX_GPU_MILLI * spec.gpu_milli / MAX_GPU_MILLI
    return math.floor(100 * (1 - (cpu + gpu) / 2))


def packing(room: Room, spec: Spec) -> int:
    """Used GPUs first, then free GPUs of used nodes, then idle nodes."""
    if not spec.gpus:
        return 0
    free = room.gpus.count(MILLI)
    if free == len(room.gpus):
        return max(33 - free, free)
    left = [room.gpus[i] for i in tightest(room, spec)]
    if fresh := left.count(MILLI):
        return max(50 - fresh, 33)
    return max(100 - sum(milli * 100 // MILLI for milli in left) // 10, 50)


def clustering(room: Room, spec: Spec) -> int:
    """Nodes that hold the same kind of GPU request first, the fullest first."""
    if not spec.gpus:
        return 0
    if kind(spec) in room.kinds:
        band = 75 if len(room.kinds) == 1 else 50
    else:
        band = 0 if room.kinds else 25
    return band + 25 * (MAX_GPU_MILLI - sum(room.gpus)) // MAX_GPU_MILLI


SCORES: Mapping[str, Callable[[Room, Spec], int]] = {
    "bestfit": best_fit,
    "dotprod": dot_product,
    "packing": packing,
    "clustering": clustering,
}


def fgd(fragmentation: Fragmentation) -> Policy:
    """Fragmentation gradient descent: the node whose fragments grow least or shrink most."""

    milli = 1000.0 * fragmentation.weight

    def best(room: Room, spec: Spec) -> tuple[int, Gpus]:
        """Score and GPUs. Of GPUs with equal free amounts only the first counts."""
        before = fragmentation.of(room.cpu, room.gpus, room.model)
        cpu = room.cpu - spec.cpu_milli
        best_score, best_gpus = -1, Gpus()
        for chosen in _choices(room.gpus, spec):
            gpus = list(room.gpus)
            for i in chosen:
                gpus[i] -= spec.milli
            descent = before - fragmentation.of(cpu, gpus, room.model)
            score = _sigmoid(descent / milli)
            if score > best_score:
                best_score, best_gpus = score, chosen
        return best_score, best_gpus

    return Policy(lambda room, spec: best(room, spec)[0], lambda room, spec: best(room, spec)[1])


def _choices(gpus: Sequence[int], spec: Spec) -> list[Gpus]:
    """The distinct sets of GPUs, by lowest index."""
    if not spec.gpus:
        return [()]
    if spec.gpus > 1 or spec.milli == MILLI:
        return [tuple(i for i, free in enumerate(gpus) if free == MILLI)[: spec.gpus]]
    first_of: dict[int, Gpus] = {}
    for i, free in enumerate(gpus):
        if free >= spec.milli:
            first_of.setdefault(free, (i,))
    return list(first_of.values())


def _sigmoid(descent: float) -> int:
    """0..100; `descent` in GPUs."""
    return math.floor(100 / (1 + math.exp(-descent)))

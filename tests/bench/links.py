"""Sets of GPUs by their links: the best k of 16, any k, on random occupancies, one after the other.

Nothing is remembered at first. A search waits for nothing, so its mark is held against CPU time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import combinations

from protos.contract.inventory import Link
from protos.contract.links import Topology
from tests.bench.report import Figure

GPUS, SEARCHES = 16, 3_000
NUMA = tuple((gpu, gpu * 2 // GPUS) for gpu in range(GPUS))
KINDS = ("NV1", "NV2", "NV4", "PIX", "PXB", "NODE", "SYS")


def _topologies() -> Iterator[tuple[str, Topology]]:
    rng = random.Random(1)
    pairs = list(combinations(range(GPUS), 2))
    switched: list[Link] = [(a, b, "NV6") for a, b in pairs]
    switches = [(a, b, "PIX" if a // 2 == b // 2 else "NODE" if a // 8 == b // 8 else "SYS") for a, b in pairs]
    yield "NVSwitch", Topology(switched, NUMA)
    yield "PCIe switches", Topology(switches, NUMA)
    drawn = [(a, b, rng.choice(KINDS)) for a in range(GPUS) for b in range(GPUS) if a != b]
    yield "an asymmetric matrix", Topology(drawn, NUMA)


def _mean(topology: Topology) -> tuple[float, float]:
    """CPU seconds of a search on the average and of the longest."""
    rng, took = random.Random(2), []
    for _ in range(SEARCHES):
        idle = tuple(sorted(rng.sample(range(GPUS), rng.randint(1, GPUS))))
        k = rng.randint(1, len(idle))
        began = time.thread_time()
        topology.best(idle, k, idle)
        took.append(time.thread_time() - began)
    return sum(took) / len(took), max(took)


def run() -> list[Figure]:
    """For several kinds of machines."""
    figures = []
    for name, topology in _topologies():
        mean, longest = _mean(topology)
        label = f"best k of {GPUS} GPUs, {name}, {SEARCHES:,} searches"
        figures.append(Figure(f"{label}: mean", 1000 * mean, "ms", mark=1.0))
        figures.append(Figure(f"{label}: longest", 1000 * longest, "ms"))
    return figures

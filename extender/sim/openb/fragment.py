"""FGD's measure: how much of a node's idle GPUs the typical workload cannot use, in expectation.

A typical workload is the most frequent specs that together make 95 % of the pods, memory left out. For a spec that
runs on the node, fragments are the GPUs with less free than it asks of one; for a spec that does not run there, or asks
no GPU, all that is idle is a fragment. Amounts are whole numbers, GPU milli times pods of the typical workload, so that
equal nodes have equal measures to the last digit. Source: Weng et al., USENIX ATC 2023, section 4.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from extender.sim.openb.trace import Pod

COVERED = 0.95
"""The part of the pods that the typical specs cover."""


class Typical(NamedTuple):
    """A spec of the typical workload and how many pods have it."""

    cpu_milli: int
    gpus: int
    milli: int
    models: tuple[str, ...]
    pods: int


def typical(pods: Sequence[Pod]) -> list[Typical]:
    """The most frequent specs, until they cover enough of the pods; equally frequent ones in the order of amounts."""
    specs = (pod.spec for pod in pods)
    counted = Counter((spec.cpu_milli, spec.gpus, spec.milli, spec.models) for spec in specs)
    found: list[Typical] = []
    covered = 0
    for key, count in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
        if covered >= COVERED * len(pods):
            break
        found.append(Typical(*key, count))
        covered += count
    return found


class Fragmentation:
    """The measure for one typical workload; nodes in equal states are measured once."""

    def __init__(self, workload: Sequence[Typical]) -> None:
        self._workload = workload
        self.weight = sum(spec.pods for spec in workload)
        """What the measure is to be divided by to be in GPU milli."""
        self._cpus = sorted({spec.cpu_milli for spec in workload})
        self._typed = any(spec.models for spec in workload)
        self._known: dict[tuple[int, tuple[int, ...], str], int] = {}
        self._runnable: dict[tuple[int, str], list[tuple[int, int, int]]] = {}

    def of(self, cpu: int, gpus: Iterable[int], model: str) -> int:
        """The fragments of a node with so much free: GPU milli times `weight`."""
        level = bisect_right(self._cpus, cpu)
        idle = tuple(sorted(gpus))
        key = (level, idle, model if self._typed else "")
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._measure(level, idle, model)
        return found

    def _measure(self, level: int, idle: tuple[int, ...], model: str) -> int:
        total = sum(idle)
        if not total:
            return 0
        useful = 0
        for pods, gpus, milli in self._specs(level, model):
            enough = [free for free in idle if free >= milli]
            if len(enough) >= gpus:
                useful += pods * sum(enough)
        return self.weight * total - useful

    def _specs(self, level: int, model: str) -> list[tuple[int, int, int]]:
        """(pods, GPUs, milli) of what asks for GPUs that such a node has and for no more CPU than so."""
        key = (level, model if self._typed else "")
        if key not in self._runnable:
            asked: Counter[tuple[int, int]] = Counter()
            for spec in self._workload:
                fits = spec.cpu_milli <= (self._cpus[level - 1] if level else -1)
                if spec.gpus and fits and (not spec.models or model in spec.models):
                    asked[spec.gpus, spec.milli] += spec.pods
            self._runnable[key] = [(pods, gpus, milli) for (gpus, milli), pods in asked.items()]
        return self._runnable[key]

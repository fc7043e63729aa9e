"""FGD's measure: the expected part of a node's idle GPUs that the typical workload cannot use.

The typical workload is the most frequent specs that together cover 95 % of the pods, without memory. For a spec that
fits the node, the fragments are the GPUs with less free than the spec requests of one GPU. For any other spec, and for
specs without GPUs, all idle GPU is a fragment. Amounts are whole numbers, GPU milli times pods of the typical workload,
so equal nodes have exactly equal measures. Source: Weng et al., USENIX ATC 2023, section 4.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from extender.sim.openb.trace import Pod, Spec

COVERED = 0.95
"""The part of the pods that the typical specs cover."""
STATES, LEVELS = 1 << 20, 1 << 12
"""States of nodes, and pairs of CPU level and model, whose results are kept."""


def typical(pods: Sequence[Pod]) -> dict[Spec, int]:
    """The number of pods of the most frequent specs; specs of equal frequency are ordered by amounts."""
    counted = Counter(msgspec.structs.replace(pod.spec, memory_mib=0) for pod in pods)
    found: dict[Spec, int] = {}
    covered = 0
    for spec, count in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
        if covered >= COVERED * len(pods):
            break
        found[spec] = count
        covered += count
    return found


class Fragmentation:
    """The measure for one typical workload. Nodes in equal states are measured once."""

    def __init__(self, workload: Mapping[Spec, int]) -> None:
        self._workload = workload
        self.weight = sum(workload.values())
        """Divide the measure by this for GPU milli."""
        self._cpus = sorted({spec.cpu_milli for spec in workload})
        self._typed = any(spec.models for spec in workload)
        self._measured = lru_cache(STATES)(self._measure)
        self._runnable = lru_cache(LEVELS)(self._specs)

    def of(self, cpu: int, gpus: Iterable[int], model: str) -> int:
        """The fragments of a node with these free amounts: GPU milli times `weight`."""
        return self._measured(bisect_right(self._cpus, cpu), tuple(sorted(gpus)), model if self._typed else "")

    def _measure(self, level: int, idle: tuple[int, ...], model: str) -> int:
        total = sum(idle)
        useful = 0
        for pods, gpus, milli in self._runnable(level, model) if total else ():
            enough = [free for free in idle if free >= milli]
            if len(enough) >= gpus:
                useful += pods * sum(enough)
        return self.weight * total - useful

    def _specs(self, level: int, model: str) -> list[tuple[int, int, int]]:
        """(pods, GPUs, milli) of the GPU specs that accept the model and fit the CPU level."""
        largest = self._cpus[level - 1] if level else -1
        asked: Counter[tuple[int, int]] = Counter()
        for spec, pods in self._workload.items():
            if spec.gpus and spec.cpu_milli <= largest and (not spec.models or model in spec.models):
                asked[spec.gpus, spec.milli] += pods
        return [(pods, gpus, milli) for (gpus, milli), pods in asked.items()]

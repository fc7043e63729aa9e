"""Lists with another mix of pods, resampled from the real list with a seed.

A policy should be good on more than one list. Each derived list has as many GPU pods as the real one. Its pods are
drawn from the real list; the list's name says how they differ from it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from extender.sim.openb.choices import ListName
from extender.sim.openb.trace import MILLI, Node, Pod, Spec
from extender.sim.table import TraceError

PRODUCTION_MODELS = {
    ("T4",): 33,
    ("V100M16", "V100M32"): 13,
    ("G2",): 10,
    ("P100",): 5,
    ("P100", "V100M16", "V100M32"): 3,
    ("G2", "P100", "T4", "V100M16", "V100M32"): 2,
    ("P100", "T4", "V100M16", "V100M32"): 2,
    ("G3",): 2,
}
"""How many of the first typed pods of the trace's openb_pod_list_gpuspec33.csv name these models."""


class _Source(NamedTuple):
    """The real list and the seed. Each method derives a list."""

    pods: Sequence[Pod]
    nodes: Sequence[Node]
    rng: random.Random

    def unchanged(self) -> list[Pod]:
        return list(self.pods)

    def mixed(self, part: float, chosen: Callable[[Spec], bool]) -> list[Pod]:
        """Chosen pods make this part of the GPU demand. Both kinds are drawn with replacement."""
        matching = [pod for pod in self.pods if pod.spec.gpus and chosen(pod.spec)]
        rest = [pod for pod in self.pods if pod.spec.gpus and not chosen(pod.spec)]
        if not matching or not (rest or part == 1):
            raise TraceError("the list has no pods of a kind that the derived list is mixed from: expected some")
        total = count = len(matching) + len(rest)
        if rest and part != 1:
            ratio = part / (1 - part) * _mean_milli(rest) / _mean_milli(matching)
            count = round(total * ratio / (1 + ratio))
        drawn = self.rng.choices(matching, k=count) + (self.rng.choices(rest, k=total - count) if rest else [])
        return _renamed([pod for pod in self.pods if not pod.spec.gpus] + drawn)

    def typed(self, part: float, models: Callable[[Mapping[str, int], random.Random], tuple[str, ...]]) -> list[Pod]:
        """This part of the GPU pods names models, chosen from the number of fitting GPUs by model."""
        pods = list(self.pods)
        gpu_pods = [i for i, pod in enumerate(pods) if pod.spec.gpus]
        for i in self.rng.sample(gpu_pods, round(part * len(gpu_pods))):
            pods[i] = _changed(pods[i], models=models(self._fitting_gpus(pods[i].spec), self.rng))
        return pods

    def _fitting_gpus(self, spec: Spec) -> dict[str, int]:
        """The number of GPUs by model on nodes that fit the pod while they are empty."""
        gpus: dict[str, int] = {}
        for node in self.nodes:
            if node.gpus >= spec.gpus and node.cpu_milli >= spec.cpu_milli and node.memory_mib >= spec.memory_mib:
                gpus[node.model] = gpus.get(node.model, 0) + node.gpus
        return gpus

    def more_cpu_pods(self, factor: float) -> list[Pod]:
        """The number of pods without GPUs grows by this factor."""
        without = [pod for pod in self.pods if not pod.spec.gpus]
        more = self.rng.choices(without, k=round((factor - 1) * len(without))) if without else []
        return _renamed([*self.pods, *more])

    def more_cpu(self, factor: float) -> list[Pod]:
        """The CPU of GPU pods grows by this factor, up to the largest node with as many GPUs."""

        def cpu(spec: Spec) -> int:
            most = max((node.cpu_milli for node in self.nodes if node.gpus >= spec.gpus), default=0)
            return max(spec.cpu_milli, min(round(spec.cpu_milli * factor), most))

        return [_changed(pod, cpu_milli=cpu(pod.spec)) if pod.spec.gpus else pod for pod in self.pods]


def derived(name: ListName, pods: Sequence[Pod], nodes: Sequence[Node], seed: int = 0) -> list[Pod]:
    """The list of this name; raises TraceError if the real list lacks a kind of pod that it needs."""
    return LISTS[name](_Source(pods, nodes, random.Random(f"{name} {seed}")))


def _mean_milli(pods: Sequence[Pod]) -> float:
    return sum(pod.spec.gpu_milli for pod in pods) / len(pods)


def _renamed(pods: Sequence[Pod]) -> list[Pod]:
    """Names that differ even for pods that were drawn twice."""
    return [Pod(f"{i:05}-{pod.name}", pod.spec) for i, pod in enumerate(pods)]


def _changed(pod: Pod, **fields: object) -> Pod:
    return Pod(pod.name, msgspec.structs.replace(pod.spec, **fields))


def _by_supply(gpus: Mapping[str, int], rng: random.Random) -> tuple[str, ...]:
    """One or two models, drawn by their number of GPUs."""
    drawn = rng.choices(list(gpus), weights=list(gpus.values()), k=rng.randint(1, 2)) if gpus else ()
    return tuple(sorted(set(drawn)))


def _as_in_production(gpus: Mapping[str, int], rng: random.Random) -> tuple[str, ...]:
    """Models as production pods name them: scarce models most often."""
    possible = {models: n for models, n in PRODUCTION_MODELS.items() if any(model in gpus for model in models)}
    return rng.choices(list(possible), weights=list(possible.values()))[0] if possible else ()


def _shared(spec: Spec) -> bool:
    return spec.milli < MILLI


def _multi_gpu(spec: Spec) -> bool:
    return spec.gpus > 1


LISTS: Mapping[ListName, Callable[[_Source], list[Pod]]] = {
    "default": _Source.unchanged,
    "gpushare40": partial(_Source.mixed, part=0.4, chosen=_shared),
    "gpushare100": partial(_Source.mixed, part=1.0, chosen=_shared),
    "multigpu20": partial(_Source.mixed, part=0.2, chosen=_multi_gpu),
    "multigpu50": partial(_Source.mixed, part=0.5, chosen=_multi_gpu),
    "gpuspec10": partial(_Source.typed, part=0.10, models=_by_supply),
    "gpuspec33": partial(_Source.typed, part=0.33, models=_by_supply),
    "typed33": partial(_Source.typed, part=0.33, models=_as_in_production),
    "cpu125": partial(_Source.more_cpu, factor=1.25),
    "cpu200": partial(_Source.more_cpu, factor=2.0),
    "cpu250": partial(_Source.more_cpu, factor=2.5),
    "cpuonly250": partial(_Source.more_cpu_pods, factor=2.5),
}
"""The numbers are percentages: of the GPU demand, by pods that share a GPU (gpushare) or use several (multigpu); of the
GPU pods, those that name models by supply (gpuspec) or as in production (typed); of the real list, the CPU of GPU pods
(cpu) or the number of pods without GPUs (cpuonly)."""

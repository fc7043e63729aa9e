"""Lists like the real one but with another mix, made from it by resampling with a seed.

No policy should be good on one list alone. There are as many GPU pods as in the real list, each of them drawn from it
and changed in nothing but what the list's name says.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from extender.sim.openb.choices import ListName
from extender.sim.openb.trace import MILLI, Node, Pod, Spec
from extender.sim.table import TraceError

Draw = Callable[[Sequence[Pod], Sequence[Node], random.Random], list[Pod]]
Naming = Callable[[Mapping[str, int], random.Random], tuple[str, ...]]
"""The models that a pod names, of the GPUs by model on which it would fit."""
NAMED = {
    ("T4",): 33,
    ("V100M16", "V100M32"): 13,
    ("G2",): 10,
    ("P100",): 5,
    ("P100", "V100M16", "V100M32"): 3,
    ("G2", "P100", "T4", "V100M16", "V100M32"): 2,
    ("P100", "T4", "V100M16", "V100M32"): 2,
    ("G3",): 2,
}
"""How often the first typed pods of the trace's openb_pod_list_gpuspec33.csv name which models."""


def derived(name: ListName, pods: Sequence[Pod], nodes: Sequence[Node], seed: int = 0) -> list[Pod]:
    """The list of this name (one of LISTS); TraceError where the real list has no pods of a kind that it needs."""
    return LISTS[name](pods, nodes, random.Random(f"{name} {seed}"))


def _mixed(
    part: float, chosen: Callable[[Spec], bool], pods: Sequence[Pod], nodes: Sequence[Node], rng: random.Random
) -> list[Pod]:
    """Chosen pods make this part of the GPU demand; both kinds are drawn with replacement, each from its own pods."""
    del nodes
    some = [pod for pod in pods if pod.spec.gpus and chosen(pod.spec)]
    rest = [pod for pod in pods if pod.spec.gpus and not chosen(pod.spec)]
    if not some or not (rest or part == 1):
        raise TraceError("the list has no pods of a kind that the derived list is mixed from: expected some")
    count = _count(part, some, rest)
    drawn = rng.choices(some, k=count) + (rng.choices(rest, k=len(some) + len(rest) - count) if rest else [])
    return _named([pod for pod in pods if not pod.spec.gpus] + drawn)


def _count(part: float, some: Sequence[Pod], rest: Sequence[Pod]) -> int:
    """How many of all GPU pods are to be from `some`, so that these ask that part of the GPUs."""
    if not rest or part == 1:
        return len(some) + len(rest)
    ratio = part / (1 - part) * _mean(rest) / _mean(some)
    return round((len(some) + len(rest)) * ratio / (1 + ratio))


def _mean(pods: Sequence[Pod]) -> float:
    return sum(pod.spec.gpu_milli for pod in pods) / len(pods)


def _named(pods: Sequence[Pod]) -> list[Pod]:
    """Pods that were drawn twice are two pods."""
    return [Pod(f"{i:05}-{pod.name}", pod.spec) for i, pod in enumerate(pods)]


def _typed(part: float, name: Naming, pods: Sequence[Pod], nodes: Sequence[Node], rng: random.Random) -> list[Pod]:
    """This part of the GPU pods names models."""
    asking = [i for i, pod in enumerate(pods) if pod.spec.gpus]
    found = list(pods)
    for i in rng.sample(asking, round(part * len(asking))):
        found[i] = _changed(pods[i], models=name(_fitting(pods[i].spec, nodes), rng))
    return found


def _fitting(spec: Spec, nodes: Sequence[Node]) -> dict[str, int]:
    """The models of nodes that the pod fits when they are empty, and how many such GPUs there are."""
    gpus: dict[str, int] = {}
    for node in nodes:
        if node.gpus >= spec.gpus and node.cpu_milli >= spec.cpu_milli and node.memory_mib >= spec.memory_mib:
            gpus[node.model] = gpus.get(node.model, 0) + node.gpus
    return gpus


def _by_supply(gpus: Mapping[str, int], rng: random.Random) -> tuple[str, ...]:
    """One model or two, drawn by how many GPUs there are of them."""
    drawn = rng.choices(list(gpus), weights=list(gpus.values()), k=rng.randint(1, 2)) if gpus else ()
    return tuple(sorted(set(drawn)))


def _by_demand(gpus: Mapping[str, int], rng: random.Random) -> tuple[str, ...]:
    """Models as they are named in production: scarce ones most."""
    possible = {models: often for models, often in NAMED.items() if any(model in gpus for model in models)}
    return rng.choices(list(possible), weights=list(possible.values()))[0] if possible else ()


def _cpu_only(factor: float, pods: Sequence[Pod], nodes: Sequence[Node], rng: random.Random) -> list[Pod]:
    """So many times as many pods ask no GPU."""
    del nodes
    without = [pod for pod in pods if not pod.spec.gpus]
    more = rng.choices(without, k=round((factor - 1) * len(without))) if without else []
    return _named([*pods, *more])


def _cpu(factor: float, pods: Sequence[Pod], nodes: Sequence[Node], rng: random.Random) -> list[Pod]:
    """GPU pods ask so many times their CPU, at most what the largest node with as many GPUs has."""
    del rng

    def more(spec: Spec) -> int:
        most = max((node.cpu_milli for node in nodes if node.gpus >= spec.gpus), default=0)
        return max(spec.cpu_milli, min(round(spec.cpu_milli * factor), most))

    return [_changed(pod, cpu_milli=more(pod.spec)) if pod.spec.gpus else pod for pod in pods]


def _changed(pod: Pod, **fields: object) -> Pod:
    return Pod(pod.name, msgspec.structs.replace(pod.spec, **fields))


def _shares(spec: Spec) -> bool:
    return spec.milli < MILLI


def _several(spec: Spec) -> bool:
    return spec.gpus > 1


LISTS: Mapping[ListName, Draw] = {
    "default": lambda pods, nodes, rng: list(pods),  # noqa: ARG005  # as the others
    "gpushare40": partial(_mixed, 0.4, _shares),
    "gpushare100": partial(_mixed, 1.0, _shares),
    "multigpu20": partial(_mixed, 0.2, _several),
    "multigpu50": partial(_mixed, 0.5, _several),
    "gpuspec10": partial(_typed, 0.10, _by_supply),
    "gpuspec33": partial(_typed, 0.33, _by_supply),
    "typed33": partial(_typed, 0.33, _by_demand),
    "cpu125": partial(_cpu, 1.25),
    "cpu200": partial(_cpu, 2.0),
    "cpu250": partial(_cpu, 2.5),
    "cpuonly250": partial(_cpu_only, 2.5),
}
"""What the numbers say, in %: the part of the GPU demand that is asked by pods that share a GPU, or by pods of several;
the part of the GPU pods that name models, drawn by supply (gpuspec) or as in production (typed); the CPU of GPU pods
(cpu), or the number of pods without GPUs (cpuonly), against that in the real list."""

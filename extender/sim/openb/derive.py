"""Lists like the real one but with another mix, made from it by resampling with a seed.

No policy should be good on one list alone. Pods without GPUs stay as they are, and there are as many GPU pods as
before; drawn ones are pods of the real list, changed in nothing but what the list's name says.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from extender.sim.openb.choices import ListName
from extender.sim.openb.trace import MILLI, Node, Pod, Spec, TraceError

Draw = Callable[[Sequence[Pod], Sequence[Node], random.Random], list[Pod]]


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


def _typed(part: float, pods: Sequence[Pod], nodes: Sequence[Node], rng: random.Random) -> list[Pod]:
    """This part of the GPU pods names a model or two, drawn by how many GPUs the cluster has of them."""
    asking = [i for i, pod in enumerate(pods) if pod.spec.gpus]
    found = list(pods)
    for i in rng.sample(asking, round(part * len(asking))):
        models = tuple(sorted(_models(pods[i].spec, nodes, rng)))
        found[i] = _changed(pods[i], models=models)
    return found


def _models(spec: Spec, nodes: Sequence[Node], rng: random.Random) -> set[str]:
    """One model or two, of those that some node has that the pod fits when it is empty."""
    gpus: dict[str, int] = {}
    for node in nodes:
        if node.gpus >= spec.gpus and node.cpu_milli >= spec.cpu_milli and node.memory_mib >= spec.memory_mib:
            gpus[node.model] = gpus.get(node.model, 0) + node.gpus
    return set(rng.choices(list(gpus), weights=list(gpus.values()), k=rng.randint(1, 2))) if gpus else set()


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
    "gpuspec10": partial(_typed, 0.10),
    "gpuspec33": partial(_typed, 0.33),
    "cpu200": partial(_cpu, 2.0),
    "cpu250": partial(_cpu, 2.5),
}
"""What the numbers say, in %: the part of the GPU demand that is asked by pods that share a GPU, or by pods of several;
the part of the GPU pods that name models; the CPU of GPU pods against that in the real list."""

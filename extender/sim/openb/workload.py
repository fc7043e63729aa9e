"""What arrives, in which order: the list sorted by name, shuffled by the seed, inflated or thinned to a demand.

Source: protocol of the FGD experiment (USENIX ATC 2023) and its artifact, hkust-adsl/kubernetes-scheduler-simulator.
Random numbers are Python's, so single runs differ from the published ones; means over seeds compare.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from extender.sim.openb import trace
from extender.sim.openb.trace import Node, Pod


def arrivals(pods: Sequence[Pod], nodes: Sequence[Node], seed: int, percent: float) -> list[Pod]:
    """The pods in order of arrival; together they ask at most `percent` of the GPUs, some of them more than once."""
    rng = random.Random(seed)
    listed = sorted(pods, key=lambda pod: pod.name)
    rng.shuffle(listed)
    target = trace.capacity(nodes) * percent / 100
    asked = sum(pod.spec.gpu_milli for pod in listed)
    return _inflated(listed, asked, target, rng) if asked <= target else _thinned(listed, asked, target, rng)


def _inflated(listed: Sequence[Pod], asked: int, target: float, rng: random.Random) -> list[Pod]:
    """All of them, then draws with replacement until the next would pass the target.

    The test adds one GPU's part, however many GPUs the pod asks: so it was published.
    """
    coming = list(listed)
    while asked + (drawn := rng.choice(listed)).spec.milli <= target:
        coming.append(drawn)
        asked += drawn.spec.gpu_milli
    return coming


def _thinned(listed: Sequence[Pod], asked: int, target: float, rng: random.Random) -> list[Pod]:
    """Pods are taken out, each as likely as the other, until the target is not passed any more."""
    gone: set[int] = set()
    for i in rng.sample(range(len(listed)), len(listed)):
        if asked <= target:
            break
        gone.add(i)
        asked -= listed[i].spec.gpu_milli
    return [pod for i, pod in enumerate(listed) if i not in gone]


def renamed(nodes: Sequence[Node], seed: int) -> list[Node]:
    """The same nodes with their names dealt out anew, so that the order of names tells nothing about types."""
    names = sorted(node.name for node in nodes)
    random.Random(f"names of {seed}").shuffle(names)
    return [msgspec.structs.replace(node, name=name) for node, name in zip(nodes, names, strict=True)]

"""The order of arrival: the list sorted by name, shuffled by the seed, then inflated or thinned to a demand.

Source: protocol of the FGD experiment (USENIX ATC 2023) and its artifact, hkust-adsl/kubernetes-scheduler-simulator.
Python's random numbers differ from the artifact's, so only means over seeds can be compared with published ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from extender.sim.openb import trace
from extender.sim.openb.trace import Node, Pod
from extender.sim.table import TraceError

MOST_ARRIVALS = 1_000_000


def arrivals(pods: Sequence[Pod], nodes: Sequence[Node], seed: int, percent: float) -> list[Pod]:
    """The pods in order of arrival. Together they request at most `percent` of the GPUs; pods may repeat.

    Raises TraceError if the pods request so little that too many would arrive.
    """
    rng = random.Random(seed)
    listed = sorted(pods, key=lambda pod: pod.name)
    rng.shuffle(listed)
    target = trace.capacity(nodes) * percent / 100
    asked = sum(pod.spec.gpu_milli for pod in listed)
    return _inflated(listed, asked, target, rng) if asked <= target else _thinned(listed, asked, target, rng)


def _inflated(listed: Sequence[Pod], asked: int, target: float, rng: random.Random) -> list[Pod]:
    """All pods, then draws with replacement until the next would pass the target.

    As in the published experiment, the test adds the amount of one GPU, however many GPUs the pod requests.
    """
    coming = list(listed)
    while asked + (drawn := rng.choice(listed)).spec.milli <= target:
        if len(coming) == MOST_ARRIVALS:
            part = f"{100 * asked / target:.0f} % of the GPUs that are to be requested"
            raise TraceError(f"{MOST_ARRIVALS} pods of the list request {part}: expected more GPUs or fewer nodes")
        coming.append(drawn)
        asked += drawn.spec.gpu_milli
    return coming


def _thinned(listed: Sequence[Pod], asked: int, target: float, rng: random.Random) -> list[Pod]:
    """The pods without random ones, so many that the demand no longer exceeds the target."""
    removed: set[int] = set()
    for i in rng.sample(range(len(listed)), len(listed)):
        if asked <= target:
            break
        removed.add(i)
        asked -= listed[i].spec.gpu_milli
    return [pod for i, pod in enumerate(listed) if i not in removed]


def renamed(nodes: Sequence[Node], seed: int) -> list[Node]:
    """The same nodes with shuffled names, so that the order of names does not follow node types."""
    names = sorted(node.name for node in nodes)
    random.Random(f"names of {seed}").shuffle(names)
    return [msgspec.structs.replace(node, name=name) for node, name in zip(nodes, names, strict=True)]

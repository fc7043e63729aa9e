"""Small clusters and pods, and the real lists."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from extender.sim.openb import trace
from extender.sim.openb.cluster import Room
from extender.sim.openb.trace import Node, Pod, Spec

FOLDER = Path(__file__).parents[2] / "data" / "openb"
NODES, PODS = FOLDER / "openb_node_list_gpu_node.csv", FOLDER / "openb_pod_list_default.csv"


@cache
def real_nodes() -> Sequence[Node]:
    return tuple(trace.read_nodes(NODES))


@cache
def real_pods() -> Sequence[Pod]:
    return tuple(trace.read_pods(PODS))


def a_node(name: str = "n", *, cpu: int = 64, gpus: int = 2, model: str = "T4", memory: int = 1000) -> Node:
    """CPU in cores."""
    return Node(name, cpu * 1000, memory, gpus, model if gpus else "")


def a_spec(*, cpu: int = 1, gpus: int = 1, milli: int = 1000, models: tuple[str, ...] = (), memory: int = 0) -> Spec:
    """CPU in cores."""
    return Spec(cpu * 1000, memory, gpus, milli if gpus else 0, models)


def a_room(*gpus: int, cpu: int = 64, model: str = "T4", kinds: frozenset[int | str] = frozenset()) -> Room:
    """CPU in cores, GPUs in milli."""
    return Room(cpu * 1000, 1000, gpus, model, kinds)


def pods(*specs: Spec) -> list[Pod]:
    return [Pod(f"p{i:03}", spec) for i, spec in enumerate(specs)]


def some_world(seed: int) -> tuple[list[Node], list[Pod]]:
    """A dozen nodes and enough pods to fill them, of all kinds."""
    rng = random.Random(seed)
    nodes = [
        a_node(f"n{i}", cpu=rng.choice((8, 32, 96)), gpus=rng.choice((0, 1, 2, 8)), model=rng.choice(("T4", "A10")))
        for i in range(rng.randint(2, 12))
    ]
    nodes.append(a_node("full", cpu=96, gpus=8, model="A10"))
    shapes = [(0, 0), (1, 1000), (1, 1000), (1, 300), (1, 470), (1, 810), (2, 1000), (4, 1000), (8, 1000)]
    made = []
    for _ in range(rng.randint(20, 60)):
        gpus, milli = rng.choice(shapes)
        models = ("A10",) if gpus and rng.random() < 0.2 else ()
        memory = rng.choice((0, 10, 200))
        made.append(a_spec(cpu=rng.choice((0, 1, 4, 12)), gpus=gpus, milli=milli, models=models, memory=memory))
    return nodes, pods(*made)

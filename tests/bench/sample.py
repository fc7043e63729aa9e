"""The openb trace under a real kube-scheduler: how far from the simulator what is allocated there ends.

An eighth of the trace's nodes as objects, its pods by the published protocol, one at a time: the next comes when this
one is bound or refused, and who is refused is deleted. The simulator replays the same arrivals on the same nodes; there
a pod goes to our best node, here kube-scheduler's own scores decide among those that we offer.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from extender.sim.openb import ours, replay, workload
from extender.sim.openb.cluster import Assignment, Cluster
from extender.sim.openb.replay import Row, Run
from extender.sim.openb.trace import Node, Pod, Spec
from protos.contract import allocation, names, objects
from protos.kube import paths
from tests.bench import bodies, openb
from tests.bench.bodies import Json
from tests.bench.plane import NOW, PODS, Extender, Plane, PodWatch
from tests.bench.report import Figure
from tests.cluster.gangshare import get

SEEDS = (42, 43, 44)
PART = 8
"""One of so many nodes is in the sample."""
COLUMNS = (100, 130)
OFF = 0.5
"""Points by which a run may differ from the simulator's."""


class Outcome(NamedTuple):
    """Of one seed."""

    real: Sequence[Row]
    simulated: Sequence[Row]
    needless: int
    pods: int
    seconds: float


class _PodList(msgspec.Struct):
    items: list[objects.Pod]


_lists = msgspec.json.Decoder(_PodList)


class Told:
    """A placer that repeats where the pods went."""

    def __init__(self, assignments: Iterable[Assignment | None]) -> None:
        """In order of arrival; None is one that was refused."""
        self._assignments = iter(assignments)

    def choose(self, pod: Pod) -> Assignment | None:
        """The next; `pod` is the next, too."""
        del pod
        return next(self._assignments)


def sample(nodes: Sequence[Node], seed: int, part: int = PART) -> list[Node]:
    """Every `part`-th node in order of types, so that each type is there by its share; the seed says which is first."""
    ordered = sorted(nodes, key=lambda n: (n.model, n.gpus, n.cpu_milli, n.memory_mib, n.name))
    return ordered[random.Random(seed).randrange(part) :: part]


def needless(nodes: Sequence[Node], specs: Iterable[Spec], assignments: Iterable[Assignment | None]) -> int:
    """How many pods were refused although a node had room for them."""
    cluster, found = Cluster(nodes), 0
    for spec, assignment in zip(specs, assignments, strict=True):
        if assignment is not None:
            cluster.take(assignment, spec)
        else:
            found += any(room.takes(spec) for room in cluster.rooms)
    return found


def _node(node: Node) -> Json:
    """As in the simulator, with what else real nodes have."""
    told, made = ours.as_node(node), bodies.node(node.name)
    made["metadata"]["annotations"] = told.metadata.annotations
    made["status"] |= {"capacity": told.status.capacity, "allocatable": told.status.allocatable}
    return made


def _pod(name: str, spec: Spec) -> Json:
    """As in the simulator, with what else real pods have."""
    told, made = ours.as_pod(name, spec), bodies.pod(name, {})
    made["metadata"]["annotations"] = told.metadata.annotations
    made["spec"]["containers"][0]["resources"] = msgspec.to_builtins(told.spec.containers[0].resources)
    return made


async def _real(nodes: Sequence[Node], coming: Mapping[str, Spec]) -> tuple[list[Assignment | None], float]:
    """Where the pods that come went, by their names and in their order; and the seconds that it took."""
    async with Plane() as plane:
        await plane.create(paths.nodes(), map(_node, nodes))
        extender = plane.extender("--backfill-delay=0")  # nobody ends: room kept for one would be lost for all
        extender.start()
        plane.scheduler(extender)
        async with PodWatch.open(plane.api) as watch:
            began = time.monotonic()
            for name, spec in coming.items():
                await plane.api.post(PODS, _pod(name, spec))
                if not await watch.verdict(name):
                    await plane.api.delete(paths.pod("default", name), params=NOW)
            took = time.monotonic() - began
        await plane.settled(extender)
        bound = (await plane.api.fetch(PODS, _lists)).items
        _booked(extender, bound)
    number = {node.name: i for i, node in enumerate(nodes)}
    assignments = {pod.metadata.name: _assignment(pod, number) for pod in bound}
    return [assignments.get(name) for name in coming], took


def _booked(extender: Extender, bound: Sequence[objects.Pod]) -> None:
    """Raises RuntimeError if the extender's books hold other pods than those that are bound to GPUs."""
    booked = {pod["name"] for pod in json.loads(get(extender.status, "/inspect"))["pods"]}
    holding = {pod.metadata.name for pod in bound if names.ALLOCATION in pod.metadata.annotations}
    if booked != holding:
        raise RuntimeError(f"expected the bound pods in the books, they differ in {sorted(booked ^ holding)[:5]}")


def _assignment(pod: objects.Pod, number: Mapping[str, int]) -> Assignment:
    given = allocation.decode(pod.metadata.annotations.get(names.ALLOCATION))
    shares = [share for of in given.containers.values() for share in of] if given else []
    return Assignment(number[pod.spec.node_name or ""], tuple(share.index for share in shares))


def _outcome(seed: int) -> Outcome:
    run = Run(sample(openb.real_nodes(), seed), openb.pods_of("default"), seed=seed)
    arrivals = workload.arrivals(run.pods, run.nodes, run.seed, run.inflate)
    coming = {f"{pod.name}.{i}": pod.spec for i, pod in enumerate(arrivals)}
    assignments, seconds = asyncio.run(_real(run.nodes, coming))
    refused = needless(run.nodes, coming.values(), assignments)
    return Outcome(replay.replay(run, Told(assignments)), replay.replay(run), refused, len(coming), seconds)


def _figures(seed: int) -> list[Figure]:
    found, label = _outcome(seed), f"openb, one node in {PART}, seed {seed}"
    figures = [Figure(f"{label}: kube-scheduler, pods one by one", found.pods / found.seconds, "pods/s")]
    for column in COLUMNS:
        real, simulated = found.real[column].allocated, found.simulated[column].allocated
        figures += [
            Figure(f"{label}: allocated at {column} %, kube-scheduler", real, "%"),
            Figure(f"{label}: allocated at {column} %, simulator", simulated, "%"),
            Figure(f"{label}: apart at {column} %", abs(real - simulated), "points", mark=OFF),
        ]
    figures.append(Figure(f"{label}: refused although there was room", found.needless, "pods", mark=0.0))
    print(f"  seed {seed}: {found.pods:,} pods in {found.seconds:.0f} s", flush=True)
    return figures


def run() -> list[Figure]:
    """Each seed by itself."""
    return [figure for seed in SEEDS for figure in _figures(seed)]

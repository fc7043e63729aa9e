"""A burst of pods that ask all kinds of things, of a real kube-scheduler as it comes and with our extender, in turn.

Parts of GPUs, whole ones, two to eight, models, NVLink, classes and queues, on nodes of two models. kube-scheduler
alone sees only amounts. All pods are there before kube-scheduler may begin. The clock runs from the first bind to the
last.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from protos.contract import gpu_class, inventory, names, queue
from protos.kube import paths
from tests.bench import bodies, ways
from tests.bench.bodies import Json, Limits
from tests.bench.fleet import MEM, SLICE, WHOLE
from tests.bench.plane import Plane
from tests.bench.report import Figure
from tests.bench.ways import ALONE, BOTH, OURS, Burst, Way

MARKS: Mapping[int, float] = {1_000: 0.8, 5_000: 0.9}
"""By nodes: with us over alone in pods/s, at least."""
COUNT, QUEUES = 1_000, 10
A100 = "NVIDIA A100-SXM4-80GB"
DEFINITIONS = ("extender/queue.yaml", "extender/gpuclass.yaml")
ASKS: Sequence[tuple[Limits, Mapping[str, str]]] = (
    ({MEM: 4}, {}),
    ({MEM: 10}, {}),
    ({MEM: 40}, {}),
    ({SLICE: 25}, {}),
    ({MEM: 10, SLICE: 10}, {}),
    ({MEM: 40}, {names.GPU_COUNT: "2"}),
    ({MEM: 10}, {names.GPU_MODEL: "*A100*"}),
    ({MEM: 20}, {names.GPU_CLASS: "fast"}),
    ({MEM: 10}, {names.PLACEMENT: "spread"}),
    ({WHOLE: 1}, {}),
    ({WHOLE: 1}, {names.GPU_MODEL: "*H100*,!*PCIE*"}),
    ({WHOLE: 2}, {}),
    ({WHOLE: 2}, {names.LINK: "nvlink"}),
    ({WHOLE: 4}, {names.LINK: "nvlink"}),
    ({WHOLE: 4}, {names.GPU_CLASS: "fast"}),
    ({WHOLE: 8}, {}),
)


def _node(number: int) -> Json:
    """Every second one has the other model."""
    made = bodies.node(f"node-{number:05}")
    if number % 2:
        found = bodies.gpus_of(made["metadata"]["name"])
        gpus = tuple(msgspec.structs.replace(gpu, model=A100, cc="8.0", clock_mhz=1410) for gpu in found.gpus)
        made["metadata"]["annotations"][names.GPUS] = inventory.encode(msgspec.structs.replace(found, gpus=gpus))
    return made


def _pod(name: str, number: int) -> Json:
    """Every second one has a queue."""
    limits, said = ASKS[number * 7 % len(ASKS)]
    made = bodies.pod(name, limits)
    of_queue = {names.QUEUE: f"q{number % QUEUES}"} if number % 2 else {}
    made["metadata"]["annotations"] = {**said, **of_queue}
    return made


async def _create(plane: Plane, nodes: int) -> None:
    plane.define(*DEFINITIONS)
    own = {"apiVersion": gpu_class.API_VERSION, "kind": gpu_class.KIND, "metadata": {"name": "fast"}}
    path = paths.path(gpu_class.API_VERSION, gpu_class.PLURAL)
    await plane.api.post(path, {**own, "spec": {"models": ["*H100*"], "minClockMHz": 1500}})
    path = paths.path(queue.API_VERSION, queue.PLURAL)
    for number in range(QUEUES):
        made = {"apiVersion": queue.API_VERSION, "kind": queue.KIND, "metadata": {"name": f"q{number}"}}
        await plane.api.post(path, {**made, "spec": {"capability": {"gpus": nodes}}})
    await plane.create(paths.nodes(), map(_node, range(nodes)))


async def _measure(nodes: int) -> list[tuple[Way, Burst]]:
    async with Plane() as plane:
        await _create(plane, nodes)
        done = []
        for way in BOTH:
            async with ways.running(plane, way) as now:
                burst = await now.burst(_pod(f"pod-{i:04}", i) for i in range(COUNT))
            done.append((way, burst))
            print(f"  {nodes:,} nodes, {way.name}: {burst.told}", flush=True)
    return done


def _figures(nodes: int) -> list[Figure]:
    done = asyncio.run(_measure(nodes))
    rate = {way: statistics.median(burst.per_second for each, burst in done if each is way) for way in (ALONE, OURS)}
    cpu = {way: statistics.median(burst.sum_ms for each, burst in done if each is way) for way in (ALONE, OURS)}
    label = f"burst of {COUNT:,} mixed pods, {nodes:,} nodes"
    return [
        *(Figure(f"{label}: {way.name}", value, "pods/s") for way, value in rate.items()),
        Figure(f"{label}: with us / alone", rate[OURS] / rate[ALONE], "", mark=MARKS[nodes], better="more"),
        *(Figure(f"{label}: CPU of all processes per pod, {way.name}", value, "ms") for way, value in cpu.items()),
    ]


def run() -> list[Figure]:
    """Medians, and their ratios."""
    return [figure for nodes in MARKS for figure in _figures(nodes)]

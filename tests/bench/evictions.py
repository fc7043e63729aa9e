"""Room for a gang of 500 on a full cluster of 4,000 GPUs, with a real API server and kube-scheduler.

The GPUs are taken by gangs of 32 of lower priority, that end at once when they are evicted: nobody makes them anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from protos.contract import names
from protos.kube import binding, paths
from tests.bench import bodies
from tests.bench.bodies import Json
from tests.bench.fleet import WHOLE
from tests.bench.gang import gang
from tests.bench.plane import PODS, Extender, Plane, PodWatch, cpu_seconds, together
from tests.bench.preemption import MEMBERS, NODES, OTHERS, in_the_way
from tests.bench.report import Figure

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
URGENT = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}


def run() -> list[Figure]:
    """From the last member's coming to the last eviction, and to the last member's bind."""
    return asyncio.run(_measured())


async def _measured() -> list[Figure]:
    async with Plane() as plane:
        await plane.create(PRIORITY_CLASSES, [URGENT])
        await plane.create(paths.nodes(), (bodies.node(f"node-{i:05}") for i in range(NODES)))
        await _fill(plane)
        extender = plane.extender("--min-run=0")
        extender.start()
        await plane.settled(extender)
        return await _taken(plane, extender)


async def _fill(plane: Plane) -> None:
    """Every GPU has a pod."""
    pods = list(in_the_way(OTHERS))
    await plane.create(PODS, (made for made, _, _ in pods))
    uids = await plane.uids()
    found = ((made["metadata"]["name"], node, given) for made, node, given in pods)
    binds = (
        binding.bind(
            plane.api,
            namespace="default",
            name=name,
            uid=uids[name],
            node=node,
            annotations={names.ALLOCATION: given},
        )
        for name, node, given in found
    )
    await together(binds)


async def _taken(plane: Plane, extender: Extender) -> list[Figure]:
    victims = -(-MEMBERS // OTHERS) * OTHERS
    plane.scheduler(extender)
    members = list(_urgent(gang("urgent", MEMBERS, {WHOLE: 1})))
    async with PodWatch.open(plane.api) as watch:
        await plane.create(PODS, members)
        came, cpu = time.monotonic(), cpu_seconds(extender.process)
        await watch.until_gone(victims)
        await watch.until_bound(pod["metadata"]["name"] for pod in members)
        cpu = cpu_seconds(extender.process) - cpu
    evicted = sorted(at - came for at in watch.gone.values())
    bound = max(watch.bound[pod["metadata"]["name"]] for pod in members) - came
    print(f"  {len(evicted)} evicted, {evicted[0]:.2f} to {evicted[-1]:.2f} s after the last came; {cpu:.1f} s of CPU")
    if len(evicted) != victims:
        raise RuntimeError(f"{len(evicted)} pods were evicted: expected {victims}, whole gangs of {OTHERS}")
    label = f"gang of {MEMBERS} on {NODES * bodies.GPUS:,} GPUs full of gangs of {OTHERS}: its last member came"
    return [
        Figure(f"{label} → last eviction", evicted[-1], "s", mark=5.0),
        Figure(f"{label} → its last member bound", bound, "s"),
    ]


def _urgent(pods: Iterable[Json]) -> Iterable[Json]:
    for pod in pods:
        yield {**pod, "spec": {**pod["spec"], "priorityClassName": "urgent"}}

"""A gang of 500 reclaims its room on a full cluster of 4,000 GPUs, with a real API server and kube-scheduler.

All GPUs are taken by gangs of 25 of another tenant, who is due three quarters of them. Pods end at once when they are
evicted, and nobody makes them anew.
"""

from __future__ import annotations

import asyncio
import time

import yaml

from protos.contract import names, queue
from protos.kube import binding, errors, paths
from tests.bench import bodies
from tests.bench.bodies import Json
from tests.bench.fleet import WHOLE
from tests.bench.gang import gang
from tests.bench.plane import BASE, PODS, Extender, Plane, PodWatch, cpu_seconds, together
from tests.bench.preemption import MEMBERS, NODES, in_the_way
from tests.bench.report import Figure

DEFINITIONS = paths.path("apiextensions.k8s.io/v1", "customresourcedefinitions")
QUEUES = paths.path(queue.API_VERSION, "queues")
OTHERS = 25
DUE = {"research": 3 * NODES * bodies.GPUS // 4, "production": NODES * bodies.GPUS // 4}
"""GPUs that each tenant deserves."""
ESTABLISH_S = 30.0


def run() -> list[Figure]:
    """From the last member's coming to the last eviction, and to the last member's bind."""
    return asyncio.run(_measured())


async def _measured() -> list[Figure]:
    async with Plane() as plane:
        await _divide(plane)
        await plane.create(paths.nodes(), (bodies.node(f"node-{i:05}") for i in range(NODES)))
        await _fill(plane)
        extender = plane.extender("--min-runtime=0")
        extender.start()
        await plane.settled(extender)
        return await _taken(plane, extender)


async def _divide(plane: Plane) -> None:
    """Make the queues of both tenants."""
    await plane.create(DEFINITIONS, [yaml.safe_load((BASE / "extender/queue.yaml").read_text())])
    end = time.monotonic() + ESTABLISH_S
    while True:
        try:
            await plane.api.get(QUEUES)
            break
        except errors.NotFound:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.1)
    head = {"apiVersion": queue.API_VERSION, "kind": queue.KIND}
    due = ({**head, "metadata": {"name": name}, "spec": {"deserved": {queue.GPUS: gpus}}} for name, gpus in DUE.items())
    await plane.create(QUEUES, due)


async def _fill(plane: Plane) -> None:
    """Every GPU has a pod."""
    pods = list(in_the_way(NODES, OTHERS))
    await plane.create(PODS, (_of("research", made) for made, _, _ in pods))
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
    plane.scheduler(extender)
    members = [_of("production", pod) for pod in gang("release", MEMBERS, {WHOLE: 1})]
    async with PodWatch.open(plane.api) as watch:
        await plane.create(PODS, members)
        came, cpu = time.monotonic(), cpu_seconds(extender.process)
        await watch.until_gone(MEMBERS)
        await watch.until_bound(pod["metadata"]["name"] for pod in members)
        cpu = cpu_seconds(extender.process) - cpu
    evicted = sorted(at - came for at in watch.gone.values())
    bound = max(watch.bound[pod["metadata"]["name"]] for pod in members) - came
    print(f"  {len(evicted)} evicted, {evicted[0]:.2f} to {evicted[-1]:.2f} s after the last came; {cpu:.1f} s of CPU")
    if len(evicted) != MEMBERS:
        raise RuntimeError(f"{len(evicted)} pods were evicted: expected {MEMBERS}, whole gangs of {OTHERS}")
    label = f"gang of {MEMBERS} reclaims of {NODES * bodies.GPUS:,} GPUs, from gangs of {OTHERS}: its last member came"
    return [
        Figure(f"{label} → last eviction", evicted[-1], "s", mark=5.0),
        Figure(f"{label} → its last member bound", bound, "s"),
    ]


def _of(tenant: str, pod: Json) -> Json:
    pod["metadata"]["annotations"][names.QUEUE] = tenant
    return pod

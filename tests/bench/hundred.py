"""A gang of 100 on 99 GPUs, on a real kube-scheduler: until it is told why it waits; then one GPU more, until it runs.

What it may take is told in pods per second that the same scheduler bound right before, one by one.
"""

from __future__ import annotations

import asyncio
import time

from protos.kube import paths
from tests.bench import bodies
from tests.bench.fleet import MEM, WHOLE
from tests.bench.gang import gang
from tests.bench.plane import PODS, Plane, PodWatch
from tests.bench.report import Figure
from tests.cluster import bare
from tests.cluster.gangshare import get

MEMBERS = 100
FULL = [f"node-{i:05}" for i in range(12)]
GROWING, FEW = "growing", 3
"""Twelve nodes of eight GPUs, and one of three."""
VERDICT_S = 60.0


async def _measure() -> list[Figure]:
    async with Plane() as plane:
        await plane.create(paths.nodes(), [*map(bare.a_node, FULL), bare.a_node(GROWING, FEW)])
        extender = plane.extender()
        extender.start()
        plane.scheduler(extender)
        async with PodWatch.open(plane.api) as watch:
            rate = await _rate(plane, watch)
            await plane.create(PODS, gang("hundred", MEMBERS, {WHOLE: 1}))
            began = time.monotonic()
            while f"{len(FULL) * bodies.GPUS + FEW} can be placed" not in _told(extender.status):
                if time.monotonic() > began + VERDICT_S:
                    raise TimeoutError(f"no verdict after {VERDICT_S:g} s: {_told(extender.status)}")
                await asyncio.sleep(0.01)
            told = time.monotonic() - began
            began = time.monotonic()
            await _grow(plane)
            await watch.until_bound(f"hundred-{i:04}" for i in range(MEMBERS))
            took = max(watch.bound[f"hundred-{i:04}"] for i in range(MEMBERS)) - began
    print(f"  single pods: {rate:.0f} a second", flush=True)
    return [
        Figure("gang of 100, 99 GPUs: last member created → told", told, "s", mark=2.0),
        Figure("one GPU more → all 100 bound", took, "s", mark=1 + 2 * MEMBERS / rate),
    ]


async def _rate(plane: Plane, watch: PodWatch) -> float:
    """Single pods bound per second."""
    singles, began = [f"single-{i:04}" for i in range(MEMBERS)], time.monotonic()
    await plane.create(PODS, (bodies.pod(name, {MEM: 1}) for name in singles))
    await watch.until_bound(singles)
    took = max(watch.bound[name] for name in singles) - began
    await plane.delete_pods()
    return MEMBERS / took


async def _grow(plane: Plane) -> None:
    node, path = bare.a_node(GROWING, FEW + 1), paths.node(GROWING)
    await plane.api.patch(f"{path}/status", {"status": node["status"]})
    await plane.api.patch(path, {"metadata": node["metadata"]})


def _told(port: int) -> str:
    try:
        return get(port, "/explain/groups/default/hundred")
    except OSError:
        return ""


def run() -> list[Figure]:
    """The verdict and the start."""
    return asyncio.run(_measure())

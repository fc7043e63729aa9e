"""Four shapes of 1,000 members: many gangs of one, few of many; on 1,000 nodes, by a real kube-scheduler.

All pods exist before the scheduler may begin. No kubelets: nodes are objects, members are bound and never run.
"""

from __future__ import annotations

import asyncio
import time

from protos.kube import paths
from tests.bench import bodies
from tests.bench.fleet import MEM, WHOLE
from tests.bench.gang import WARM, gang
from tests.bench.plane import PODS, Extender, Plane, PodWatch
from tests.bench.report import Figure, percentile

NODES = 1_000
SHAPES = ((1_000, 1), (50, 20), (2, 500), (1, 1_000))
"""Gangs, and members of each."""


async def _start(plane: Plane, extender: Extender, gangs: int, members: int) -> list[Figure]:
    scheduler = plane.scheduler(extender)
    async with PodWatch.open(plane.api) as watch:
        warm = [f"warm-{i:04}" for i in range(WARM)]
        await plane.create(PODS, (bodies.pod(name, {MEM: 1}) for name in warm))
        await watch.until_bound(warm)
        scheduler.process.pause()
        made = [list(gang(f"gang-{members}-{i:04}", members, {WHOLE: 1})) for i in range(gangs)]
        pods = [[pod["metadata"]["name"] for pod in one] for one in made]
        await plane.create(PODS, (pod for one in made for pod in one))
        await plane.settled(extender)
        began = time.monotonic()
        scheduler.process.resume()
        await watch.until_bound(name for one in pods for name in one)
        at = [sorted(watch.bound[name] for name in one) for one in pods]
    scheduler.process.stop()
    await plane.delete_pods()
    last = max(one[-1] for one in at) - began
    skews = [one[-1] - one[0] for one in at]
    label = f"{gangs:,} gangs of {members:,}, {NODES:,} nodes"
    figures = [
        Figure(f"{label}: let go → last bound", last, "s"),
        Figure(f"{label}: pods bound", gangs * members / last, "pods/s"),
    ]
    if members > 1:
        figures.append(Figure(f"{label}: first → last of a gang, p50", percentile(skews, 0.5), "s"))
        figures.append(Figure(f"{label}: first → last of a gang, p99", percentile(skews, 0.99), "s"))
    return figures


async def _measure() -> list[Figure]:
    figures = []
    async with Plane() as plane:
        await plane.create(paths.nodes(), (bodies.node(f"node-{i:05}") for i in range(NODES)))
        extender = plane.extender()
        extender.start()
        for gangs, members in SHAPES:
            figures += await _start(plane, extender, gangs, members)
    return figures


def run() -> list[Figure]:
    """Time, rate and skew of each shape."""
    return asyncio.run(_measure())

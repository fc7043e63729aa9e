"""From asking for a pod's deletion until a pod that waits for its room is bound, by a real kube-scheduler.

All nodes are full; the scheduler is idle, and the pod that waits has been refused and is out of its backoff.
"""

from __future__ import annotations

import asyncio
import time

from protos.kube import paths
from tests.bench import bodies
from tests.bench.fleet import WHOLE
from tests.bench.plane import NOW, PODS, Plane, PodWatch
from tests.bench.report import Figure, percentile

NODES, TIMES = 100, 20
ALL = {WHOLE: bodies.GPUS}
IDLE_S = 2.5
"""Longer than podMaxBackoffSeconds, after which no pod is held back."""


async def _measure() -> list[float]:
    """Seconds of each time."""
    fillers = [f"filler-{i:04}" for i in range(NODES)]
    waits = []
    async with Plane() as plane:
        await plane.create(paths.nodes(), (bodies.node(f"node-{i:05}") for i in range(NODES)))
        extender = plane.extender()
        extender.start()
        plane.scheduler(extender)
        async with PodWatch.open(plane.api) as watch:
            await plane.create(PODS, (bodies.pod(name, ALL) for name in fillers))
            await watch.until_bound(fillers)
            for i in range(TIMES):
                waiting = f"waiting-{i:02}"
                await plane.create(PODS, [bodies.pod(waiting, ALL)])
                await watch.until_refused([waiting])
                await asyncio.sleep(IDLE_S)
                freed = time.monotonic()
                await plane.api.delete(paths.pod("default", fillers[i]), params=NOW)
                await watch.until_bound([waiting])
                waits.append(watch.bound[waiting] - freed)
    return waits


def run() -> list[Figure]:
    """The slowest is held against the mark."""
    milliseconds = [1000 * wait for wait in asyncio.run(_measure())]
    label = f"room freed → waiting pod bound, {TIMES} times, {NODES} full nodes"
    return [
        Figure(f"{label}: p50", percentile(milliseconds, 0.5), "ms"),
        Figure(f"{label}: slowest", max(milliseconds), "ms", mark=1000.0),
    ]

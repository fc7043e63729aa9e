"""Pods per second of a real kube-scheduler: as it comes, and with our extender; in turn on the same control plane.

Pods ask GPU memory, and all are there before kube-scheduler may begin. The clock runs from the first bind to the last,
as a watch sees them. Requests are those that the API server answers while pods are bound, watches left out.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterable, Mapping

from protos.kube import paths
from tests.bench import bodies, ways
from tests.bench.plane import Plane
from tests.bench.report import Figure
from tests.bench.ways import ALONE, BOTH, EVERY, OURS, OURS_EVERY, Burst, Way

ROUNDS = (*BOTH, EVERY, OURS_EVERY)
MARKS: Mapping[int, tuple[float, float]] = {1_000: (0.9, 1.3), 5_000: (1.0, 1.0)}
"""By nodes: with us over alone in pods/s, at least, and in CPU of all processes, at most."""
COUNT = 1_000
REQUESTS = 1.1
"""With us over alone, at most."""


async def _round(plane: Plane, way: Way, count: int) -> Burst:
    async with ways.running(plane, way) as now:
        return await now.burst(ways.plain(f"pod-{i:04}", i) for i in range(count))


async def _measure(nodes: int) -> list[tuple[Way, Burst]]:
    async with Plane() as plane:
        await plane.create(paths.nodes(), (bodies.node(f"node-{i:05}") for i in range(nodes)))
        done = []
        for way in ROUNDS:
            done.append((way, await _round(plane, way, int(COUNT * way.share))))
            print(f"  {nodes:,} nodes, {way.name}: {done[-1][1].told}", flush=True)
    return done


def _figures(nodes: int, done: Iterable[tuple[Way, Burst]]) -> list[Figure]:
    of = {way: [burst for each, burst in done if each is way] for way in dict.fromkeys(ROUNDS)}
    rate = {way: statistics.median(each.per_second for each in bursts) for way, bursts in of.items()}
    cpu = {way: statistics.median(each.sum_ms for each in bursts) for way, bursts in of.items()}
    asked = {way: statistics.median(each.asked for each in bursts) for way, bursts in of.items()}
    ours = statistics.median(each.cpu_ms["extender"] for each in of[OURS])
    at_least, at_most = MARKS[nodes]
    label = f"burst of {COUNT:,} pods, {nodes:,} nodes"
    return [
        *(Figure(f"{label}: {way.name}", rate[way], "pods/s") for way in of),
        Figure(f"{label}: with us / alone", rate[OURS] / rate[ALONE], "", mark=at_least, better="more"),
        *(Figure(f"{label}: CPU of all processes per pod, {way.name}", cpu[way], "ms") for way in of),
        Figure(f"{label}: CPU, with us / alone", cpu[OURS] / cpu[ALONE], "", mark=at_most),
        Figure(f"{label}: CPU of the extender per pod", ours, "ms"),
        *(Figure(f"{label}: requests per bound pod, {way.name}", asked[way], "") for way in (ALONE, OURS)),
        Figure(f"{label}: requests, with us / alone", asked[OURS] / asked[ALONE], "", mark=REQUESTS),
    ]


def run() -> list[Figure]:
    """Medians, and their ratios."""
    found: list[Figure] = []
    for nodes in MARKS:
        found += _figures(nodes, list(asyncio.run(_measure(nodes))))
    return found

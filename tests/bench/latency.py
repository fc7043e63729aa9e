"""Seconds from a pod's creation until it is bound, on 5,000 nodes: kube-scheduler as it comes, and with our extender.

A steady stream of pods, and pods that come one at a time to an idle cluster; in turn on the same control plane. Pods
ask GPU memory. The clock runs from the request that creates the pod to the watch event that shows it bound.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping
from typing import NamedTuple

from protos.kube import paths
from tests.bench import bodies, ways
from tests.bench.plane import PODS, Plane
from tests.bench.report import Figure
from tests.bench.ways import ALONE, BOTH, OURS, Running, Way

NODES, RATE, STREAM, LONE, APART_S = 5_000, 50, 500, 20, 0.25
MARK_P50, MARK_P99, MARK_LONE = 1.2, 1.5, 2.0


class Round(NamedTuple):
    """One stream, and one series of lone pods, in ms."""

    p50: float
    p99: float
    lone: float
    cpu_ms: Mapping[str, float]
    """For each pod of the stream, by process."""

    @property
    def told(self) -> str:
        cpu = ", ".join(f"{name} {ms:.1f}" for name, ms in self.cpu_ms.items())
        return f"stream p50 {self.p50:.1f}, p99 {self.p99:.1f} ms; lone {self.lone:.1f} ms; CPU ms per pod: {cpu}"


async def _created(plane: Plane, name: str, number: int) -> float:
    """Create one pod; when the request began."""
    began = time.monotonic()
    await plane.api.post(PODS, ways.plain(name, number))
    return began


async def _stream(now: Running, count: int) -> list[float]:
    """The latencies of pods that come at a steady rate, sorted, in ms."""
    began = time.monotonic()
    work: dict[str, asyncio.Task[float]] = {}
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
        name = f"stream-{number:04}"
        work[name] = asyncio.create_task(_created(now.plane, name, number))
    await now.watch.until_bound(work)
    created = {name: await task for name, task in work.items()}
    return sorted(1000 * (now.watch.bound[name] - created[name]) for name in work)


async def _lone(now: Running, count: int) -> float:
    """The median latency of pods each of which comes when all others are bound, in ms."""
    took = []
    for number in range(count):
        await asyncio.sleep(APART_S)
        name = f"lone-{number:04}"
        began = await _created(now.plane, name, number)
        await now.watch.until_bound([name])
        took.append(1000 * (now.watch.bound[name] - began))
    return statistics.median(took)


async def _round(plane: Plane, way: Way) -> Round:
    async with ways.running(plane, way) as now:
        lone = await _lone(now, LONE)
        before = now.cpu()
        took = await _stream(now, STREAM)
        after = now.cpu()
    cpu = {name: 1000 * (after[name] - before[name]) / STREAM for name in after}
    return Round(took[STREAM // 2], took[STREAM * 99 // 100], lone, cpu)


async def _measure() -> list[tuple[Way, Round]]:
    done = []
    async with Plane() as plane:
        await plane.create(paths.nodes(), (bodies.node(f"node-{i:05}") for i in range(NODES)))
        for way in BOTH:
            done.append((way, await _round(plane, way)))
            print(f"  {NODES:,} nodes, {way.name}: {done[-1][1].told}", flush=True)
    return done


def run() -> list[Figure]:
    """Medians, and their ratios."""
    done = asyncio.run(_measure())
    of = {way: [each for made, each in done if made is way] for way in (ALONE, OURS)}
    found: list[Figure] = []
    for what, field, mark in (
        (f"a stream of {RATE} pods/s, {NODES:,} nodes: created → bound, p50", "p50", MARK_P50),
        (f"a stream of {RATE} pods/s, {NODES:,} nodes: created → bound, p99", "p99", MARK_P99),
        (f"a lone pod, {NODES:,} nodes: created → bound", "lone", MARK_LONE),
    ):
        median = {way: statistics.median(getattr(each, field) for each in rounds) for way, rounds in of.items()}
        found += [Figure(f"{what}, {way.name}", value, "ms") for way, value in median.items()]
        found.append(Figure(f"{what}, with us / alone", median[OURS] / median[ALONE], "", mark=mark))
    return found

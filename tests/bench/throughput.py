"""Pods per second of a real kube-scheduler with our extender and without, in turn on the same control plane.

1,000 nodes and 1,000 pods that ask GPU memory, all there before the scheduler may begin; the clock runs from the
first bind to the last, as a watch sees them. Without the extender the same pods go anywhere: our profile leaves our
resources out of the in-tree fit.
"""

from __future__ import annotations

import asyncio
import statistics
from typing import NamedTuple

from protos.kube import paths
from tests.bench import bodies
from tests.bench.fleet import MEM
from tests.bench.plane import PODS, Extender, Plane, PodWatch, cpu_seconds
from tests.bench.report import Figure

NODES, COUNT, WARM = 1_000, 1_000, 20
SIZES = (1, 2, 4, 8, 10, 16, 20, 40)
TURNS = (False, True, True, False, False, True, True, False, False, True)
"""With the extender or without: each comes first as often, so that a machine that slows down wrongs neither."""


class Round(NamedTuple):
    """One burst of pods."""

    per_second: float
    extender_cpu_s: float
    scheduler_cpu_s: float

    @property
    def told(self) -> str:
        cpu = f"{self.scheduler_cpu_s:.1f} s of CPU in the scheduler, {self.extender_cpu_s:.1f} s in the extender"
        return f"{self.per_second:.0f} pods/s, {cpu}"


async def _round(plane: Plane, extender: Extender | None) -> Round:
    if extender:
        extender.start()
    scheduler = plane.scheduler(extender)
    async with PodWatch.open(plane.api) as watch:
        await _burst(plane, "warm", WARM)
        await watch.until_bound(_names("warm", WARM))
        scheduler.process.pause()
        await _burst(plane, "pod", COUNT)
        before = cpu_seconds(scheduler.process), cpu_seconds(extender.process) if extender else 0.0
        scheduler.process.resume()
        await watch.until_bound(_names("pod", COUNT))
        after = cpu_seconds(scheduler.process), cpu_seconds(extender.process) if extender else 0.0
        at = sorted(watch.bound[name] for name in _names("pod", COUNT))
    scheduler.process.stop()
    if extender:
        extender.process.stop()
    await plane.delete_pods()
    return Round((COUNT - 1) / (at[-1] - at[0]), after[1] - before[1], after[0] - before[0])


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{i:04}" for i in range(count)]


async def _burst(plane: Plane, prefix: str, count: int) -> None:
    await plane.create(
        PODS, (bodies.pod(name, {MEM: SIZES[i % len(SIZES)]}) for i, name in enumerate(_names(prefix, count)))
    )


async def _measure() -> tuple[list[Round], list[Round]]:
    async with Plane() as plane:
        await plane.create(paths.nodes(), (bodies.node(f"node-{i:05}") for i in range(NODES)))
        extender = plane.extender()
        done = []
        for turn in TURNS:
            done.append((turn, await _round(plane, extender if turn else None)))
            print(f"  {'with' if turn else 'without'}: {done[-1][1].told}", flush=True)
    return [r for turn, r in done if turn], [r for turn, r in done if not turn]


def run() -> list[Figure]:
    """Medians, and their ratio."""
    ours, bare = asyncio.run(_measure())
    with_us, without = (statistics.median(r.per_second for r in rounds) for rounds in (ours, bare))
    cpu = [r.extender_cpu_s for r in ours]
    label = f"kube-scheduler, {NODES:,} nodes, {COUNT:,} pods"
    return [
        Figure(f"{label}: without extender", without, "pods/s"),
        Figure(f"{label}: with extender", with_us, "pods/s"),
        Figure(f"{label}: with / without", with_us / without, "", mark=0.9, better="more"),
        Figure(f"{label}: CPU of the extender per pod", 1000 * statistics.median(cpu) / COUNT, "ms"),
    ]

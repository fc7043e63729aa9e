"""Pods per second of a real kube-scheduler: as it comes, and with our extender; in turn on the same control plane.

Pods ask GPU memory, and all are there before kube-scheduler may begin. The clock runs from the first bind to the last,
as a watch sees them. Alone it has its default profile and sampling, and our client limits: its own would be 50 writes a
second. Two more ways tell what does what: alone and with us, with a look at every node.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import NamedTuple

from extender.cli import scheduler_config
from protos.contract import names
from protos.kube import paths
from tests.bench import bodies
from tests.bench.bodies import Json
from tests.bench.fleet import MEM
from tests.bench.plane import PODS, Extender, Plane, PodWatch, cpu_seconds
from tests.bench.report import Figure
from tests.cluster.controlplane import Scheduler

SIZES = (1, 2, 4, 8, 10, 16, 20, 40)
WARM = 20


class Way(NamedTuple):
    """How pods are scheduled."""

    name: str
    options: Sequence[str] | None
    """Of the extender; None: without it."""
    every: bool
    """kube-scheduler looks at every node for each pod."""
    share: float
    """Of the pods of a burst: a slow way gets fewer."""


ALONE = Way("alone, as it comes", None, every=False, share=1.0)
OURS = Way("with us", (), every=False, share=1.0)
EVERY = Way("alone, every node", None, every=True, share=0.25)
OURS_EVERY = Way("with us, every node", (), every=True, share=0.25)
ROUNDS = (ALONE, OURS, OURS, ALONE, ALONE, OURS, OURS, ALONE, ALONE, OURS, EVERY, OURS_EVERY)
"""Each of the first two comes first as often, so that a machine that slows down wrongs neither."""
MARKS: Mapping[int, tuple[float, float]] = {1_000: (0.9, 1.3), 5_000: (1.0, 1.0)}
"""By nodes: with us over alone in pods/s, at least, and in CPU of all processes, at most."""
COUNT = 1_000


class Round(NamedTuple):
    """One burst of pods."""

    per_second: float
    cpu_ms: Mapping[str, float]
    """For each pod, by process."""

    @property
    def sum_ms(self) -> float:
        return sum(self.cpu_ms.values())

    @property
    def told(self) -> str:
        cpu = ", ".join(f"{name} {ms:.1f}" for name, ms in self.cpu_ms.items())
        return f"{self.per_second:.0f} pods/s; CPU ms per pod: {cpu}; in all {self.sum_ms:.1f}"


def configuration(way: Way, url: str) -> Json:
    """kube-scheduler's. It elects no leader, as it is the only one."""
    config: Json = scheduler_config.configuration("own", scheduler_config.Options(extender_url=url))
    config["leaderElection"] = {"leaderElect": False}
    if way.options is None:
        del config["extenders"]
        del config["percentageOfNodesToScore"]
        config["profiles"] = [{"schedulerName": names.PROFILE}]
    return config | ({"percentageOfNodesToScore": 100} if way.every else {})


async def burst(plane: Plane, prefix: str, count: int) -> list[str]:
    """Create so many pods; their names."""
    made = [f"{prefix}-{i:04}" for i in range(count)]
    await plane.create(PODS, (bodies.pod(name, {MEM: SIZES[i % len(SIZES)]}) for i, name in enumerate(made)))
    return made


class Running(NamedTuple):
    """The processes of one way, warmed up."""

    plane: Plane
    scheduler: Scheduler
    extender: Extender | None
    watch: PodWatch

    def cpu(self) -> dict[str, float]:
        """Seconds of CPU so far, by process."""
        used = {"kube-scheduler": cpu_seconds(self.scheduler.process), "API server": self.plane.apiserver_cpu()}
        return used | ({"extender": cpu_seconds(self.extender.process)} if self.extender else {})


@contextlib.asynccontextmanager
async def running(plane: Plane, way: Way) -> AsyncIterator[Running]:
    """At its end all pods are deleted."""
    extender = None if way.options is None else plane.extender(*way.options)
    if extender:
        extender.start()
    scheduler = plane.scheduler_of(configuration(way, extender.url if extender else scheduler_config.DEFAULT_URL))
    async with PodWatch.open(plane.api) as watch:
        await watch.until_bound(await burst(plane, "warm", WARM))
        yield Running(plane, scheduler, extender, watch)
    scheduler.process.stop()
    if extender:
        extender.process.stop()
    await plane.delete_pods()


async def _round(plane: Plane, way: Way, count: int) -> Round:
    async with running(plane, way) as now:
        now.scheduler.process.pause()
        made = await burst(plane, "pod", count)
        before = now.cpu()
        now.scheduler.process.resume()
        await now.watch.until_bound(made)
        after = now.cpu()
        at = sorted(now.watch.bound[name] for name in made)
    return Round((count - 1) / (at[-1] - at[0]), {name: 1000 * (after[name] - before[name]) / count for name in after})


async def _measure(nodes: int) -> list[tuple[Way, Round]]:
    async with Plane() as plane:
        await plane.create(paths.nodes(), (bodies.node(f"node-{i:05}") for i in range(nodes)))
        done = []
        for way in ROUNDS:
            done.append((way, await _round(plane, way, int(COUNT * way.share))))
            print(f"  {nodes:,} nodes, {way.name}: {done[-1][1].told}", flush=True)
    return done


def _figures(nodes: int, done: Iterable[tuple[Way, Round]]) -> list[Figure]:
    of = {way: [round_ for each, round_ in done if each is way] for way in dict.fromkeys(ROUNDS)}
    rate = {way: statistics.median(each.per_second for each in rounds) for way, rounds in of.items()}
    cpu = {way: statistics.median(each.sum_ms for each in rounds) for way, rounds in of.items()}
    ours = statistics.median(each.cpu_ms["extender"] for each in of[OURS])
    at_least, at_most = MARKS[nodes]
    label = f"burst of {COUNT:,} pods, {nodes:,} nodes"
    return [
        *(Figure(f"{label}: {way.name}", rate[way], "pods/s") for way in of),
        Figure(f"{label}: with us / alone", rate[OURS] / rate[ALONE], "", mark=at_least, better="more"),
        *(Figure(f"{label}: CPU of all processes per pod, {way.name}", cpu[way], "ms") for way in of),
        Figure(f"{label}: CPU, with us / alone", cpu[OURS] / cpu[ALONE], "", mark=at_most),
        Figure(f"{label}: CPU of the extender per pod", ours, "ms"),
    ]


def run() -> list[Figure]:
    """Medians, and their ratios."""
    found: list[Figure] = []
    for nodes in MARKS:
        found += _figures(nodes, list(asyncio.run(_measure(nodes))))
    return found

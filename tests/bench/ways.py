"""Ways in which pods are scheduled on one control plane, to be compared in turn: kube-scheduler alone, and with us.

Alone it has its default profile and sampling, and our client limits: its own would be 50 writes a second. Two more ways
tell what does what: alone and with us, with a look at every node.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import NamedTuple

from extender.cli import scheduler_config
from protos.contract import names
from tests.bench import bodies
from tests.bench.bodies import Json
from tests.bench.fleet import MEM
from tests.bench.plane import PODS, Extender, Plane, PodWatch, cpu_seconds
from tests.cluster.controlplane import Scheduler

SIZES = (1, 2, 4, 8, 10, 16, 20, 40)
WARM = 20
FOR_A_POD = 0.01
"""Requests of one kind for each pod, below which they are not told."""


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
BOTH = (ALONE, OURS, OURS, ALONE, ALONE, OURS, OURS, ALONE, ALONE, OURS)
"""Five rounds of each. Each comes first as often, so that a machine that slows down wrongs neither."""


class Burst(NamedTuple):
    """What a burst of pods came to."""

    first_s: float
    """Seconds from letting kube-scheduler go to the first bind."""
    last_s: float
    """And to the last."""
    pods: int
    cpu_ms: Mapping[str, float]
    """For each pod, by process."""
    requests: Mapping[str, float]
    """That the API server answered for each pod, by verb and resource."""

    @property
    def per_second(self) -> float:
        return (self.pods - 1) / (self.last_s - self.first_s)

    @property
    def sum_ms(self) -> float:
        return sum(self.cpu_ms.values())

    @property
    def asked(self) -> float:
        """All requests for each pod."""
        return sum(self.requests.values())

    @property
    def told(self) -> str:
        cpu = ", ".join(f"{name} {ms:.1f}" for name, ms in self.cpu_ms.items())
        some = ", ".join(f"{name} {times:.2f}" for name, times in self.requests.items() if times >= FOR_A_POD)
        per_pod = f"CPU ms per pod: {cpu}; in all {self.sum_ms:.1f}; requests per pod: {some}"
        return f"{self.per_second:.0f} pods/s; the last after {self.last_s:.2f} s; {per_pod}"


def configuration(way: Way, url: str) -> Json:
    """kube-scheduler's. It elects no leader, as it is the only one."""
    config: Json = scheduler_config.configuration("own", scheduler_config.Options(extender_url=url))
    config["leaderElection"] = {"leaderElect": False}
    if way.options is None:
        del config["extenders"]
        del config["percentageOfNodesToScore"]
        config["profiles"] = [{"schedulerName": names.PROFILE}]
    return config | ({"percentageOfNodesToScore": 100} if way.every else {})


def plain(name: str, number: int) -> Json:
    """A pod that asks memory of one GPU."""
    return bodies.pod(name, {MEM: SIZES[number % len(SIZES)]})


async def create(plane: Plane, prefix: str, count: int) -> list[str]:
    """Create so many pods; their names."""
    made = [f"{prefix}-{i:04}" for i in range(count)]
    await plane.create(PODS, (plain(name, i) for i, name in enumerate(made)))
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

    async def burst(self, pods: Iterable[Json]) -> Burst:
        """All are there before kube-scheduler may begin. Times are those of a watch."""
        made = list(pods)
        named = [pod["metadata"]["name"] for pod in made]
        self.scheduler.process.pause()
        await self.plane.create(PODS, made)
        asked, before = self.plane.requests(), self.cpu()
        began = time.monotonic()
        self.scheduler.process.resume()
        await self.watch.until_bound(named)
        after = self.cpu()
        more = {kind: times - asked.get(kind, 0) for kind, times in self.plane.requests().items()}
        at = sorted(self.watch.bound[name] - began for name in named)
        return Burst(
            at[0],
            at[-1],
            len(made),
            {name: 1000 * (after[name] - before[name]) / len(made) for name in after},
            {kind: times / len(made) for kind, times in sorted(more.items(), key=lambda each: -each[1])},
        )


@contextlib.asynccontextmanager
async def running(plane: Plane, way: Way, *, every_s: float = 0.0) -> AsyncIterator[Running]:
    """At its end all pods are deleted. `every_s`: seconds between looks at what is bound."""
    extender = None if way.options is None else plane.extender(*way.options)
    if extender:
        extender.start()
    scheduler = plane.scheduler_of(configuration(way, extender.url if extender else scheduler_config.DEFAULT_URL))
    async with PodWatch.open(plane.api, every_s=every_s) as watch:
        await watch.until_bound(await create(plane, "warm", WARM))
        yield Running(plane, scheduler, extender, watch)
    scheduler.process.stop()
    if extender:
        extender.process.stop()
    await plane.delete_pods()

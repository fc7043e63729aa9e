"""A cluster of which kube-scheduler checks a part of the nodes for each pod: what fits elsewhere is nominated there.

There are no kubelets: nodes are objects, and pods are bound and never run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

import msgspec
import pytest

from extender.engine.policies.nomination.nominations import NOMINATED_S
from extender.engine.queueing.admission import MOST_WAKES
from extender.engine.types.look import LEAST
from extender.engine.types.refusals import NOT_LOOKED_AT
from protos.contract import allocation, names, objects
from protos.kube import paths
from tests.bench import bodies
from tests.bench.bodies import Json
from tests.bench.plane import PODS, Extender, Plane, PodWatch
from tests.cluster.controlplane import Scheduler
from tests.cluster.gangshare import get


class Size(NamedTuple):
    """A cluster, and a backlog of it."""

    nodes: int
    with_gpus: int
    pods: int
    """They need all of the GPUs."""
    over: int
    """So many that some find none."""
    stopped_s: float
    """For so long kube-scheduler stands still."""


SIZES = [
    Size(nodes=3 * LEAST, with_gpus=20, pods=160, over=240, stopped_s=NOMINATED_S + 5),
    pytest.param(Size(nodes=1_000, with_gpus=125, pods=1_000, over=2_000, stopped_s=60.0), marks=pytest.mark.long),
]


class Running(NamedTuple):
    """The control plane, and ours on it."""

    plane: Plane
    extender: Extender
    scheduler: Scheduler
    watch: PodWatch

    async def backlog(self, count: int) -> list[str]:
        """So many pods are there before kube-scheduler takes the first."""
        self.scheduler.process.pause()
        made = [f"pod-{i:04}" for i in range(count)]
        await self.plane.create(PODS, (bodies.pod(name, {names.WHOLE_GPU: 1}) for name in made))
        self.scheduler.process.resume()
        return made

    def nominated(self) -> int:
        """How often a pod was refused and nominated."""
        found = re.search(
            rf'gangshare_decisions_total{{code="{NOT_LOOKED_AT.code}",verb="filter"}} (\S+)',
            get(self.extender.status, "/metrics"),
        )
        return int(float(found[1])) if found else 0

    def held(self) -> int:
        """How many pods hold GPUs without a Binding."""
        listed = json.loads(get(self.extender.status, "/inspect"))["pods"]
        return sum(pod["state"] == "held" for pod in listed)

    async def until(self, bound: int) -> None:
        await _when(lambda: len(self.watch.bound) >= bound)

    async def check(self) -> int:
        """No GPU is given twice; returns how many pods have theirs."""
        listed = msgspec.json.decode(await self.plane.api.get(PODS), type=_List).items
        given: Counter[tuple[str | None, int]] = Counter()
        for pod in listed:
            found = allocation.decode(pod.metadata.annotations.get(names.ALLOCATION))
            for share in found.containers["main"] if found else ():
                given[pod.spec.node_name, share.index] += 1
        assert max(given.values(), default=0) <= 1
        return len(given)


async def _when(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110  # some of it is asked over HTTP
        await asyncio.sleep(0.02)


class _List(msgspec.Struct):
    items: list[objects.Pod]


def _nodes(size: Size) -> Iterator[Json]:
    """Those with GPUs are spread among the others."""
    for number in range(size.nodes):
        made = bodies.node(f"node-{number:05}")
        if number % (size.nodes // size.with_gpus):
            del made["metadata"]["annotations"]
            made["status"]["allocatable"] = made["status"]["capacity"] = {"cpu": "192", "memory": "2Ti", "pods": "250"}
        yield made


@contextlib.asynccontextmanager
async def _running(size: Size) -> AsyncIterator[Running]:
    async with Plane() as plane:
        await plane.create(paths.nodes(), _nodes(size))
        extender = plane.extender()
        extender.start()
        scheduler = plane.scheduler(extender)
        async with PodWatch.open(plane.api) as watch:
            yield Running(plane, extender, scheduler, watch)


@pytest.mark.core
@pytest.mark.parametrize("size", SIZES)
async def test_the_extender_is_killed_in_a_backlog_of_which_some_are_nominated(size: Size) -> None:
    """Nothing is given twice, and all run."""
    async with _running(size) as now:
        made = await now.backlog(size.pods)
        await now.until(size.pods // 3)
        now.extender.process.kill()
        await asyncio.sleep(1)
        now.extender.start()
        await now.watch.until_bound(made)
        assert now.nominated() > 0
        assert await now.check() == size.pods


@pytest.mark.parametrize("size", SIZES)
async def test_nothing_is_held_for_long_while_kube_scheduler_stands_still(size: Size) -> None:
    """A soft charge lasts for ten seconds; pods that do not come are requeued less and less often."""
    async with _running(size) as now:
        made = await now.backlog(size.over)
        await _when(now.nominated)
        now.scheduler.process.pause()
        began, held = time.monotonic(), []
        while time.monotonic() < began + size.stopped_s:
            await asyncio.sleep(0.5)
            if time.monotonic() > began + NOMINATED_S + 1:
                held.append(now.held())
        assert max(held) <= MOST_WAKES, held
        now.scheduler.process.resume()
        await now.until(size.pods)
        assert await now.check() == size.pods < len(made)

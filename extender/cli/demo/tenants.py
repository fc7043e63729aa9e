"""The demo's tenants: one uses what the other leaves idle, gives it back when that is asked for, and grows again.

Two queues deserve four H200 each. The job of the first is elastic: it starts with two workers and goes up to eight.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from extender.cli import console, inspection, queues
from extender.cli.demo import jobs, pods, story
from extender.cli.demo.story import LOOK_S, PATIENCE_S
from extender.sim import podspec
from extender.sim.apiserver.resources import Object
from extender.sim.apiserver.store import Cursor
from extender.sim.cluster import WaitError
from extender.sim.definitions import definition
from extender.wire.listings import Queues
from protos.contract import gpu_class, names, queue

CLASS = "h200"
DESERVED, GPUS = 4, 8
RESEARCH, PRODUCTION = "research", "production"
ELASTIC, LEAST = "elastic", 2
RELEASE, RELEASED, RELEASED_EACH = "release", 2, 2
INTRODUCTION = (
    f"Two tenants deserve {DESERVED} of the {GPUS} H200 each; the job of {RESEARCH} is elastic:"
    f" {LEAST} to {GPUS} workers, one GPU each."
)


def definitions() -> list[Object]:
    """What the API server has to know before the extender looks for queues and classes."""
    return [
        definition(gpu_class.API_VERSION, gpu_class.KIND, "gpuclasses", namespaced=False),
        definition(queue.API_VERSION, queue.KIND, "queues", namespaced=False),
    ]


def _tenants() -> list[Object]:
    """The class of GPUs, and the queues of both."""
    selection = {"models": ["*H200*"]}
    deserved = {"deserved": {f"{queue.CLASS}{CLASS}": DESERVED}}
    return [
        _named(gpu_class.API_VERSION, gpu_class.KIND, CLASS, selection),
        *(_named(queue.API_VERSION, queue.KIND, name, deserved) for name in (RESEARCH, PRODUCTION)),
    ]


def _named(api_version: str, kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _gang(tenant: str, gang: str, least: int) -> dict[str, str]:
    return {names.GROUP: gang, names.MIN_MEMBER: str(least), names.QUEUE: tenant, names.GPU_CLASS: CLASS}


def _workers() -> list[Object]:
    """A Job for each worker: one that is lost is made anew, whatever becomes of the others."""
    said, asked = _gang(RESEARCH, ELASTIC, LEAST), {"limits": {names.WHOLE_GPU: "1"}}
    return [jobs.job(f"{ELASTIC}-{number}", ELASTIC, 1, said, asked) for number in range(GPUS)]


def _release() -> Object:
    asked = {"limits": {names.WHOLE_GPU: str(RELEASED_EACH)}}
    return jobs.job(RELEASE, RELEASE, RELEASED, _gang(PRODUCTION, RELEASE, RELEASED), asked)


class Story(story.Story):
    """The tenants from an empty cluster until the elastic job has all it wants again."""

    _started = False

    async def _happen(self) -> None:
        await self._borrow()
        await self._give()
        await self._grow()

    async def _borrow(self) -> None:
        console.show("", INTRODUCTION)
        for made in _tenants():
            self._cluster.create(made)
        await self._queued({RESEARCH, PRODUCTION})
        for made in _workers():
            self._cluster.create(made)
        await self._until(lambda: self._running(ELASTIC) == GPUS, f"{ELASTIC} has {GPUS} workers")
        self._started = True
        console.show(f"Nobody else asks: it runs with {GPUS} workers, {GPUS - DESERVED} GPUs more than are due to it.")
        await self._pause()

    async def _give(self) -> None:
        asked = RELEASED * RELEASED_EACH
        console.show("", f"{PRODUCTION} starts a gang of {RELEASED} with {RELEASED_EACH} GPUs each: its {asked}.")
        self._cluster.create(_release())
        began = time.monotonic()
        await self._until(lambda: self._running(RELEASE) == RELEASED, f"gang {RELEASE} runs")
        took, left = time.monotonic() - began, self._running(ELASTIC)
        if left != GPUS - asked:
            self.faults.append(f"{left} workers of {ELASTIC} are left: expected {GPUS - asked}, no more and no less")
        gone = f"{GPUS - left} workers of {ELASTIC} were evicted, and no more"
        console.show(f"It runs after {took:.1f} s: {gone}; the other {left} never stopped.")
        console.show("", *queues.render(await self._queued({RESEARCH, PRODUCTION})))
        await self._pause()

    async def _grow(self) -> None:
        console.show("", f"Gang {RELEASE} ends.")
        self._cluster.delete("batch/v1", "Job", pods.NAMESPACE, RELEASE)
        await self._until(lambda: self._running(ELASTIC) == GPUS, f"{ELASTIC} has {GPUS} workers again")
        console.show(f"{ELASTIC} has grown back to {GPUS} workers. Both tenants leave.")

    async def leave(self) -> None:
        """Everybody of it goes."""
        for number in range(GPUS):
            self._cluster.delete("batch/v1", "Job", pods.NAMESPACE, f"{ELASTIC}-{number}")
        await self._until(lambda: not self._cluster.pods(), "the tenants have left")

    def _running(self, app: str) -> int:
        mine = [pod for pod in self._cluster.pods() if jobs.is_of(pod, app) and not podspec.terminating(pod)]
        return sum(pod["status"].get("phase") == "Running" for pod in mine)

    async def _follow(self, changes: Cursor) -> None:
        """A gang that has started is never under its minimum."""
        while True:
            await changes.next()
            if self._started and self._running(ELASTIC) < LEAST:
                self.faults.append(f"{ELASTIC} ran with less than {LEAST} workers")
                self._started = False

    async def _queued(self, wanted: set[str]) -> Queues:
        """These queues as the extender sees them, once it knows all of them."""
        server, end = self._cluster.place.status_url, time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            found = inspection.decode(await asyncio.to_thread(inspection.fetch, server, "queues"), Queues)
            mine = tuple(each for each in found.queues if each.name in wanted)
            if {each.name for each in mine} == wanted:
                return Queues(queues=mine)
            await asyncio.sleep(LOOK_S)
        raise WaitError(f"the extender does not know the queues {sorted(wanted)} after {PATIENCE_S:g} s")

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        await self._cluster.wait(holds, PATIENCE_S, what)

"""The demo's tenants: one borrows what the other leaves idle, returns it on demand, and grows again.

Two queues deserve four H200 each. The first tenant's job is elastic: it starts with two workers and grows to eight.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from extender.cli import console, inspection, queues
from extender.cli.demo import manifests, story
from extender.cli.demo.story import POLL_S, TIMEOUT_S
from extender.sim import podspec
from extender.sim.apiserver.resources import Object
from extender.sim.cluster import WaitError
from extender.wire.listings import Queues
from protos.contract import gpu_class, names, queue

CLASS = "h200"
DESERVED, GPUS = 4, 8
RESEARCH, PRODUCTION = "research", "production"
ELASTIC, MIN_WORKERS = "elastic", 2
RELEASE, RELEASE_PODS, RELEASE_GPUS_EACH = "release", 2, 2
INTRODUCTION = (
    f"Two tenants deserve {DESERVED} of the {GPUS} H200 GPUs each. The job of {RESEARCH} is elastic:"
    f" {MIN_WORKERS} to {GPUS} workers with one GPU each."
)


def _class_and_queues() -> list[Object]:
    deserved = {"deserved": {f"{queue.CLASS}{CLASS}": DESERVED}}
    return [
        _named(gpu_class.API_VERSION, gpu_class.KIND, CLASS, {"models": ["*H200*"]}),
        *(_named(queue.API_VERSION, queue.KIND, name, deserved) for name in (RESEARCH, PRODUCTION)),
    ]


def _named(api_version: str, kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _job(name: str, gang: str, queue_name: str, minimum: int, pods: int, gpus: int) -> Object:
    annotations = {
        names.GROUP: gang,
        names.MIN_MEMBER: str(minimum),
        names.QUEUE: queue_name,
        names.GPU_CLASS: CLASS,
    }
    return manifests.job(name, gang, pods, annotations, {"limits": {names.WHOLE_GPU: str(gpus)}})


class Story(story.Story):
    """The tenants, from an empty cluster until the elastic job has grown back."""

    _started = False

    async def _steps(self) -> None:
        await self._borrow()
        await self._reclaim()
        await self._grow()

    async def _borrow(self) -> None:
        console.show("", INTRODUCTION)
        for manifest in _class_and_queues():
            self._cluster.create(manifest)
        await self._queues()
        for number in range(GPUS):  # a Job for each worker, so that each is replaced independently
            self._cluster.create(_job(f"{ELASTIC}-{number}", ELASTIC, RESEARCH, MIN_WORKERS, 1, 1))
        await self._until(lambda: self._running(ELASTIC) == GPUS, f"{ELASTIC} has {GPUS} workers")
        self._started = True
        console.show(f"No other pod is pending: it runs with {GPUS} workers and borrows {GPUS - DESERVED} GPUs.")
        await self._pause()

    async def _reclaim(self) -> None:
        asked = RELEASE_PODS * RELEASE_GPUS_EACH
        each = f"{RELEASE_PODS} pods with {RELEASE_GPUS_EACH} GPUs each"
        console.show("", f"{PRODUCTION} starts a gang of {each}: the {asked} GPUs that it deserves.")
        self._cluster.create(_job(RELEASE, RELEASE, PRODUCTION, RELEASE_PODS, RELEASE_PODS, RELEASE_GPUS_EACH))
        began = time.monotonic()
        await self._until(lambda: self._running(RELEASE) == RELEASE_PODS, f"gang {RELEASE} runs")
        took, left = time.monotonic() - began, self._running(ELASTIC)
        if left != GPUS - asked:
            self.faults.append(f"{left} workers of {ELASTIC} are left: expected {GPUS - asked}, no more and no less")
        evicted = f"{GPUS - left} workers of {ELASTIC} were evicted, and no more"
        console.show(f"It runs after {took:.1f} s: {evicted}; the other {left} kept running.")
        console.show("", *queues.render(await self._queues()))
        await self._pause()

    async def _grow(self) -> None:
        console.show("", f"Gang {RELEASE} ends.")
        self._cluster.delete("batch/v1", "Job", manifests.NAMESPACE, RELEASE)
        await self._until(lambda: self._running(ELASTIC) == GPUS, f"{ELASTIC} has {GPUS} workers again")
        console.show(f"{ELASTIC} has grown back to {GPUS} workers. Both tenants leave.")

    async def leave(self) -> None:
        """Delete all Jobs, and wait until their pods are gone."""
        for number in range(GPUS):
            self._cluster.delete("batch/v1", "Job", manifests.NAMESPACE, f"{ELASTIC}-{number}")
        await self._until(lambda: not self._cluster.pods(), "the tenants have left")

    def _running(self, app: str) -> int:
        pods = [pod for pod in self._cluster.pods() if manifests.is_of(pod, app) and not podspec.terminating(pod)]
        return sum(pod["status"].get("phase") == "Running" for pod in pods)

    def _pod_changed(self, pod: Object) -> None:
        """A started gang is never below its minimum."""
        del pod
        if self._started and self._running(ELASTIC) < MIN_WORKERS:
            self.faults.append(f"{ELASTIC} ran with fewer than {MIN_WORKERS} workers")
            self._started = False

    async def _queues(self) -> Queues:
        """Both queues as the extender sees them, once it knows them."""
        server, end = self._cluster.place.status_url, time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            found = inspection.decode(await asyncio.to_thread(inspection.fetch, server, "queues"), Queues)
            tenants = tuple(each for each in found.queues if each.name in (RESEARCH, PRODUCTION))
            if len(tenants) == 2:
                return Queues(queues=tenants)
            await asyncio.sleep(POLL_S)
        raise WaitError(f"the extender does not know the queues {RESEARCH} and {PRODUCTION} after {TIMEOUT_S:g} s")

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        await self._cluster.wait(holds, TIMEOUT_S, what)

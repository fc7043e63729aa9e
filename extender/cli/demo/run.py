"""Runs the demo: an embedded cluster, the tenants, the trace's pods, the gang, and the check."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc.aio

from extender.cli import console, inspection, scheduler_config, top, ui_server
from extender.cli.demo import check, definitions, gang, manifests, tenants, trace, yours
from extender.cli.demo.count import Count
from extender.cli.errors import CommandError
from extender.cli.progress import Progress
from extender.sim import podspec
from extender.sim.cluster import EmbeddedCluster, WaitError
from extender.sim.kubelet.status import NodeSpec
from extender.sim.podspec import Object
from extender.sim.process import ProcessError
from extender.sim.spec import ClusterSpec, ExtenderPlace, gangshare_extender
from extender.wire.answers import Inspection
from protos.contract import names

PROFILES = {
    "dgx-a100": "dgx-a100-80g",
    "hgx-h200": "hgx-h200",
    "dgx1-v100": "dgx1-v100",
    "mixed-1": "mixed",
    "mixed-2": "mixed",
    "t4-1": "t4x4",
    "t4-2": "t4x4",
    "a10": "a10x2",
    "cpu": "",
}
"""The nodes and their fake GPUs."""
STRETCH = 6
"""The trace's pods live this many times as long, so that a cluster of this size is busy."""
ARRIVALS_PER_S = 15.0
JOB_BACKOFF_S = 2.0
"""Delay before a Job replaces a lost pod."""
MIN_RUNTIME_S = 1.0
"""Seconds that a pod runs before it may be preempted."""
QUIET_S = 1.0
"""Seconds without changes after which the cluster has settled."""
SETTLE_TIMEOUT_S = 60.0


def run(pods: int, speed: float, serve: bool, ui: bool, empty: bool) -> bool:
    """Run the demo, and return whether the check found no faults.

    Raises CommandError if a value is invalid or the cluster breaks, and KeyboardInterrupt if a signal ends the demo
    before the check.
    """
    recorded = trace.recorded()
    if not 1 <= pods <= len(recorded):
        raise CommandError(f"--pods is {pods}: expected 1 to {len(recorded)}, as many as the sample of the trace has")
    if not 0 < speed <= 100:
        raise CommandError(f"--speed is {speed:g}: expected a number above 0 and up to 100")
    if ui and not (serve or empty):
        raise CommandError("--ui shows a cluster that stays up: expected --serve or --empty, too")
    try:
        grpc.aio.init_grpc_aio()  # keeps its poller alive: it may deadlock when the last server is freed
        return asyncio.run(_until_signal(Empty(ui) if empty else Demo(recorded[:pods], speed, serve, ui)))
    except (WaitError, ProcessError) as error:
        raise CommandError(str(error)) from error


async def _until_signal(demo: Demo | Empty) -> bool:
    """The first SIGINT, SIGTERM or SIGHUP shuts the demo down; later signals are ignored."""
    running = asyncio.create_task(demo.run())
    loop = asyncio.get_running_loop()

    def end() -> None:
        if not running.cancelling():
            running.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end)
    await asyncio.wait([running])
    if not running.cancelled():
        return running.result()
    if demo.outcome is None:
        raise KeyboardInterrupt
    return not demo.outcome.faults


class Empty:
    """A cluster without workload that stays up."""

    outcome = check.Outcome(0, ())

    def __init__(self, ui: bool) -> None:
        self._ui = ui

    async def run(self) -> bool:
        async with _started() as cluster:
            await cluster.wait_for_devices()
            console.show("", *yours.empty(_place(cluster)))
            await _stay(cluster, self._ui)
        return True


class Demo:
    """One run of the demo. `outcome` is the result of the check, None before it."""

    def __init__(self, recorded: Sequence[trace.Recorded], speed: float, serve: bool, ui: bool) -> None:
        self._recorded, self._speed, self._serve, self._ui = recorded, speed, serve, ui
        self._staying = trace.remaining(self._recorded, STRETCH)
        """Pods that stay beyond the last arrival, in the order in which they leave."""
        self._left = 0
        self.outcome: check.Outcome | None = None

    async def run(self) -> bool:
        async with _started() as cluster:
            faults = await self._tenants(cluster)
            await self._trace(cluster)
            faults += await self._gang(cluster)
            books = await _books(cluster)
            self.outcome = _checked(cluster, books, faults)
            console.show(
                "", *top.render(books, top.View(pods=True, everything=True)), "", check.verdict(self.outcome, gang.KEY)
            )
            if self._serve:
                console.show("", *_guide(cluster))
                await _stay(cluster, self._ui)
        console.show("", yours.SERVE)
        return not self.outcome.faults

    async def _tenants(self, cluster: EmbeddedCluster) -> list[str]:
        """Run the tenants' story, and return its faults."""
        story = tenants.Story(cluster, self._speed)
        await story.run()
        faults = _checked(cluster, await _books(cluster), story.faults).faults
        await story.leave()
        return list(faults)

    async def _trace(self, cluster: EmbeddedCluster) -> None:
        """Replay the pods of the trace, and show the pods that are pending then."""
        console.show("", f"{len(self._recorded)} recorded pods arrive and leave as they did in a real cluster.")
        with Progress() as progress:
            await self._replay(cluster, progress)
            await self._settle(cluster, progress)
            progress.show(self._count(cluster, len(self._recorded)).line(), last=True)
        console.show("", *top.waiting(await _books(cluster)))

    async def _gang(self, cluster: EmbeddedCluster) -> list[str]:
        """Run the gang's story, and return its faults."""
        story = gang.Story(cluster, self._speed, lambda: self._leave(cluster))
        await story.run()
        with Progress() as progress:
            await self._settle(cluster, progress)
        return await story.check()

    async def _replay(self, cluster: EmbeddedCluster, progress: Progress) -> None:
        """Create and delete pods in the order of the trace, in even steps."""
        every = 1 / (ARRIVALS_PER_S * self._speed)
        due = time.monotonic()
        for arrived, step in enumerate(trace.steps(self._recorded, STRETCH), start=1):
            for name in step.leave:
                cluster.delete_pod(manifests.NAMESPACE, name)
            self._left += len(step.leave)
            cluster.create_pod(manifests.pod(step.arrive))
            progress.show(self._count(cluster, arrived).line())
            due += every
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _leave(self, cluster: EmbeddedCluster) -> bool:
        """Delete the next pod of the trace; False if none is left."""
        if self._staying:
            cluster.delete_pod(manifests.NAMESPACE, self._staying.pop(0))
            self._left += 1
            return True
        return False

    async def _settle(self, cluster: EmbeddedCluster, progress: Progress) -> None:
        """Wait until every pod runs or was refused, and none has changed for a second."""
        before: set[str] = set()
        since = time.monotonic()

        def settled() -> bool:
            nonlocal before, since
            progress.show(self._count(cluster, len(self._recorded)).line())
            now = {f"{podspec.uid(pod)} {pod['metadata']['resourceVersion']}" for pod in cluster.pods()}
            if now != before or not all(map(_is_settled, cluster.pods())):
                before, since = now, time.monotonic()
            return time.monotonic() - since >= QUIET_S

        await cluster.wait(settled, SETTLE_TIMEOUT_S, "every pod runs or was refused")

    def _count(self, cluster: EmbeddedCluster, arrived: int) -> Count:
        present = cluster.pods()
        held = {share.uuid for pod in present for share in check.shares(pod)}
        return Count(
            arrived=arrived,
            of=len(self._recorded),
            running=sum(pod["status"].get("phase") == "Running" for pod in present),
            waiting=sum(not podspec.node_of(pod) for pod in present),
            left=self._left,
            gpus_held=len(held),
        )


@asynccontextmanager
async def _started() -> AsyncIterator[EmbeddedCluster]:
    """The cluster, with the kinds of queues and classes."""
    nodes = tuple(NodeSpec(name=name, profile=profile, memory="1Ti") for name, profile in PROFILES.items())
    spec = ClusterSpec(
        nodes=nodes,
        scheduler_config=_scheduler_config,
        extender_command=_extender,
        job_backoff_seconds=JOB_BACKOFF_S,
    )
    console.show(f"Starting a cluster of {len(nodes)} nodes in this process, with extender and plugins beside it.")
    async with EmbeddedCluster(spec) as cluster:
        for definition in definitions.definitions():
            cluster.create(definition)
        yield cluster


async def _stay(cluster: EmbeddedCluster, ui: bool) -> None:
    """Keep the cluster up."""
    if ui:
        await ui_server.serve(ui_server.Place(server=cluster.place.status_url), browser=True)
    await asyncio.Event().wait()


def _scheduler_config(url_prefix: str) -> str:
    options = scheduler_config.Options(extender_url=url_prefix.removesuffix("/scheduler"))
    return scheduler_config.render("own", options)


def _extender(place: ExtenderPlace) -> list[str]:
    return [*gangshare_extender(place), f"--min-runtime={MIN_RUNTIME_S:g}", f"--scheduler-names={names.PROFILE}"]


async def _books(cluster: EmbeddedCluster) -> Inspection:
    """The extender's books, once they hold all pods of the cluster with GPUs."""
    placed = {podspec.uid(pod) for pod in cluster.pods() if check.shares(pod)}
    end = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        body = await asyncio.to_thread(inspection.fetch, cluster.place.status_url, "inspect")
        books = inspection.decode(body, Inspection)
        if {pod.uid for pod in books.pods} == placed or time.monotonic() > end:
            return books
        await asyncio.sleep(0.1)


def _is_settled(pod: Object) -> bool:
    """Whether the pod was refused, or started on its node."""
    if podspec.node_of(pod):
        return pod["status"].get("phase") != "Pending" and not podspec.terminating(pod)
    refused = podspec.condition(pod, "PodScheduled")
    return refused is not None and refused["status"] == "False"


def _checked(cluster: EmbeddedCluster, books: Inspection, faults: Sequence[str]) -> check.Outcome:
    """The outcome of the check. Bound pods that do not run and the given `faults` count as faults too."""
    bound = [pod for pod in cluster.pods() if podspec.node_of(pod)]
    running = [
        check.Running(
            check.decoded(pod),
            {container["name"]: cluster.env(pod, container["name"]) for container, _ in podspec.containers(pod)},
        )
        for pod in bound
    ]
    outcome = check.check(running, books)
    idle = [
        f"{pod['metadata']['name']}: it is {pod['status']['phase']}: {pod['status'].get('message', '')}"
        for pod in bound
        if pod["status"]["phase"] != "Running"
    ]
    return outcome._replace(faults=(*outcome.faults, *idle, *faults))


def _guide(cluster: EmbeddedCluster) -> list[str]:
    """What to type while the cluster is up. The pod to look at is pending, if there is one."""
    place = _place(cluster)
    yours.write(place)
    other = min(cluster.pods(), key=lambda pod: bool(podspec.node_of(pod)))["metadata"]["name"]
    return yours.guide(place, other, kubectl=shutil.which("kubectl") is not None)


def _place(cluster: EmbeddedCluster) -> yours.Place:
    return yours.Place(cluster.kubeconfig, cluster.server.url, cluster.place.status_url)

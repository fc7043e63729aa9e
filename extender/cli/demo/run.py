"""The demo itself: an embedded cluster, tenants, the trace's pods and a gang one after the other, and the check."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import grpc.aio
import msgspec

from extender.cli import console, inspection, scheduler_config, top
from extender.cli.demo import check, gang, pods, tenants, trace
from extender.cli.demo.progress import Count, Progress
from extender.cli.errors import CommandError
from extender.sim import podspec
from extender.sim.cluster import EmbeddedCluster, WaitError
from extender.sim.kubelet.status import NodeSpec
from extender.sim.podspec import Object
from extender.sim.process import ProcessError
from extender.sim.spec import ClusterSpec, ExtenderPlace, gangshare_extender
from extender.wire.answers import Inspection

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
"""Lives of the trace's pods are so many times longer, for a cluster of this size to be busy."""
ARRIVALS_PER_S = 15.0
JOB_BACKOFF_S = 2.0
"""Until a Job makes another pod for one that was lost."""
MIN_RUN_S = 1.0
"""Seconds that a pod runs before others may take its room."""
QUIET_S = 1.0
SETTLE_S = 60.0
"""Seconds that everything has to come to rest after the last arrival."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What can be wished."""

    pods: int = 300
    speed: float = 1.0
    serve: bool = False

    def __post_init__(self) -> None:
        most = len(trace.recorded())
        if not 1 <= self.pods <= most:
            raise CommandError(f"pods is {self.pods}: expected 1 to {most}, as many as the sample of the trace has")
        if not 0 < self.speed <= 100:
            raise CommandError(f"speed is {self.speed:g}: expected a number above 0 and up to 100")


def run(options: Options) -> bool:
    """Show it all; whether the check found nothing wrong.

    Raises CommandError when the cluster breaks, KeyboardInterrupt when a signal ends it before the check.
    """
    try:
        grpc.aio.init_grpc_aio()  # else its poller ends with the last server's memory, and may wait for itself
        return asyncio.run(_until_signal(Demo(options)))
    except (WaitError, ProcessError) as error:
        raise CommandError(str(error)) from error


async def _until_signal(demo: Demo) -> bool:
    """The first SIGINT, SIGTERM or SIGHUP ends the demo in order; later ones change nothing."""
    showing = asyncio.create_task(demo.run())
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()

    def end() -> None:
        if not signalled.is_set():
            signalled.set()
            showing.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end)
    await asyncio.wait([showing])
    if not showing.cancelled():
        return showing.result()
    if demo.outcome is None:
        raise KeyboardInterrupt
    return not demo.outcome.faults


class Demo:
    """One run of the demo. `outcome` is that of the check, None before it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._recorded = trace.recorded()[: options.pods]
        self._staying = trace.remaining(self._recorded, STRETCH)
        """Pods that have not left when the last has arrived, first to leave first."""
        self._left = 0
        self.outcome: check.Outcome | None = None

    async def run(self) -> bool:
        nodes = tuple(NodeSpec(name=name, profile=profile, memory="1Ti") for name, profile in PROFILES.items())
        spec = ClusterSpec(
            nodes=nodes,
            scheduler_config=_scheduler_config,
            extender_command=_extender,
            job_backoff_seconds=JOB_BACKOFF_S,
            establish_seconds=0.0,
        )
        console.show(f"Starting a cluster of {len(nodes)} nodes in this process, extender and plugins beside it.")
        async with EmbeddedCluster(spec) as cluster:
            for definition in tenants.definitions():
                cluster.create(definition)
            of_tenants = await self._tenants(cluster)
            await self._trace(cluster)
            of_gang = await self._gang(cluster)
            books = await _books(cluster)
            self.outcome = _checked(cluster, books, [*of_tenants, *of_gang])
            console.show("", *top.render(books, pods=True), "", check.verdict(self.outcome, gang.KEY))
            if self._options.serve:
                console.show("", *_hints(cluster))
                await asyncio.Event().wait()
        return not self.outcome.faults

    async def _tenants(self, cluster: EmbeddedCluster) -> Sequence[str]:
        """Two tenants come and go; what was wrong."""
        story = tenants.Story(cluster, self._options.speed)
        await story.tell()
        faults = _checked(cluster, await _books(cluster), story.faults).faults
        await story.leave()
        return faults

    async def _trace(self, cluster: EmbeddedCluster) -> None:
        """The pods of the trace come, and some of them go."""
        console.show("", f"{self._options.pods} recorded pods come and go as they did in a real cluster.")
        with Progress() as progress:
            await self._replay(cluster, progress)
            await self._settle(cluster, progress)
            progress.show(self._count(cluster, self._options.pods), last=True)
        console.show("", *top.waiters(await _books(cluster)))

    async def _gang(self, cluster: EmbeddedCluster) -> Sequence[str]:
        """A gang starts beside them and loses a member; what was wrong."""
        story = gang.Story(cluster, self._options.speed, lambda: self._leave(cluster))
        await story.tell()
        with Progress() as progress:
            await self._settle(cluster, progress)
        return await story.check()

    async def _replay(self, cluster: EmbeddedCluster, progress: Progress) -> None:
        """Let the pods come and go as they did, in even steps."""
        every = 1 / (ARRIVALS_PER_S * self._options.speed)
        due = time.monotonic()
        for arrived, step in enumerate(trace.steps(self._recorded, STRETCH), start=1):
            for name in step.leave:
                cluster.delete_pod(pods.NAMESPACE, name)
            self._left += len(step.leave)
            cluster.create_pod(pods.manifest(step.arrive))
            progress.show(self._count(cluster, arrived))
            due += every
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _leave(self, cluster: EmbeddedCluster) -> bool:
        """Have the next pod of the trace leave; False where none is left."""
        if self._staying:
            cluster.delete_pod(pods.NAMESPACE, self._staying.pop(0))
            self._left += 1
            return True
        return False

    async def _settle(self, cluster: EmbeddedCluster, progress: Progress) -> None:
        """Until every pod runs or was refused, and nothing happened to any for a second."""
        before: set[str] = set()
        since = time.monotonic()

        def settled() -> bool:
            nonlocal before, since
            progress.show(self._count(cluster, self._options.pods))
            now = {f"{podspec.uid(pod)} {pod['metadata']['resourceVersion']}" for pod in cluster.pods()}
            if now != before or not all(map(_rests, cluster.pods())):
                before, since = now, time.monotonic()
            return time.monotonic() - since >= QUIET_S

        await cluster.wait(settled, SETTLE_S, "every pod runs or was refused")

    def _count(self, cluster: EmbeddedCluster, arrived: int) -> Count:
        present = cluster.pods()
        held = {share.uuid for pod in present for share in check.shares(pod)}
        return Count(
            arrived=arrived,
            of=self._options.pods,
            running=sum(pod["status"].get("phase") == "Running" for pod in present),
            waiting=sum(not podspec.node_of(pod) for pod in present),
            left=self._left,
            gpus_held=len(held),
        )


def _scheduler_config(url_prefix: str) -> str:
    options = scheduler_config.Options(extender_url=url_prefix.removesuffix("/scheduler"))
    return scheduler_config.render("own", options)


def _extender(place: ExtenderPlace) -> list[str]:
    return [*gangshare_extender(place), f"--min-runtime={MIN_RUN_S:g}"]


async def _books(cluster: EmbeddedCluster) -> Inspection:
    """The extender's books, once they have seen what the cluster has."""
    placed = {podspec.uid(pod) for pod in cluster.pods() if check.shares(pod)}
    end = time.monotonic() + SETTLE_S
    while True:
        body = await asyncio.to_thread(inspection.fetch, cluster.place.status_url, "inspect")
        books = inspection.decode(body, Inspection)
        if {pod.uid for pod in books.pods} == placed or time.monotonic() > end:
            return books
        await asyncio.sleep(0.1)


def _rests(pod: Object) -> bool:
    """Whether the pod has become what it will be: refused, or more than pending on its node."""
    if podspec.node_of(pod):
        return pod["status"].get("phase") != "Pending" and not podspec.terminating(pod)
    refused = podspec.condition(pod, "PodScheduled")
    return refused is not None and refused["status"] == "False"


def _checked(cluster: EmbeddedCluster, books: Inspection, of_gang: Sequence[str]) -> check.Outcome:
    """The check's outcome; a pod that has a node and does not run there is a fault too, and what the gang's is."""
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
    return outcome._replace(faults=(*outcome.faults, *idle, *of_gang))


def _hints(cluster: EmbeddedCluster) -> list[str]:
    """What to try while it is up; the pod named is one that waits, if any does."""
    pod = min(cluster.pods(), key=lambda pod: bool(podspec.node_of(pod)))["metadata"]["name"]
    return [
        "It stays up until Ctrl-C. In another terminal:",
        f"  export KUBECONFIG={cluster.place.kubeconfig} GANGSHARE_SERVER={cluster.place.status_url}",
        f"  {_command()} top",
        f"  {_command()} explain pod {pod}",
        f"  {_command()} explain group {gang.NAME}",
        f"  kubectl describe pod {pod}",
        "  kubectl get nodes",
    ]


def _command() -> str:
    """How to call this program again."""
    return "gangshare" if shutil.which("gangshare") else str(Path(sys.argv[0]).resolve())

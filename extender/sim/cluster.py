"""The embedded cluster: API server, scheduler and kubelets in this process, extender and plugins as child processes."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import structlog

from extender.sim import podspec
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.http import ApiServer
from extender.sim.jobs import JobController
from extender.sim.kubectl import Kubectl
from extender.sim.node import SimNode
from extender.sim.podspec import Object
from extender.sim.process import Process, free_port
from extender.sim.scheduler import config
from extender.sim.scheduler.loop import Scheduler
from extender.sim.spec import ClusterSpec, ExtenderPlace, PluginPlace, gangshare_partitioner

_log = structlog.get_logger()
_POLL_SECONDS = 0.02
_READY_SECONDS = 60.0


class WaitError(Exception):
    """A condition did not become true in time."""


class EmbeddedCluster(Kubectl):
    """A running cluster, as an async context manager that leaves nothing behind."""

    def __init__(self, spec: ClusterSpec) -> None:
        super().__init__(Api())
        self.spec = spec
        self.api.log_of = self._log_of
        self.server = ApiServer(self.api)
        self._nodes: dict[str, SimNode] = {}
        self._scheduling: asyncio.Task[None] | None = None
        self._jobs: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))  # socket paths must be short
        self.kubeconfig = self.folder / "kubeconfig"
        self.place = ExtenderPlace(self.kubeconfig, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}")
        self.extender = Process("extender", self.spec.extender_command(self.place), self.folder)
        try:
            self._config = config.parse(self.spec.scheduler_config(self.place.url_prefix))
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _start(self) -> None:
        await self.server.start()
        self.server.write_kubeconfig(self.kubeconfig)
        jobs = JobController(self.api, self.spec.job_backoff_seconds)
        self._jobs = asyncio.create_task(jobs.run(), name="job controller")
        await self.extender.start()
        for i, spec in enumerate(self.spec.nodes):
            node = SimNode(self.api, spec, self.folder / f"n{i}", self.spec.kubelet)
            self._nodes[spec.name] = node
            node.start_kubelet()
            await self._start_plugin(node)
        await self.wait_for_devices()
        await self.wait_for_extender()
        self._start_scheduler()

    async def _stop(self) -> None:
        tasks = [task for task in (self._scheduling, self._jobs) if task]
        for task in tasks:
            task.cancel()
        nodes = self._nodes.values()
        processes = [self.extender, *(n.plugin for n in nodes), *(n.partitioner for n in nodes)]
        await asyncio.gather(*(p.stop() for p in processes if p))
        await asyncio.gather(*(n.stop_kubelet() for n in nodes))
        await asyncio.gather(*tasks, return_exceptions=True)
        for node in nodes:
            node.runtime.reboot()
        await self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _start_plugin(self, node: SimNode) -> None:
        if not node.spec.profile:
            return
        sockets = node.kubelet_dir, node.pod_resources
        place = PluginPlace(node.spec.name, node.profile, *sockets, self.kubeconfig, node.partitioner_dir)
        if served := place.partitioner_socket:
            node.partitioner = Process(f"partitioner-{node.spec.name}", gangshare_partitioner(place), self.folder)
            await node.partitioner.start()
            await self.wait(served.exists, _READY_SECONDS, "the partitioner serves")
        node.plugin = Process(f"plugin-{node.spec.name}", self.spec.plugin_command(place), self.folder)
        await node.plugin.start()

    def _start_scheduler(self) -> None:
        self._scheduling = asyncio.create_task(self._keep_scheduling(), name="scheduler")

    async def _keep_scheduling(self) -> None:
        """Run the scheduler, and start another when it loses its Lease."""
        while True:
            self._scheduler = Scheduler(self.api, self._config, socket.gethostname())
            await self._scheduler.run()
            _log.warning("the scheduler lost its Lease and restarts")

    # The parts

    def node(self, name: str) -> SimNode:
        return self._nodes[name]

    async def restart_scheduler(self, kill: bool = False) -> None:
        """Stop the scheduler and start another. A killed scheduler does not release its Lease."""
        if self._scheduling:
            self._scheduler.releases = not kill
            self._scheduling.cancel()
            await asyncio.gather(self._scheduling, return_exceptions=True)
        self._start_scheduler()

    def env(self, pod: Object, container: str) -> dict[str, str]:
        """A container's environment; empty before it starts."""
        node = self._nodes.get(podspec.node_of(pod))
        found = node.runtime.get(podspec.uid(pod), container) if node else None
        return dict(found.env) if found else {}

    def _log_of(self, pod: Object, container: str) -> str:
        """A container's output: its environment, one variable per line."""
        return "".join(f"{name}={value}\n" for name, value in self.env(pod, container).items())

    # Waiting

    async def wait(self, holds: Callable[[], object], timeout: float, what: str) -> None:
        """Wait until ``holds()``; raises WaitError with ``what`` after ``timeout`` seconds, or as ``check``."""
        end = time.monotonic() + timeout
        while not holds():
            if time.monotonic() > end:
                raise WaitError(f"not within {timeout:g} s: {what}")
            self.check()
            await asyncio.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raise the error of a part that has ended by itself: a ProcessError, or a crash in this process."""
        self.extender.check()
        for node in self._nodes.values():
            node.check()
        for task in (self._scheduling, self._jobs):
            if task and task.done() and not task.cancelled():
                task.result()

    async def wait_for_devices(self) -> None:
        """Wait until every node with GPUs offers devices."""
        nodes = self._nodes.values()
        await self.wait(
            lambda: all(n.offers_devices() for n in nodes), _READY_SECONDS, "every node with GPUs offers devices"
        )

    async def wait_for_extender(self) -> None:
        """Wait until the extender is ready."""
        end = time.monotonic() + _READY_SECONDS
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < end:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{self.place.status_url}/readyz") as response:
                        if response.status == 200:
                            return
                self.extender.check()
                await asyncio.sleep(_POLL_SECONDS)
        raise WaitError(f"the extender is not ready after {_READY_SECONDS:g} s:\n{self.extender.tail()}")

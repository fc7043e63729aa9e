"""The embedded cluster: API server, scheduler and kubelets in this process; extender and plugins as processes."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import msgspec
import structlog

from extender.sim import podspec
from extender.sim.apiserver import store
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.http import ApiServer
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.reading import WatchSettings
from extender.sim.apiserver.resources import EVENTS, NODES, PODS
from extender.sim.kubelet.kubelet import Kubelet, device_plugin_folder, pod_resources_folder
from extender.sim.kubelet.kubelet import Settings as KubeletSettings
from extender.sim.kubelet.runtime import Runtime
from extender.sim.kubelet.status import NodeSpec
from extender.sim.podspec import Object
from extender.sim.process import Process, free_port
from extender.sim.scheduler import config
from extender.sim.scheduler.loop import Scheduler
from protos.contract import names

_log = structlog.get_logger()
_USER = Writer("kubectl-client-side-apply")
_POLL_SECONDS = 0.02
_READY_SECONDS = 60.0


class WaitError(Exception):
    """What was waited for did not come in time."""


class ExtenderPlace(msgspec.Struct, frozen=True):
    """Where the extender of this cluster lives."""

    kubeconfig: Path
    listen: str  # host:port of the scheduler's verbs
    status_listen: str

    @property
    def url_prefix(self) -> str:
        return f"http://{self.listen}/scheduler"


class PluginPlace(msgspec.Struct, frozen=True):
    """Where the plugin of one node lives. ``profile`` is a copy that the cluster may edit."""

    node: str
    profile: Path
    kubelet_dir: Path
    pod_resources: Path  # a socket
    kubeconfig: Path


def gangshare_extender(place: ExtenderPlace) -> list[str]:
    """The command of our extender."""
    where = ["--listen", place.listen, "--status-listen", place.status_listen]
    return [sys.executable, "-m", "extender", "extender", "--kubeconfig", str(place.kubeconfig), *where]


def gangshare_plugin(place: PluginPlace) -> list[str]:
    """The command of our device plugin."""
    node = ["--fake", str(place.profile), "--node-name", place.node, "--kubeconfig", str(place.kubeconfig)]
    sockets = ["--kubelet-dir", str(place.kubelet_dir), "--pod-resources", str(place.pod_resources)]
    return [sys.executable, "-m", "deviceplugin", *node, *sockets]


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to build."""

    nodes: tuple[NodeSpec, ...]
    scheduler_config: Callable[[str], str]
    """The text of a KubeSchedulerConfiguration, given the extender's urlPrefix."""
    extender_command: Callable[[ExtenderPlace], Sequence[str]] | None = gangshare_extender
    """None: no extender process (the configuration names none, or the caller serves it)."""
    plugin_command: Callable[[PluginPlace], Sequence[str]] = gangshare_plugin
    kubelet: KubeletSettings = KubeletSettings(status_seconds=1.0)
    history: int = 20_000
    """Changes kept per resource for watches."""
    token: str = ""
    seed: int = 0


class _Node:
    """A node: its folder and runtime stay over restarts of its kubelet."""

    def __init__(self, spec: NodeSpec, folder: Path) -> None:
        self.spec, self.folder, self.runtime = spec, folder, Runtime()
        self.profile = folder / "gpus.yaml"
        self.kubelet: Kubelet | None = None
        self.task: asyncio.Task[None] | None = None
        self.plugin: Process | None = None


class EmbeddedCluster:
    """An async context manager: everything runs inside, nothing is left behind."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.api = Api(store.Store(spec.history), spec.seed)
        self.api.log_of = self._log_of
        self.server = ApiServer(self.api, spec.token, WatchSettings())
        self.folder = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))  # socket paths must be short
        self.kubeconfig = self.folder / "kubeconfig"
        self._nodes: dict[str, _Node] = {}
        self.extender: Process | None = None
        self._place = ExtenderPlace(self.kubeconfig, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}")
        self._config = config.parse(spec.scheduler_config(self._place.url_prefix))
        self.scheduler: Scheduler | None = None
        self._scheduling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
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
        for i, spec in enumerate(self.spec.nodes):
            node = self._nodes[spec.name] = _Node(spec, self.folder / f"n{i}")
            node.folder.mkdir()
            self._start_kubelet(node)
        if self.spec.extender_command:
            self.extender = Process("extender", self.spec.extender_command(self._place), self.folder)
            await self.extender.start()
        for node in self._nodes.values():
            await self._start_plugin(node)
        await self.wait_for_devices()
        await self.wait_for_extender()
        self._start_scheduler()

    async def _stop(self) -> None:
        tasks = [self._scheduling, *(n.task for n in self._nodes.values())]
        for task in tasks:
            if task:
                task.cancel()
        processes = [self.extender, *(n.plugin for n in self._nodes.values())]
        await asyncio.gather(*(p.stop() for p in processes if p))
        await asyncio.gather(*(t for t in tasks if t), return_exceptions=True)
        for node in self._nodes.values():
            node.runtime.reboot()
        await self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    # The parts

    def _start_kubelet(self, node: _Node) -> None:
        node.kubelet = Kubelet(self.api, node.spec, node.folder, node.runtime, self.spec.kubelet, self.spec.seed)
        node.task = asyncio.create_task(node.kubelet.run(), name=f"kubelet {node.spec.name}")

    async def _start_plugin(self, node: _Node) -> None:
        if not node.spec.profile:
            return
        node.profile.write_text(_profile_text(node.spec.profile))
        place = PluginPlace(
            node.spec.name,
            node.profile,
            device_plugin_folder(node.folder),
            pod_resources_folder(node.folder) / names.KUBELET_SOCKET,
            self.kubeconfig,
        )
        node.plugin = Process(f"plugin-{node.spec.name}", self.spec.plugin_command(place), self.folder)
        await node.plugin.start()

    def _start_scheduler(self) -> None:
        self._scheduling = asyncio.create_task(self._keep_scheduling(), name="scheduler")

    async def _keep_scheduling(self) -> None:
        """A scheduler that lost its Lease ends, and a new process takes its place."""
        while True:
            self.scheduler = Scheduler(self.api, self._config, socket.gethostname(), self.spec.seed)
            await self.scheduler.run()
            _log.warning("the scheduler lost its Lease and starts anew")

    async def restart_scheduler(self, kill: bool = False) -> None:
        """End it and start another; killed, it does not give its Lease up."""
        if self.scheduler:
            self.scheduler.releases = not kill
        if self._scheduling:
            self._scheduling.cancel()
            await asyncio.gather(self._scheduling, return_exceptions=True)
        self._start_scheduler()

    async def restart_kubelet(self, node: str) -> None:
        """Kill the kubelet and start another: sockets gone, checkpoint and containers there."""
        found = self._nodes[node]
        if found.task:
            found.task.cancel()
            await asyncio.gather(found.task, return_exceptions=True)
        self._start_kubelet(found)

    async def restart_extender(self, kill: bool = False) -> None:
        if self.extender:
            await self.extender.restart(kill)

    def plugin(self, node: str) -> Process:
        """The plugin process of a node."""
        found = self._nodes[node].plugin
        if found is None:
            raise KeyError(f"node {node} has no GPU profile, so no plugin runs there")
        return found

    def runtime(self, node: str) -> Runtime:
        """The containers of a node."""
        return self._nodes[node].runtime

    def kubelet(self, node: str) -> Kubelet:
        """The present kubelet of a node."""
        found = self._nodes[node].kubelet
        assert found is not None
        return found

    def profile(self, node: str) -> Path:
        """The file that describes the node's fake GPUs: edit it to change them."""
        return self._nodes[node].profile

    # What a user does

    def create_pod(self, manifest: Object) -> Object:
        """Create a pod and give it back as stored."""
        namespace = manifest.get("metadata", {}).get("namespace", "default")
        return self.api.create(PODS, namespace, manifest, _USER).obj

    def delete_pod(self, namespace: str, name: str, grace: int | None = None) -> None:
        self.api.delete(PODS, (namespace, name), {} if grace is None else {"gracePeriodSeconds": grace})

    def pod(self, namespace: str, name: str) -> Object | None:
        found = self.api.store.get(PODS, (namespace, name))
        return found.obj if found else None

    def pods(self) -> list[Object]:
        return [i.obj for i in self.api.store.items(PODS)]

    def nodes(self) -> list[Object]:
        return [i.obj for i in self.api.store.items(NODES)]

    def events(self, namespace: str, name: str) -> list[Object]:
        """Events about the pod of that name, oldest first."""
        found = [i.obj for i in self.api.store.items(EVENTS, namespace)]
        return [e for e in found if e["involvedObject"].get("name") == name]

    def env(self, pod: Object, container: str) -> dict[str, str]:
        """The environment a container got; empty while it has not started."""
        node = self._nodes.get(podspec.node_of(pod))
        found = node.runtime.get(podspec.uid(pod), container) if node else None
        return dict(found.env) if found else {}

    def _log_of(self, pod: Object, container: str) -> str:
        node = self._nodes.get(podspec.node_of(pod))
        return node.runtime.log(podspec.uid(pod), container) if node else ""

    async def wait(self, holds: Callable[[], object], timeout: float, what: str) -> None:
        """Return when ``holds()`` is true; WaitError naming ``what`` after ``timeout`` seconds, ProcessError when a
        process of the cluster has died."""
        end = time.monotonic() + timeout
        while not holds():
            if time.monotonic() > end:
                raise WaitError(f"not within {timeout:g} s: {what}")
            for process in (self.extender, *(n.plugin for n in self._nodes.values())):
                if process:
                    process.check()
            for task in (self._scheduling, *(n.task for n in self._nodes.values())):
                if task and task.done() and not task.cancelled():
                    task.result()
            await asyncio.sleep(_POLL_SECONDS)

    async def wait_for_devices(self) -> None:
        """Until every node with GPUs offers devices."""

        def offered(node: _Node) -> bool:
            found = self.api.store.get(NODES, ("", node.spec.name))
            allocatable = found.obj["status"]["allocatable"] if found else {}
            return any("/" in resource and amount != "0" for resource, amount in allocatable.items())

        with_gpus = [n for n in self._nodes.values() if n.spec.profile]
        await self.wait(lambda: all(map(offered, with_gpus)), _READY_SECONDS, "every node with GPUs offers devices")

    async def wait_for_extender(self) -> None:
        """Until the extender says it is ready."""
        if self.extender is None:
            return
        end = time.monotonic() + _READY_SECONDS
        async with aiohttp.ClientSession() as session:
            while not await _answers(session, f"http://{self._place.status_listen}/readyz"):
                self.extender.check()
                if time.monotonic() > end:
                    raise WaitError(f"the extender is not ready after {_READY_SECONDS:g} s:\n{self.extender.tail()}")
                await asyncio.sleep(_POLL_SECONDS)


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


def _profile_text(profile: str) -> str:
    """The text of a profile: a file, or the name of one that is shipped with the plugin."""
    if Path(profile).is_file():
        return Path(profile).read_text()
    return (resources.files("deviceplugin") / "profiles" / f"{profile}.yaml").read_text()

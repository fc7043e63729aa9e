"""One node of the embedded cluster with the real plugin process and no extender: a test plays the extender itself."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from deviceplugin.podresources import PodResources, PodResourcesError
from extender.sim.apiserver import patch
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.http import ApiServer
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import PODS
from extender.sim.kubectl import Kubectl
from extender.sim.kubelet.kubelet import Settings
from extender.sim.kubelet.status import NodeSpec
from extender.sim.node import SimNode
from extender.sim.process import Process
from protos.contract import allocation, codec, inventory, names
from protos.contract.allocation import Allocation, Share
from protos.contract.inventory import Inventory

NODE = "node-a"
KEYS = {
    "mem": names.GPU_MEM,
    "slices": names.GPU_SLICE,
    "whole": names.WHOLE_GPU,
    "shared": names.SHARED_GPU,
    "aliyun": names.ALIYUN_MEM,
}
Object = dict[str, Any]


def a_container(name: str = "main", **limits: int) -> Object:
    """`mem`, `slices`, `whole`, `shared` and `aliyun` are known by these names."""
    amounts = {KEYS[key]: str(amount) for key, amount in limits.items()}
    return {"name": name, "image": "busybox", "resources": {"limits": amounts}}


class Node:
    """The node, its plugin, and what a test does with them."""

    def __init__(self, api: Api, server: ApiServer, sim: SimNode, plugin: Process) -> None:
        self.api, self.server, self.sim, self.plugin, self.kubectl = api, server, sim, plugin, Kubectl(api)

    @property
    def shown(self) -> Object:
        """The Node object."""
        (found,) = self.kubectl.nodes()
        return found

    @property
    def allocatable(self) -> dict[str, str]:
        found: dict[str, str] = self.shown["status"]["allocatable"]
        return found

    @property
    def inventory(self) -> Inventory | None:
        return inventory.decode(self.shown["metadata"].get("annotations", {}).get(names.GPUS))

    @property
    def state(self) -> str:
        found = self.inventory if self.kubectl.nodes() else None
        return found.state if found else ""

    @property
    def uuids(self) -> list[str]:
        found = self.inventory
        return [gpu.uuid for gpu in found.gpus] if found else []

    @property
    def health(self) -> list[str]:
        found = self.inventory
        return [gpu.health for gpu in found.gpus] if found else []

    def bind(
        self,
        name: str,
        *containers: Object,
        on: dict[str, tuple[int, ...]] | None = None,
        init: Sequence[Object] = (),
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """Create a pod bound to the node; `on` names the GPUs of each container, as an extender would."""
        marks = dict(annotations or {})
        if on is not None:
            marks[names.ALLOCATION] = self.placed(on)
        self.kubectl.create_pod(
            {
                "metadata": {"name": name, "namespace": "default", "annotations": marks},
                "spec": {
                    "nodeName": NODE,
                    "containers": list(containers) or [a_container(mem=4)],
                    "initContainers": list(init),
                    "terminationGracePeriodSeconds": 0,
                    **spec,
                },
            }
        )

    def placed(self, on: dict[str, tuple[int, ...]]) -> str:
        uuids = self.uuids
        containers = {name: tuple(Share(uuids[i], i, 0) for i in indexes) for name, indexes in on.items()}
        return allocation.encode(Allocation(v=codec.VERSION, unit_mib=1024, slices_per_gpu=100, containers=containers))

    def pod(self, name: str) -> Object:
        found = self.kubectl.pod("default", name)
        assert found is not None
        return found

    def phase(self, name: str) -> str:
        found: str = self.pod(name)["status"]["phase"]
        return found

    def message(self, name: str) -> str:
        found: str = self.pod(name)["status"].get("message", "")
        return found

    def env(self, name: str, container: str = "main") -> dict[str, str]:
        found = self.sim.runtime.get(self.pod(name)["metadata"]["uid"], container)
        return dict(found.env) if found else {}

    def given(self, name: str, container: str = "main") -> list[int]:
        """The GPUs that the container's environment names."""
        visible = self.env(name, container).get(names.VISIBLE_DEVICES, "")
        return [self.uuids.index(uuid) for uuid in visible.split(",") if uuid]

    def marked(self, name: str, container: str = "main") -> list[int]:
        """The GPUs that the pod's annotation names."""
        found = allocation.decode(self.pod(name)["metadata"].get("annotations", {}).get(names.ALLOCATION))
        return [share.index for share in found.containers.get(container, ())] if found else []

    def managers(self, name: str) -> set[tuple[str, str]]:
        """Who wrote to the pod, and through which subresource."""
        entries = self.pod(name)["metadata"].get("managedFields", [])
        return {(entry["manager"], entry.get("subresource", "")) for entry in entries}

    def events(self, name: str) -> list[str]:
        return [event["reason"] for event in self.kubectl.events("default", name)]

    def node_events(self) -> list[str]:
        return [event["message"] for event in self.kubectl.events("default", NODE)]

    async def until(self, holds: Callable[[], object], what: str, seconds: float = 60.0) -> None:
        """Return when `holds()` is true; fails naming `what` and the end of the plugin's log."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"not within {seconds:g} s: {what}\n{self.plugin.tail()}"
            self.sim.check()
            await asyncio.sleep(0.02)

    async def offered(self, *resources: str) -> None:
        """Return when the kubelet has healthy devices of these resources."""
        kubelet = PodResources(self.sim.pod_resources)
        end = time.monotonic() + 30
        try:
            while True:
                assert time.monotonic() < end, f"{resources} are not offered\n{self.plugin.tail()}"
                with contextlib.suppress(PodResourcesError):
                    if set(resources) <= await kubelet.healthy():
                        return
                await asyncio.sleep(0.05)
        finally:
            await kubelet.close()

    async def runs(self, *pods: str) -> None:
        await self.until(lambda: all(self.phase(pod) == "Running" for pod in pods), f"{', '.join(pods)} run")

    async def fails(self, pod: str) -> None:
        await self.until(lambda: self.phase(pod) == "Failed", f"{pod} fails")

    def delete(self, name: str) -> None:
        self.kubectl.delete_pod("default", name)

    def annotate(self, name: str, key: str, value: str | None) -> None:
        """Edit an annotation of a pod, as a user may."""
        body = {"metadata": {"annotations": {key: value}}}
        self.api.patch(PODS, ("default", name), body, patch.MERGE, Writer("kubectl-edit"))

    def set_health(self, index: int, health: str) -> None:
        self.sim.set_gpu_health(index, health)

    async def restart_kubelet(self) -> None:
        await self.sim.restart_kubelet()


@contextlib.asynccontextmanager
async def a_node(
    *options: str,
    profile: str = "t4x4",
    kubelet: Settings | None = None,
    labels: dict[str, str] | None = None,
    ready: bool = True,
) -> AsyncIterator[Node]:
    """A node whose plugin runs with these options; when it is `ready` it has published its inventory."""
    folder = Path(tempfile.mkdtemp(prefix="gp-", dir="/tmp"))  # socket paths must be short
    api = Api()
    server = ApiServer(api)
    spec = NodeSpec(name=NODE, profile=profile, labels=labels or {})
    sim = SimNode(api, spec, folder / "n", kubelet or Settings(status_seconds=0.1))
    where = [
        *("--kubeconfig", str(folder / "kubeconfig"), "--node-name", NODE, "--fake", str(sim.profile)),
        *("--kubelet-dir", str(sim.kubelet_dir), "--pod-resources", str(sim.pod_resources)),
    ]
    times = ["--cool-down", "0.5", "--stop-delay", "0.5"]
    plugin = Process("plugin", [sys.executable, "-m", "deviceplugin", *where, *times, *options], folder)
    try:
        await server.start()
        server.write_kubeconfig(folder / "kubeconfig")
        sim.plugin = plugin
        sim.start_kubelet()
        node = Node(api, server, sim, plugin)
        if ready:
            await plugin.start()
            await node.until(lambda: node.state == "ready", "the node is ready")
        yield node
    finally:
        await plugin.stop()
        await sim.stop_kubelet()
        sim.runtime.reboot()
        await server.stop()
        shutil.rmtree(folder, ignore_errors=True)

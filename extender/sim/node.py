"""A node of the embedded cluster. Its folder and containers survive restarts of kubelet and plugin."""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml

from deviceplugin import fake
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.resources import NODES
from extender.sim.kubelet.kubelet import Kubelet, Settings, device_plugin_folder, pod_resources_folder
from extender.sim.kubelet.runtime import Runtime
from extender.sim.kubelet.status import NodeSpec
from extender.sim.process import Process
from protos.contract import names


class SimNode:
    """A node with its kubelet in this process. The cluster sets the processes when it starts them."""

    def __init__(self, api: Api, spec: NodeSpec, folder: Path, settings: Settings) -> None:
        folder.mkdir()
        self.spec, self.runtime = spec, Runtime()
        self._api, self._folder, self._settings = api, folder, settings
        self.profile = folder / "gpus.yaml"
        """The node's own copy of its GPU profile."""
        if spec.profile:
            self.profile.write_text(fake.find(spec.profile).read_text())
        self.plugin: Process | None = None
        self.partitioner: Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def kubelet_dir(self) -> Path:
        return device_plugin_folder(self._folder)

    @property
    def pod_resources(self) -> Path:
        return pod_resources_folder(self._folder) / names.KUBELET_SOCKET

    @property
    def partitioner_dir(self) -> Path | None:
        """The folder of the partitioner; None if the profile has no GPU of which MIG instances are made on demand."""
        gpus = fake.parse(self.profile.read_bytes()).gpus if self.spec.profile else ()
        return self._folder / "partitioner" if any(gpu.dynamic for gpu in gpus) else None

    def start_kubelet(self) -> None:
        kubelet = Kubelet(self._api, self.spec, self._folder, self.runtime, self._settings)
        self._task = asyncio.create_task(kubelet.run(), name=f"kubelet {self.spec.name}")

    async def stop_kubelet(self) -> None:
        """Stop the kubelet as a kill does: containers keep running, and the checkpoint stays."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def restart_kubelet(self) -> None:
        """Kill the kubelet and start another: its sockets are gone, its checkpoint and containers stay."""
        await self.stop_kubelet()
        self.start_kubelet()

    def set_gpu_health(self, index: int, health: str) -> None:
        """Set a fake GPU's health (``ok``, ``sick:<why>``, ``mig``, ``gone``); the plugin notices by itself."""
        profile = yaml.safe_load(self.profile.read_text())
        gpus = {gpu.get("index", place): gpu for place, gpu in enumerate(profile["gpus"])}
        gpus[index]["health"] = health
        new = self.profile.with_suffix(".new")
        new.write_text(yaml.safe_dump(profile, sort_keys=False))
        new.replace(self.profile)

    def check(self) -> None:
        """Raise the error of a part that has ended by itself."""
        for process in (self.plugin, self.partitioner):
            if process:
                process.check()
        if self._task and self._task.done() and not self._task.cancelled():
            self._task.result()

    def offers_devices(self) -> bool:
        """Whether the node's status shows allocatable devices, or the node has no GPUs."""
        found = self._api.store.get(NODES, ("", self.spec.name))
        allocatable = found.obj["status"]["allocatable"] if found else {}
        return not self.spec.profile or any("/" in name and amount != "0" for name, amount in allocatable.items())

"""A node of the embedded cluster: its folder and containers stay while kubelet and plugin come and go."""

from __future__ import annotations

import asyncio
from pathlib import Path

from extender.sim import profiles
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.resources import NODES
from extender.sim.kubelet.kubelet import Kubelet, Settings, device_plugin_folder, pod_resources_folder
from extender.sim.kubelet.runtime import Runtime
from extender.sim.kubelet.status import NodeSpec
from extender.sim.process import Process
from protos.contract import names


class SimNode:
    """One node with its kubelet in this process. ``plugin`` is set by whoever starts one."""

    def __init__(self, api: Api, spec: NodeSpec, folder: Path, settings: Settings, seed: int) -> None:
        folder.mkdir()
        self.spec, self.runtime = spec, Runtime()
        self._api, self._folder, self._settings, self._seed = api, folder, settings, seed
        self.profile = folder / "gpus.yaml"
        """The file that describes the node's fake GPUs, a copy that may be edited."""
        if spec.profile:
            self.profile.write_text(profiles.text(spec.profile))
        self.plugin: Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def kubelet_dir(self) -> Path:
        return device_plugin_folder(self._folder)

    @property
    def pod_resources(self) -> Path:
        return pod_resources_folder(self._folder) / names.KUBELET_SOCKET

    def start_kubelet(self) -> None:
        kubelet = Kubelet(self._api, self.spec, self._folder, self.runtime, self._settings, self._seed)
        self._task = asyncio.create_task(kubelet.run(), name=f"kubelet {self.spec.name}")

    async def stop_kubelet(self) -> None:
        """As a kill does: containers go on, the checkpoint stays."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def reboot(self) -> None:
        """The machine goes down and comes up: no container runs any more, the kubelet begins anew."""
        await self.stop_kubelet()
        self.runtime.reboot()
        self.start_kubelet()

    def check(self) -> None:
        """Raise what ended the plugin by itself, or the kubelet's crash."""
        if self.plugin:
            self.plugin.check()
        if self._task and self._task.done() and not self._task.cancelled():
            self._task.result()

    def offers_devices(self) -> bool:
        """Whether its status shows allocatable devices, or it has none to show."""
        found = self._api.store.get(NODES, ("", self.spec.name))
        allocatable = found.obj["status"]["allocatable"] if found else {}
        return not self.spec.profile or any("/" in name and amount != "0" for name, amount in allocatable.items())

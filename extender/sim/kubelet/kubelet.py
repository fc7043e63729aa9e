"""The kubelet's main loop: it admits the pods of its node one by one, and writes the node status with a lag."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import msgspec

from extender.sim import podspec
from extender.sim.apiserver import errors, patch
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.resources import NODES, PODS
from extender.sim.apiserver.store import Change
from extender.sim.events import Recorder
from extender.sim.kubelet import checkpoint, registration, status
from extender.sim.kubelet.devices import AllocateError, DeviceManager
from extender.sim.kubelet.podresources import PodResources
from extender.sim.kubelet.pods import KUBELET, PodWorker, confirm_deletion, write_status
from extender.sim.kubelet.registration import Registration
from extender.sim.kubelet.runtime import REFUSE, Runtime
from extender.sim.kubelet.status import NodeSpec
from extender.sim.podspec import Object


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Timing and faults of a kubelet."""

    status_seconds: float = 10.0
    """Period of the node status (nodeStatusUpdateFrequency)."""
    list_only_active: bool = True
    """PodResources List omits finished pods (Kubernetes 1.34 and later)."""
    double_ids: int = 0
    """Number of allocations in which one device ID is allocated although another pod holds it."""


class Kubelet:
    """One kubelet process of the node ``spec``. After a restart a new one gets the same folder and runtime."""

    def __init__(self, api: Api, spec: NodeSpec, folder: Path, runtime: Runtime, settings: Settings) -> None:
        self._api, self.spec, self._runtime, self._settings = api, spec, runtime, settings
        self._plugins, self._pod_resources = device_plugin_folder(folder), pod_resources_folder(folder)
        self._plugins.mkdir(parents=True, exist_ok=True)
        self._pod_resources.mkdir(parents=True, exist_ok=True)
        self._recorder = Recorder(api, "kubelet", spec.name)
        self._pods: dict[str, Object] = {}  # by UID, admitted or not
        self._workers: dict[str, PodWorker] = {}
        self._group = asyncio.TaskGroup()
        random = Random(spec.name)
        self._devices = DeviceManager(self._plugins, self._active, runtime.running(), random, self._settings.double_ids)
        self._published: dict[str, int] = {}  # allocatable in the node status
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Serve the node until cancelled, once. The containers continue in the runtime."""
        registration.wipe(self._plugins)
        plugins = Registration(self._plugins, self._devices)
        resources = PodResources(self._pod_resources, self._devices, self._listed)  # type: ignore[abstract]  # no Get
        try:
            await resources.start()
            await plugins.start()
            self._register_node()
            async with self._group as group:
                group.create_task(self._follow_pods())
                group.create_task(self._follow_status())
                self.ready.set()
        finally:
            await asyncio.gather(plugins.stop(), resources.stop())

    def _active(self) -> set[str]:
        """UIDs of the pods that keep their devices: all that have not ended."""
        return {uid for uid in self._pods if not self._inactive(uid)}

    def _inactive(self, uid: str) -> bool:
        worker = self._workers.get(uid)
        return podspec.finished(self._pods[uid]) or (worker is not None and worker.ended)

    def _listed(self) -> list[Object]:
        every = not self._settings.list_only_active
        return [pod for uid, pod in self._pods.items() if every or not self._inactive(uid)]

    async def _follow_pods(self) -> None:
        cursor = self._api.store.watch(PODS, self._api.store.rv)
        mine = [i.obj for i in self._api.store.items(PODS) if podspec.node_of(i.obj) == self.spec.name]
        await self._add(mine)
        self._devices.sources_ready = True
        while True:
            new: list[Object] = []
            for change in await cursor.next():
                if self._is_new(change):
                    new.append(change.item.obj)
                else:
                    await self._add(new)
                    new = []
                    self._changed(change)
            await self._add(new)

    def _is_new(self, change: Change) -> bool:
        pod = change.item.obj
        mine = podspec.node_of(pod) == self.spec.name
        return mine and not change.deleted and podspec.uid(pod) not in self._pods

    async def _add(self, pods: list[Object]) -> None:
        """Admit a batch, oldest first, one at a time; a pod is unknown until its turn."""
        for pod in sorted(pods, key=lambda p: str(p["metadata"]["creationTimestamp"])):
            uid = podspec.uid(pod)
            self._pods[uid] = pod
            if podspec.finished(pod):
                self._confirm_if_asked(pod)
                continue
            if refusal := await self._refusal(pod):
                self._reject(pod, *refusal)
            else:
                self._run_worker(pod)

    async def _refusal(self, pod: Object) -> tuple[str, str] | None:
        if reason := (pod["metadata"].get("annotations") or {}).get(REFUSE):
            return reason, f"another pod has taken the node: {reason}"
        try:
            for container, init in podspec.containers(pod):
                await self._devices.allocate(pod, container, init)
        except AllocateError as error:
            return "UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected"
        return self._misfit(pod)

    def _misfit(self, pod: Object) -> tuple[str, str] | None:
        """The kubelet's own fit check. It ignores extended resources that the node does not offer."""
        used = Counter({"pods": 0})
        for uid, other in self._pods.items():
            if uid != podspec.uid(pod) and not self._inactive(uid):
                used.update({"pods": 1, **podspec.pod_requests(other)})
        allocatable = self._allocatable()
        for resource, asked in {"pods": 1, **podspec.pod_requests(pod)}.items():
            if asked and resource in allocatable and used[resource] + asked > allocatable[resource]:
                message = (
                    f"Node didn't have enough resource: {resource}, requested: {asked}, "
                    f"used: {used[resource]}, capacity: {allocatable[resource]}"
                )
                return f"OutOf{resource}", message
        return None

    def _allocatable(self) -> dict[str, int]:
        """Allocatable in the node status, but at least what the device manager has allocated."""
        held: Counter[str] = Counter()
        for _, _, resource, grant in checkpoint.each(self._devices.grants):
            held[resource] += len(grant.ids)
        return {resource: max(amount, held[resource]) for resource, amount in self._published.items()}

    def _reject(self, pod: Object, reason: str, message: str) -> None:
        self._recorder.record(PODS, pod, "Warning", reason, message, "Admission")
        new = status.rejected(reason, message)
        self._pods[podspec.uid(pod)] = {**pod, "status": {**pod["status"], **new}}
        write_status(self._api, pod, new)
        for container in self._runtime.of_pod(podspec.uid(pod)):
            container.terminate(0.0)
        self._confirm_if_asked(pod)

    def _confirm_if_asked(self, pod: Object) -> None:
        if podspec.terminating(pod):
            confirm_deletion(self._api, pod)

    def _run_worker(self, pod: Object) -> None:
        worker = self._workers[podspec.uid(pod)] = PodWorker(self._api, self._runtime, self._devices, pod)
        if podspec.terminating(pod):
            worker.stop(pod["metadata"]["deletionGracePeriodSeconds"])
        self._group.create_task(worker.run())

    def _changed(self, change: Change) -> None:
        pod, uid = change.item.obj, podspec.uid(change.item.obj)
        if uid not in self._pods:
            return
        worker = self._workers.get(uid)
        if change.deleted:  # by force: the kubelet has not confirmed it
            del self._pods[uid]
            self._workers.pop(uid, None)
            if worker:
                worker.stop(pod["spec"]["terminationGracePeriodSeconds"])
            return
        self._pods[uid] = pod
        if worker:
            worker.pod = pod
            if podspec.terminating(pod):
                worker.stop(pod["metadata"]["deletionGracePeriodSeconds"])
        else:
            self._confirm_if_asked(pod)

    def _register_node(self) -> None:
        with errors.tolerated(409):
            self._api.create(NODES, "", status.node_object(self.spec), KUBELET)
        self._write_status()

    async def _follow_status(self) -> None:
        while True:
            await asyncio.sleep(self._settings.status_seconds)
            self._write_status()

    def _write_status(self) -> None:
        new = status.node_status(self.spec, self._devices.capacity())
        self._published = podspec.amounts(new["allocatable"])
        body = {"status": {part: new[part] for part in ("capacity", "allocatable")}}
        self._api.patch(NODES, ("", self.spec.name), body, patch.STRATEGIC, KUBELET)


def device_plugin_folder(folder: Path) -> Path:
    """The folder where plugins register (a short name, because socket paths are limited)."""
    return folder / "dp"


def pod_resources_folder(folder: Path) -> Path:
    """The folder of the PodResources socket."""
    return folder / "pr"

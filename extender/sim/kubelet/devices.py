"""The device manager: the devices of each container, and the choice of devices (device plugin API v1beta1).

As in the kubelet, the resources of a container come in random order, and devices are picked at random. The devices of
ordinary init containers are reused, and any error of the plugin fails the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Set
from pathlib import Path
from random import Random
from typing import TypeVar

import grpc
import msgspec

from extender.sim import podspec
from extender.sim.kubelet import checkpoint
from extender.sim.kubelet.checkpoint import Grant, Grants
from extender.sim.podspec import Object
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2_grpc as rpc

T = TypeVar("T")
_PRE_START_SECONDS = 30.0


class AllocateError(Exception):
    """The devices of a container cannot be allocated; the text is the kubelet's."""


class Endpoint(msgspec.Struct):
    """A registered plugin; a stopped one has no stub."""

    stub: rpc.DevicePluginAsyncStub | None = None
    prefers: bool = False
    pre_start: bool = False
    """The plugin is asked before each start of a container, also while it is stopped: then the container waits."""


class _RpcError(Exception):
    """A call of a plugin failed; the text is as Go prints it."""


async def _answer(call: Awaitable[T]) -> T:
    """The answer of a plugin; raises _RpcError, also when its connection is closed meanwhile."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise _RpcError(go_error(error)) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise _RpcError("rpc error: code = Canceled desc = grpc: the client connection is closing") from error


def go_error(error: grpc.aio.AioRpcError) -> str:
    """A gRPC error as Go prints it."""
    code = "".join(part.title() for part in error.code().name.split("_"))
    return f"rpc error: code = {code} desc = {error.details()}"


class DeviceManager:
    """State of one kubelet process.

    ``active`` gives the pods that keep their devices. ``running`` are the containers (UID, name) that ran when this
    kubelet started. ``double_ids`` devices are allocated although another pod holds them.
    """

    def __init__(
        self,
        folder: Path,
        active: Callable[[], set[str]],
        running: Iterable[tuple[str, str]] = (),
        random: Random | None = None,
        double_ids: int = 0,
    ) -> None:
        self._folder, self._active, self._running = folder, active, set(running)
        self._random = random or Random()
        self.double_ids = double_ids
        self.sources_ready = False
        self.healthy: dict[str, set[str]] = {}
        self._unhealthy: dict[str, set[str]] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._reusable: tuple[str, dict[str, set[str]]] = ("", {})  # of the pod under admission
        self.grants, registered = checkpoint.read(folder)
        self._taken = _devices(self.grants)
        for resource in registered:  # zero devices until the plugin registers again
            self.healthy[resource], self._unhealthy[resource] = set(), set()
            self._endpoints[resource] = Endpoint()

    def connected(self, resource: str, endpoint: Endpoint) -> None:
        self._endpoints[resource] = endpoint

    def disconnected(self, resource: str) -> None:
        """The plugin's stream has ended: all its devices are unhealthy, and it allocates none."""
        before = self._endpoints.get(resource, Endpoint())
        self._endpoints[resource] = Endpoint(pre_start=before.pre_start)
        gone = self.healthy.get(resource, set())
        self._unhealthy[resource] = self._unhealthy.get(resource, set()) | gone
        self.healthy[resource] = set()

    def received(self, resource: str, devices: Iterable[api.Device]) -> None:
        """A message of ListAndWatch: the full list, which replaces the former one."""
        health = {d.ID: d.health == "Healthy" for d in devices}
        self.healthy[resource] = {device for device, healthy in health.items() if healthy}
        self._unhealthy[resource] = health.keys() - self.healthy[resource]
        self._save()

    def capacity(self) -> dict[str, tuple[int, int]]:
        """Capacity and allocatable per resource."""
        return {r: (len(ids) + len(self._unhealthy.get(r, ())), len(ids)) for r, ids in self.healthy.items()}

    def held(self, uid: str, container: str) -> dict[str, Grant]:
        """The grants of a container, by resource."""
        return self.grants.get(uid, {}).get(container, {})

    def collect(self) -> None:
        """Free the devices of pods that are no longer active."""
        if not self.sources_ready:
            return
        gone = self.grants.keys() - self._active()
        for uid in gone:
            del self.grants[uid]
        if gone:
            self._taken = _devices(self.grants)

    async def allocate(self, pod: Object, container: Object, init: bool) -> None:
        """Allocate the devices of a container under admission; raises AllocateError."""
        uid = podspec.uid(pod)
        if self._reusable[0] != uid:
            self._reusable = (uid, {})
        await self.allocate_container(pod, container)
        reusable = self._reusable[1]
        for resource, grant in self.held(uid, container["name"]).items():
            known = reusable.setdefault(resource, set())
            reusable[resource] = known | grant.ids if init and not podspec.is_sidecar(container) else known - grant.ids

    async def before_start(self, pod: Object, container: Object) -> None:
        """What the kubelet does before each start of a container; raises AllocateError, and then it does not start.

        Source: GetDeviceRunContainerOptions and callPreStartContainerIfNeeded of the device manager.
        """
        uid, name = podspec.uid(pod), container["name"]
        wanted = [r for r, amount in podspec.limits(container).items() if amount and r in self.healthy]
        for resource in wanted:
            await self._pre_start(resource, uid, name)
        if any(resource not in self.held(uid, name) for resource in wanted):
            await self.allocate_container(pod, container)

    async def _pre_start(self, resource: str, uid: str, name: str) -> None:
        endpoint, held = self._endpoints.get(resource, Endpoint()), self.held(uid, name).get(resource)
        if not endpoint.pre_start:
            return
        if held is None:
            raise AllocateError(
                f"no devices found allocated in local cache for pod {uid}, container {name}, resource {resource}"
            )
        if endpoint.stub is None:
            raise AllocateError(f"endpoint {resource} has been stopped")
        request = api.PreStartContainerRequest(devices_ids=self._shuffled(held.ids))
        try:
            await _answer(endpoint.stub.PreStartContainer(request, timeout=_PRE_START_SECONDS))
        except _RpcError as error:
            raise AllocateError(f"device plugin PreStartContainer rpc failed with err: {error}") from error

    async def allocate_container(self, pod: Object, container: Object) -> None:
        """Allocate the devices of its limits that a container does not hold yet; raises AllocateError."""
        uid, name = podspec.uid(pod), container["name"]
        limits = [(r, n) for r, n in podspec.limits(container).items() if r in self.healthy or r in self._taken]
        self._random.shuffle(limits)
        reusable = self._reusable[1] if self._reusable[0] == uid else {}
        changed = False
        for resource, needed in limits:
            self.collect()
            ids = await self._choose(uid, name, resource, needed, reusable.get(resource, set()))
            if ids:
                response = await self._ask(resource, ids)
                self.grants.setdefault(uid, {}).setdefault(name, {})[resource] = Grant(frozenset(ids), response)
                changed = True
        if changed:
            self._save()

    async def _ask(self, resource: str, ids: set[str]) -> api.ContainerAllocateResponse:
        stub = self._endpoints[resource].stub
        try:
            if stub is None:
                raise AllocateError(f"endpoint {resource} has been stopped")
            request = api.ContainerAllocateRequest(devices_ids=self._shuffled(ids))
            answer = await _answer(stub.Allocate(api.AllocateRequest(container_requests=[request])))
        except (AllocateError, _RpcError) as error:
            self._taken = _devices(self.grants)
            raise AllocateError(str(error)) from error
        if not answer.container_responses:
            raise AllocateError(f"no containers return in allocation response {answer}")
        return answer.container_responses[0]

    async def _choose(self, uid: str, name: str, resource: str, required: int, reusable: set[str]) -> set[str]:
        """The device IDs to allocate; empty if the container needs none."""
        held = self.held(uid, name).get(resource)
        if held and len(held.ids) != required:
            raise AllocateError(
                f'pod "{uid}" container "{name}" changed request for resource "{resource}" from '
                f"{len(held.ids)} to {required}"
            )
        if not self.sources_ready and (uid, name) in self._running:
            return set()
        healthy = self._check_healthy(resource, held.ids if held else frozenset())
        if held or not required:
            return set()
        chosen = set(self._shuffled(reusable)[:required])
        if len(chosen) < required:
            available = healthy - self._taken.get(resource, set())
            if len(available) < required - len(chosen):
                raise AllocateError(
                    f"requested number of devices unavailable for {resource}. Requested: "
                    f"{required - len(chosen)}, Available: {len(available)}"
                )
            preferred = await self._prefer(resource, available, chosen, required)
            for device in [*self._shuffled(preferred & available), *self._shuffled(available)]:
                if len(chosen) < required:
                    chosen.add(device)
        chosen = self._doubled(uid, resource, chosen)
        self._taken.setdefault(resource, set()).update(chosen)
        return chosen

    def _check_healthy(self, resource: str, held: frozenset[str]) -> set[str]:
        if resource not in self.healthy:
            raise AllocateError(f"cannot allocate unregistered device {resource}")
        healthy = self.healthy[resource]
        if not healthy:
            raise AllocateError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not held <= healthy:
            raise AllocateError(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
        return healthy

    async def _prefer(self, resource: str, available: set[str], chosen: set[str], size: int) -> set[str]:
        endpoint = self._endpoints.get(resource, Endpoint())
        if endpoint.stub is None or not endpoint.prefers:
            return set()
        request = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=self._shuffled(available | chosen),
            must_include_deviceIDs=self._shuffled(chosen),
            allocation_size=size,
        )
        try:
            asked = api.PreferredAllocationRequest(container_requests=[request])
            answer = await _answer(endpoint.stub.GetPreferredAllocation(asked))
        except _RpcError as error:
            raise AllocateError(f"device plugin GetPreferredAllocation rpc failed with err: {error}") from error
        return set(answer.container_responses[0].deviceIDs) if answer.container_responses else set()

    def _doubled(self, uid: str, resource: str, chosen: set[str]) -> set[str]:
        """The kubelet's rare bug, on request: replace one of the IDs by one of another pod."""
        grants = [grant for pod, _, name, grant in checkpoint.each(self.grants) if pod != uid and name == resource]
        others = {device for grant in grants for device in grant.ids}
        if not self.double_ids or not others - chosen:
            return chosen
        self.double_ids -= 1
        return {*self._shuffled(chosen)[1:], self._shuffled(others - chosen)[0]}

    def _shuffled(self, ids: Set[str]) -> list[str]:
        return self._random.sample(sorted(ids), len(ids))

    def _save(self) -> None:
        checkpoint.write(self._folder, self.grants, self.healthy)


def _devices(grants: Grants) -> dict[str, set[str]]:
    """Allocated device IDs by resource."""
    devices: dict[str, set[str]] = {}
    for _, _, resource, grant in checkpoint.each(grants):
        devices.setdefault(resource, set()).update(grant.ids)
    return devices

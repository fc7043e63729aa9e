"""PodResources v1: the devices of the containers of this node, without pod UIDs, rate limited."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from pathlib import Path

import grpc

from extender.sim import podspec
from extender.sim.kubelet.devices import DeviceManager
from extender.sim.kubelet.unix import UnixServer
from extender.sim.podspec import Object
from protos.contract import names
from protos.kubelet.podresources.v1 import podresources_v1_pb2 as api
from protos.kubelet.podresources.v1 import podresources_v1_pb2_grpc as rpc

_CALLS_PER_SECOND, _BURST = 100.0, 10.0


class _Bucket:
    """A token bucket with the limits of the kubelet."""

    def __init__(self) -> None:
        self._tokens, self._at = _BURST, time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self._tokens = min(_BURST, self._tokens + (now - self._at) * _CALLS_PER_SECOND)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class PodResources(rpc.PodResourcesListerServicer):
    """Serves the pods of ``pods()`` with their devices from the device manager. It does not implement Get."""

    def __init__(self, folder: Path, manager: DeviceManager, pods: Callable[[], Iterable[Object]]) -> None:
        self._socket = folder / names.KUBELET_SOCKET
        self._manager, self._pods = manager, pods
        self._bucket = _Bucket()
        self._server = UnixServer(partial(rpc.add_PodResourcesListerServicer_to_server, self))

    async def start(self) -> None:
        self._socket.unlink(missing_ok=True)
        await self._server.start(self._socket)

    async def stop(self) -> None:
        await self._server.stop()

    async def List(
        self, _request: api.ListPodResourcesRequest, context: rpc._ServicerContext
    ) -> api.ListPodResourcesResponse:
        await self._limit(context)
        self._manager.collect()
        return api.ListPodResourcesResponse(pod_resources=[self._show(pod) for pod in self._pods()])

    async def GetAllocatableResources(
        self, _request: api.AllocatableResourcesRequest, context: rpc._ServicerContext
    ) -> api.AllocatableResourcesResponse:
        await self._limit(context)
        return api.AllocatableResourcesResponse(devices=_devices(self._manager.healthy))

    async def _limit(self, context: rpc._ServicerContext) -> None:
        if not self._bucket.take():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")

    def _show(self, pod: Object) -> api.PodResources:
        namespace, name = podspec.key(pod)
        containers = []
        for container in (c["name"] for c, init in podspec.containers(pod) if not init or podspec.is_sidecar(c)):
            ids = {resource: grant.ids for resource, grant in self._manager.held(podspec.uid(pod), container).items()}
            containers.append(api.ContainerResources(name=container, devices=_devices(ids)))
        return api.PodResources(name=name, namespace=namespace, containers=containers)


def _devices(ids: Mapping[str, Set[str]]) -> list[api.ContainerDevices]:
    """One entry for each device, as the kubelet lists them."""
    return [
        api.ContainerDevices(resource_name=resource, device_ids=[device])
        for resource, devices in ids.items()
        for device in sorted(devices)
    ]

"""Which container holds which device, asked from the kubelet: PodResources v1, over its unix socket.

Source: k8s.io/kubernetes/pkg/kubelet/apis/podresources (List 100/s with a burst of 10, shared by all clients).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import grpc

from deviceplugin.candidates import Listed
from protos.kubelet.podresources.v1 import podresources_v1_pb2 as api
from protos.kubelet.podresources.v1 import podresources_v1_pb2_grpc as rpc

T = TypeVar("T")
ANSWER_S = 1.0
"""Timeout of one question."""
RETRY_S = 0.015
OPTIONS = [
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", 64 * 2**20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
"""The kubelet refuses the escaped socket path as authority, lists one entry per device ID, and may restart."""


class PodResourcesError(Exception):
    """The kubelet did not answer."""


class PodResources:
    """A client of the PodResources socket. Make it inside the running event loop and end it with `close`."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=OPTIONS)
        self._stub = rpc.PodResourcesListerStub(self._channel)

    async def pods(self) -> Sequence[api.PodResources]:
        """All pods of the node that the kubelet runs or admits; raises PodResourcesError."""
        return (await self._ask(self._stub.List, api.ListPodResourcesRequest())).pod_resources

    async def list(self) -> tuple[Listed, ...]:
        """The same by name, with their devices; raises PodResourcesError."""
        return tuple(_listed(pod) for pod in await self.pods())

    async def healthy(self) -> frozenset[str]:
        """The resources with healthy devices, so with a live plugin; raises PodResourcesError."""
        answer = await self._ask(self._stub.GetAllocatableResources, api.AllocatableResourcesRequest())
        return frozenset(device.resource_name for device in answer.devices if device.device_ids)

    async def close(self) -> None:
        await self._channel.close()

    async def _ask(self, call: Callable[..., Awaitable[T]], request: object) -> T:
        deadline = asyncio.get_running_loop().time() + ANSWER_S
        while True:
            try:
                return await call(request, timeout=ANSWER_S, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                late = asyncio.get_running_loop().time() > deadline
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or late:
                    said = f"{error.code().name} {error.details()}"
                    raise PodResourcesError(f"PodResources at {self.socket}: {said}") from error
            await asyncio.sleep(RETRY_S)


def _listed(pod: api.PodResources) -> Listed:
    devices: dict[str, dict[str, frozenset[str]]] = {}
    for container in pod.containers:
        held: dict[str, list[str]] = {}
        for entry in container.devices:
            held.setdefault(entry.resource_name, []).extend(entry.device_ids)
        devices[container.name] = {resource: frozenset(ids) for resource, ids in held.items() if ids}
    return Listed((pod.namespace, pod.name), devices)

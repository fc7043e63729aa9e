"""A minimal device plugin over real gRPC. Run: python -m tests.sim.standin_plugin KUBELET_DIR [COUNT].

It serves example.com/gpu and tells each container its device IDs in the environment. A file ``refuse`` in its folder
makes Allocate fail, ``sulk`` makes GetPreferredAllocation fail, ``hold`` makes PreStartContainer fail.
"""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from extender.sim.kubelet.unix import UnixServer
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2_grpc as rpc

RESOURCE = "example.com/gpu"
Context = grpc.aio.ServicerContext[Any, Any]


class Plugin(rpc.DevicePluginServicer):
    def __init__(self, folder: Path, count: int, resource: str = RESOURCE) -> None:
        self.folder, self.resource = folder, resource
        self.devices = {f"gpu-{i}": "Healthy" for i in range(count)}
        self.changed = asyncio.Condition()
        self.asking = 0
        self.asked: list[list[str]] = []  # devices of each Allocate
        self.pre_start, self.starting = False, list[list[str]]()  # devices of each PreStartContainer
        self.allocated = asyncio.Event()
        self.allocated.set()  # cleared by a test: Allocate blocks
        self.endpoint = ""
        self._server = UnixServer(partial(rpc.add_DevicePluginServicer_to_server, self))

    async def start(self) -> None:
        """Serve on a socket of a new name, then register."""
        self.endpoint = f"p{uuid.uuid4().hex[:8]}.sock"
        await self._server.start(self.folder / self.endpoint)
        await register(self.folder, self.endpoint, self.resource)

    async def stop(self) -> None:
        await self._server.stop()

    async def set_health(self, device: str, health: str) -> None:
        async with self.changed:
            self.devices[device] = health
            self.changed.notify_all()

    async def GetDevicePluginOptions(self, request: api.Empty, context: Context) -> api.DevicePluginOptions:
        return api.DevicePluginOptions(get_preferred_allocation_available=True, pre_start_required=self.pre_start)

    async def ListAndWatch(self, request: api.Empty, context: Context) -> AsyncIterator[api.ListAndWatchResponse]:
        while True:
            yield api.ListAndWatchResponse(devices=[api.Device(ID=i, health=h) for i, h in self.devices.items()])
            async with self.changed:
                await self.changed.wait()
            if (self.folder / "leave").exists():
                return

    async def GetPreferredAllocation(
        self, request: api.PreferredAllocationRequest, context: Context
    ) -> api.PreferredAllocationResponse:
        if (self.folder / "sulk").exists():
            await context.abort(grpc.StatusCode.INTERNAL, "no preference today")
        asked = request.container_requests[0]
        first = sorted(set(asked.available_deviceIDs) - set(asked.must_include_deviceIDs))
        chosen = [*asked.must_include_deviceIDs, *first][: asked.allocation_size]
        return api.PreferredAllocationResponse(
            container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=chosen)]
        )

    async def Allocate(self, request: api.AllocateRequest, context: Context) -> api.AllocateResponse:
        self.asking += 1
        await self.allocated.wait()
        if (self.folder / "refuse").exists():
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no GPU for you")
        ids = list(request.container_requests[0].devices_ids)
        self.asked.append(ids)
        envs = {"DEVICES": ",".join(sorted(ids))}
        return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(envs=envs)])

    async def PreStartContainer(
        self, request: api.PreStartContainerRequest, context: Context
    ) -> api.PreStartContainerResponse:
        self.starting.append(sorted(request.devices_ids))
        if (self.folder / "hold").exists():
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not yet")
        return api.PreStartContainerResponse()


async def register(folder: Path, endpoint: str, resource: str, version: str = "v1beta1") -> None:
    options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"unix:{folder / 'kubelet.sock'}", options=options) as channel:
        request = api.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource)
        await rpc.RegistrationStub(channel).Register(request, wait_for_ready=True, timeout=10)


async def gone(path: Path) -> None:
    while True:
        if not await asyncio.to_thread(path.exists):
            return
        await asyncio.sleep(0.05)


async def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 4
    while True:
        plugin = Plugin(folder, count)
        await plugin.start()
        await gone(folder / plugin.endpoint)  # a starting kubelet removes it
        await plugin.stop()


if __name__ == "__main__":
    asyncio.run(main())

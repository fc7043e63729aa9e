"""The kubelet's Registration service, and one client per registered plugin."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path

import grpc
import structlog

from extender.sim.kubelet.devices import DeviceManager, Endpoint
from extender.sim.kubelet.unix import UnixServer
from protos.contract import names
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2_grpc as rpc

_log = structlog.get_logger()
_VERSION = "v1beta1"
_EXTENDED = re.compile(
    r"^(?!.*kubernetes\.io/)[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
)
_DIAL_SECONDS = 10.0
_OPTIONS = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]


def wipe(folder: Path) -> None:
    """Remove the sockets of the device plugin folder, as a starting kubelet does; files stay."""
    for path in folder.iterdir():
        if path.is_socket():
            path.unlink()


class Registration(rpc.RegistrationServicer):
    """Accepts plugins, and owns one client per resource name.

    When an old stream ends after its plugin has registered again, the *new* client is disconnected, as in Kubernetes
    up to 1.36.
    """

    def __init__(self, folder: Path, manager: DeviceManager) -> None:
        self._folder, self._manager = folder, manager
        self._server = UnixServer(partial(rpc.add_RegistrationServicer_to_server, self))
        self._clients: dict[str, _Client] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._server.start(self._folder / names.KUBELET_SOCKET)

    async def stop(self) -> None:
        await self._server.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def Register(self, request: api.RegisterRequest, context: rpc._ServicerContext) -> api.Empty:
        resource = request.resource_name
        if request.version != _VERSION:
            await context.abort(
                grpc.StatusCode.UNKNOWN,
                f'requested API version "{request.version}" is not supported by '
                f"kubelet. Supported version is {_VERSION}",
            )
        if not _EXTENDED.match(resource):
            await context.abort(grpc.StatusCode.UNKNOWN, f'the ResourceName "{resource}" is invalid')
        client = _Client(resource, self._folder / request.endpoint, self._manager)
        self._clients[resource] = client
        try:
            await client.connect()
        except (TimeoutError, grpc.aio.AioRpcError) as error:
            self._clients.pop(resource, None)
            await client.close()
            await context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin {request.endpoint}: {error!r}")
        task = asyncio.create_task(self._run(resource, client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return api.Empty()

    async def _run(self, resource: str, client: _Client) -> None:
        try:
            await client.run()
            current = self._clients.pop(resource, None)
            if current:
                await current.close()  # first, as in the kubelet: messages under way would undo the next line
                self._manager.disconnected(resource)
        finally:
            await client.close()


class _Client:
    """The connection to one plugin's socket."""

    def __init__(self, resource: str, socket: Path, manager: DeviceManager) -> None:
        self._resource, self._manager = resource, manager
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._stub = rpc.DevicePluginStub(self._channel)
        self._closed = False

    async def connect(self) -> None:
        """Dial and read the options; raises TimeoutError after 10 s."""
        await asyncio.wait_for(self._channel.channel_ready(), _DIAL_SECONDS)
        options = await self._stub.GetDevicePluginOptions(api.Empty())
        endpoint = Endpoint(self._stub, options.get_preferred_allocation_available, options.pre_start_required)
        self._manager.connected(self._resource, endpoint)

    async def run(self) -> None:
        """Follow the plugin's devices until its stream ends or the client is closed."""
        try:
            async for message in self._stub.ListAndWatch(api.Empty()):
                if self._closed:  # a closed channel still delivers messages that were under way
                    return
                self._manager.received(self._resource, message.devices)
        except grpc.aio.AioRpcError as error:
            _log.info("device plugin stream ended", resource=self._resource, code=error.code().name)

    async def close(self) -> None:
        self._closed = True
        await self._channel.close()

"""The plugin's side of the device plugin API v1beta1: one gRPC server on one socket per resource.

It only transports: `offer` has the device lists, `allocate` the answers.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import structlog

from deviceplugin.allocate import Allocator
from deviceplugin.identify import RefusedError
from deviceplugin.metrics import Metrics
from deviceplugin.offer import Offer
from deviceplugin.prestart import PreStart
from deviceplugin.sockets import LONGEST_PATH
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2_grpc as rpc

log = structlog.get_logger()

SOCKET_PREFIX = "gangshare-"
OPTIONS = [("grpc.max_receive_message_length", 64 * 2**20), ("grpc.max_send_message_length", 64 * 2**20)]
"""The kubelet sends all free IDs."""
Context = grpc.aio.ServicerContext[Any, Any]


class ServeError(Exception):
    """A resource cannot be served or registered now."""


class Endpoint(rpc.DevicePluginServicer):
    """One resource, served on a socket with a new name at each start."""

    def __init__(
        self, resource: str, offer: Offer, allocator: Allocator, metrics: Metrics, prestart: PreStart | None = None
    ) -> None:
        """With `prestart` the kubelet asks before each start of a container."""
        self.resource, self.offer, self.allocator, self.metrics = resource, offer, allocator, metrics
        self._prestart = prestart
        self.options = api.DevicePluginOptions(
            get_preferred_allocation_available=True, pre_start_required=prestart is not None
        )
        self.streams = 0
        """Open ListAndWatch streams: with one the kubelet follows our device list."""
        self.socket: Path | None = None
        self._server: grpc.aio.Server | None = None
        self._ending = asyncio.Event()
        metrics.registered.labels(resource).set(0)

    async def start(self, folder: Path) -> Path:
        """Serve on a new socket in this folder; raises ServeError."""
        await self.stop()
        name = self.resource.rpartition("/")[2].replace(".", "-")
        path = folder / f"{SOCKET_PREFIX}{name}-{time.time_ns():x}.sock"
        if len(bytes(path)) > LONGEST_PATH:
            raise ServeError(f"{path} is too long for a unix socket: expected at most {LONGEST_PATH} bytes")
        server = grpc.aio.server(options=OPTIONS)
        rpc.add_DevicePluginServicer_to_server(self, server)
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise ServeError(f"cannot listen on {path}: {error}") from error
        await server.start()
        self._server, self.socket, self._ending = server, path, asyncio.Event()
        return path

    async def stop(self) -> None:
        """End the streams and remove the socket; for the kubelet no device of ours is healthy then."""
        self._ending.set()
        if self._server is not None:
            await self._server.stop(grace=0.2)
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.unlink()
        self._server = self.socket = None

    async def GetDevicePluginOptions(self, _request: api.Empty, _context: Context) -> api.DevicePluginOptions:
        return self.options

    async def ListAndWatch(self, _request: api.Empty, _context: Context) -> AsyncIterator[api.ListAndWatchResponse]:
        ending = self._ending
        self._opened(1)
        try:
            while not ending.is_set():
                changed = self.offer.changed
                yield self.offer.devices(self.resource)
                await _first(changed, ending)
        finally:
            self._opened(-1)

    async def GetPreferredAllocation(
        self, request: api.PreferredAllocationRequest, _context: Context
    ) -> api.PreferredAllocationResponse:
        answers = []
        for asked in request.container_requests:
            try:
                available, must = asked.available_deviceIDs, asked.must_include_deviceIDs
                ids = await self.allocator.prefer(self.resource, available, must, asked.allocation_size)
            except Exception:  # an error would fail the pod for good, an empty answer is harmless
                log.exception("preference_failed", resource=self.resource)
                ids = []
            answers.append(api.ContainerPreferredAllocationResponse(deviceIDs=ids))
        return api.PreferredAllocationResponse(container_responses=answers)

    async def Allocate(self, request: api.AllocateRequest, context: Context) -> api.AllocateResponse:
        answers = []
        with self.metrics.allocate.labels(self.resource).time():
            for asked in request.container_requests:
                try:
                    answers.append(await self.allocator.allocate(self.resource, asked.devices_ids))
                except RefusedError as error:
                    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error.reason))
        return api.AllocateResponse(container_responses=answers)

    async def PreStartContainer(
        self, request: api.PreStartContainerRequest, context: Context
    ) -> api.PreStartContainerResponse:
        if self._prestart is not None:
            try:
                await self._prestart.start(self.resource, request.devices_ids)
            except RefusedError as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error.reason))
        return api.PreStartContainerResponse()

    def _opened(self, count: int) -> None:
        self.streams += count
        self.metrics.registered.labels(self.resource).set(min(1, self.streams))


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()

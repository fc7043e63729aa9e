"""Registration with the kubelet, and again whenever it is due.

A kubelet that starts wipes all sockets of the folder and makes a new kubelet.sock: that is seen by looking at the file.
A registration whose device list nobody follows is renewed too. Up to Kubernetes 1.36 the end of an old stream can
disconnect a newer registration of the same resource, so between the two we wait (kubernetes/kubernetes#135437). A
resource that another live plugin serves is left alone until that one is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import structlog

from deviceplugin.metrics import Metrics
from deviceplugin.podresources import PodResources, PodResourcesError
from deviceplugin.server import OPTIONS_ANSWER, SOCKET_PREFIX, Endpoint, SocketError
from protos.contract import names
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2_grpc as rpc

log = structlog.get_logger()

VERSION = "v1beta1"
LOOK_S = 0.05
"""Between two looks at kubelet.sock."""
UNFOLLOWED_S = 3.0
"""A registration without an open stream for so long is renewed."""
SETTLE_S = 1.5
"""Between the end of a server and the next registration with the same kubelet."""
RETRY_S = 1.0
ABSENT_S = 10.0
"""A resource of another plugin is taken over once nobody served it for so long."""
ANSWER_S = 12.0
"""The kubelet dials us from inside Register, and gives up after ten seconds."""
ELSEWHERE, OURS = "GpuResourceElsewhere", "GpuResourceServed"
"""Reasons of Events: two, for of equal ones only the first in half a minute is written."""
Stamp = tuple[int, int]


class RegisterError(Exception):
    """The kubelet did not take the registration."""


class Watched:
    """A file: whether it is there, and whether it is another one than before."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def stamp(self) -> Stamp | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_ctime_ns

    async def there(self) -> Stamp:
        """Wait for the file."""
        while True:
            stamp = self.stamp()
            if stamp is not None:
                return stamp
            await asyncio.sleep(LOOK_S)


class Registrar:
    """Keeps one resource registered."""

    def __init__(
        self,
        endpoint: Endpoint,
        folder: Path,
        kubelet: PodResources,
        metrics: Metrics,
        tell: Callable[[str, str], Awaitable[None]],
        restarted: Callable[[str], None],
    ) -> None:
        """`tell` brings an Event's reason and a sentence to the operator's notice.

        `restarted` hears of the resource before a kubelet that started anew is served.
        """
        self.endpoint, self.folder, self.kubelet, self.metrics = endpoint, folder, kubelet, metrics
        self.tell, self.restarted = tell, restarted
        self.resource = endpoint.resource
        self.foreign = False
        """Another plugin serves this resource."""
        self._socket = Watched(folder / names.KUBELET_SOCKET)

    @property
    def settled(self) -> bool:
        """Nothing is to be done at the moment: the kubelet follows us, or another plugin."""
        return self.foreign or self.endpoint.streams > 0

    async def run(self) -> None:
        """Keep registered for ever; ends the server when cancelled."""
        last: Stamp | None = None
        try:
            while True:
                stamp = await self._socket.there()
                if stamp == last or last is None or self.foreign:
                    await self._unserved()
                if last not in (stamp, None):
                    self.restarted(self.resource)
                last = stamp
                try:
                    await self._register()
                except (RegisterError, SocketError) as error:
                    log.warning("registration_failed", resource=self.resource, error=str(error))
                    await asyncio.sleep(RETRY_S)
                    continue
                if await self._followed(stamp):
                    log.info("kubelet_restarted", resource=self.resource)
                else:
                    log.warning("registration_unfollowed", resource=self.resource)
                    await self.endpoint.stop()
                    await asyncio.sleep(SETTLE_S)
        finally:
            await self.endpoint.stop()

    async def _unserved(self) -> None:
        """Wait until no other plugin serves the resource."""
        if not await self._served():
            return
        await asyncio.sleep(SETTLE_S)  # a plugin that has just ended may still be shown
        if not await self._served():
            return
        self.foreign = True
        await self.tell(
            ELSEWHERE,
            f"another device plugin serves {self.resource} on this node: it is left to it. To switch, take that plugin "
            f"off the node (NVIDIA's: its DaemonSet); {ABSENT_S:g} s later we serve {self.resource}, and running pods "
            "keep their GPUs",
        )
        absent = 0.0
        while absent < ABSENT_S:
            await asyncio.sleep(RETRY_S)
            absent = 0.0 if await self._served() else absent + RETRY_S
        self.foreign = False
        await self.tell(OURS, f"no other plugin serves {self.resource} any more: this one does from now on")

    async def _served(self) -> bool:
        try:
            return self.resource in await self.kubelet.healthy()
        except PodResourcesError as error:
            log.warning("served_resources_unknown", resource=self.resource, error=str(error))
            return False

    async def _register(self) -> None:
        path = await self.endpoint.start(self.folder)
        request = api.RegisterRequest(
            version=VERSION, endpoint=path.name, resource_name=self.resource, options=OPTIONS_ANSWER
        )
        options = [("grpc.default_authority", "localhost")]
        try:
            async with grpc.aio.insecure_channel(f"unix:{self._socket.path}", options=options) as channel:
                await rpc.RegistrationStub(channel).Register(request, timeout=ANSWER_S)
        except grpc.aio.AioRpcError as error:
            said = f"{error.code().name} {error.details()}"
            raise RegisterError(f"the kubelet at {self._socket.path} did not take {self.resource}: {said}") from error
        self.metrics.registrations.labels(self.resource).inc()
        log.info("registered", resource=self.resource, socket=path.name)

    async def _followed(self, stamp: Stamp) -> bool:
        """Wait until the registration is worth nothing; whether that is because the kubelet is another one."""
        clock = asyncio.get_running_loop().time
        last = clock()
        while clock() - last < UNFOLLOWED_S:
            await asyncio.sleep(LOOK_S)
            gone = self.endpoint.socket is None or not self.endpoint.socket.exists()
            if self._socket.stamp() not in (stamp, None) or gone:
                return True
            if self.endpoint.streams:
                last = clock()
        return False


def sweep(folder: Path) -> None:
    """Remove sockets of ours that nobody serves any more."""
    for path in folder.glob(f"{SOCKET_PREFIX}*.sock"):
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()

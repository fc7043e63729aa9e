"""Registration with the kubelet, and registration again when it is due.

A kubelet that starts removes all sockets of the folder and makes a new kubelet.sock, which we notice by its stamp.
A registration is also renewed if the kubelet does not follow its device list. Up to Kubernetes 1.36 the end of an old
stream can disconnect a newer registration of the same resource, so we wait between the two
(kubernetes/kubernetes#135437). A resource that another live plugin serves is left to it until that plugin is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import structlog

from deviceplugin import sockets
from deviceplugin.cluster import Kind
from deviceplugin.metrics import Metrics
from deviceplugin.podresources import PodResources, PodResourcesError
from deviceplugin.server import SOCKET_PREFIX, Endpoint, ServeError
from protos import files
from protos.contract import names
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2_grpc as rpc

log = structlog.get_logger()

VERSION = "v1beta1"
LOOK_S = 0.05
"""Seconds between two looks at kubelet.sock."""
UNFOLLOWED_S = 3.0
"""A registration is renewed after so many seconds without an open stream."""
SETTLE_S = 1.5
"""Seconds between the end of a server and the next registration with the same kubelet."""
RETRY_S = 1.0
ABSENT_S = 10.0
"""A resource of another plugin is taken over once no plugin has served it for so many seconds."""
ANSWER_S = 12.0
"""Timeout of Register: the kubelet dials us from inside it, and gives up after ten seconds."""
ELSEWHERE, OURS = "GpuResourceElsewhere", "GpuResourceServed"
"""Reasons of Events. They differ, since of equal Events only the first in half a minute is written."""


class Registrar:
    """Keeps one resource registered."""

    def __init__(
        self,
        endpoint: Endpoint,
        folder: Path,
        kubelet: PodResources,
        metrics: Metrics,
        tell: Callable[[str, str, Kind], Awaitable[None]],
        restarted: Callable[[str], None],
    ) -> None:
        """`tell` posts an Event about the node: its reason, a sentence and its kind.

        `restarted` is called with the resource before a restarted kubelet is served.
        """
        self.endpoint, self.folder, self.kubelet, self.metrics = endpoint, folder, kubelet, metrics
        self.tell, self.restarted = tell, restarted
        self.resource = endpoint.resource
        self.foreign = False
        """Whether another plugin serves this resource."""
        self._socket = folder / names.KUBELET_SOCKET

    @property
    def settled(self) -> bool:
        """Whether the kubelet follows our device list, or that of another plugin."""
        return self.foreign or self.endpoint.streams > 0

    async def run(self) -> None:
        """Keep the resource registered for ever; on cancellation the server ends."""
        last: files.Stamp | None = None
        try:
            while True:
                while (stamp := files.stamp(self._socket)) is None:  # noqa: ASYNC110 - a file has no event
                    await asyncio.sleep(LOOK_S)
                if stamp == last or last is None or self.foreign:
                    await self._unserved()
                if last not in (stamp, None):
                    self.restarted(self.resource)
                last = stamp
                try:
                    await self._register()
                except ServeError as error:
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
        await asyncio.sleep(SETTLE_S)  # the kubelet may still show a plugin that has just ended
        if not await self._served():
            return
        self.foreign = True
        await self.tell(
            ELSEWHERE,
            f"another device plugin serves {self.resource} on this node, and goes on to serve it. To switch, remove "
            f"that plugin from the node (NVIDIA's: its DaemonSet). {ABSENT_S:g} s later Gangshare serves "
            f"{self.resource}, and running pods keep their GPUs",
            "Warning",
        )
        absent = 0.0
        while absent < ABSENT_S:
            await asyncio.sleep(RETRY_S)
            absent = 0.0 if await self._served() else absent + RETRY_S
        self.foreign = False
        sentence = f"no other device plugin serves {self.resource} any more: Gangshare's plugin serves it from now on"
        await self.tell(OURS, sentence, "Normal")

    async def _served(self) -> bool:
        try:
            return self.resource in await self.kubelet.healthy()
        except PodResourcesError as error:
            log.warning("served_resources_unknown", resource=self.resource, error=str(error))
            return False

    async def _register(self) -> None:
        path = await self.endpoint.start(self.folder)
        request = api.RegisterRequest(
            version=VERSION, endpoint=path.name, resource_name=self.resource, options=self.endpoint.options
        )
        options = [("grpc.default_authority", "localhost")]
        try:
            async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=options) as channel:
                await rpc.RegistrationStub(channel).Register(request, timeout=ANSWER_S)
        except grpc.aio.AioRpcError as error:
            said = f"{error.code().name} {error.details()}"
            raise ServeError(f"the kubelet at {self._socket} refused {self.resource}: {said}") from error
        self.metrics.registrations.labels(self.resource).inc()
        log.info("registered", resource=self.resource, socket=path.name)

    async def _followed(self, stamp: files.Stamp) -> bool:
        """Wait until the registration has no effect any more; returns whether the kubelet has restarted."""
        clock = asyncio.get_running_loop().time
        followed_at = clock()
        while clock() - followed_at < UNFOLLOWED_S:
            await asyncio.sleep(LOOK_S)
            gone = self.endpoint.socket is None or not self.endpoint.socket.exists()
            if files.stamp(self._socket) not in (stamp, None) or gone:
                return True
            if self.endpoint.streams:
                followed_at = clock()
        return False


def sweep(folder: Path) -> None:
    """Remove sockets of ours that no process serves any more."""
    for path in folder.glob(f"{SOCKET_PREFIX}*.sock"):
        sockets.sweep(path)

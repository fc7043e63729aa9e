"""Serves PodResources v1 on a socket of our own, with the true GPUs of each container: for dcgm-exporter.

Only List: as with a kubelet that lacks the others, they are unimplemented. The socket is there while its answer is
true, since dcgm-exporter goes on without pods where there is none, and fails where nobody answers.
"""

import asyncio
import contextlib
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import grpc
import structlog

from deviceplugin import holdings, sockets
from deviceplugin.candidates import Name
from deviceplugin.cluster import Cluster
from deviceplugin.metrics import Metrics
from deviceplugin.offer import Offer
from deviceplugin.podresources import PodResources, PodResourcesError
from deviceplugin.record import Record
from protos.kubelet.podresources.v1 import podresources_v1_pb2 as api
from protos.kubelet.podresources.v1 import podresources_v1_pb2_grpc as rpc

log = structlog.get_logger()

MODE = 0o660
"""The answer names pods of all tenants: root and its group alone may ask. dcgm-exporter runs as root."""
LOOK_S = 2.0
"""Seconds between two looks whether the socket is still there."""
FRESH_S = 1.0
"""An answer is given to all who ask within this time: the kubelet's limit of questions is shared with Allocate."""
ONLY_LIST = "expected List: ask the kubelet for the rest"
Context = grpc.aio.ServicerContext[Any, Any]
OPTIONS = [("grpc.max_receive_message_length", 4096)]
"""A question has three words at most."""
CALLS = 16
"""Calls at a time; more are refused."""


class TrueList(rpc.PodResourcesListerServicer):
    """The server. `run` is its life."""

    def __init__(
        self,
        socket: Path,
        kubelet: PodResources,
        cluster: Cluster,
        record: Record,
        offer: Offer,
        metrics: Metrics,
        true: Callable[[str], str] = str,
    ) -> None:
        """`true` makes UUIDs of the names of MIG instances that are made on demand."""
        self.socket, self.kubelet, self.cluster, self.record = socket, kubelet, cluster, record
        self.offer, self.metrics, self._true = offer, metrics, true
        self._server: grpc.aio.Server | None = None
        self._inode: int | None = None
        """That of our socket; others may change its owner."""
        self._turn = asyncio.Lock()
        self._answer, self._made_at = api.ListPodResourcesResponse(), -inf
        self._failure = ""

    async def run(self) -> None:
        """Serve for ever, once the pods of the node are known."""
        sockets.sweep(self.socket)
        await self.cluster.pods_listed.wait()
        try:
            while True:
                if self._server is None or _inode(self.socket) != self._inode:
                    await self._listen()
                await asyncio.sleep(LOOK_S)
        finally:
            await self._stop()

    async def List(self, _request: api.ListPodResourcesRequest, _context: Context) -> api.ListPodResourcesResponse:
        clock = asyncio.get_running_loop().time
        async with self._turn:
            if clock() - self._made_at > FRESH_S:
                self._answer, self._made_at = await self._made(), clock()
        return self._answer

    async def GetAllocatableResources(
        self, _request: api.AllocatableResourcesRequest, context: Context
    ) -> api.AllocatableResourcesResponse:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, ONLY_LIST)

    async def Get(self, _request: api.GetPodResourcesRequest, context: Context) -> api.GetPodResourcesResponse:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, ONLY_LIST)

    async def _made(self) -> api.ListPodResourcesResponse:
        try:
            listed = await self.kubelet.pods()
        except PodResourcesError as error:
            log.warning("pod_resources_without_kubelet", error=str(error))
            pods = holdings.alone(self._held())
        else:
            pods = holdings.corrected(listed, self._held(), self.offer.sharing.resources)
        answer = holdings.fitting(pods)
        left_out = len(pods) - len(answer.pod_resources)
        self.metrics.pod_resources.labels("short" if left_out else "whole").inc()
        if left_out:
            log.warning("pod_resources_too_long", pods=len(pods), left_out=left_out)
        return answer

    def _held(self) -> dict[Name, holdings.Ids]:
        found = {}
        for name, pod in self.cluster.pods.items():
            uid = pod.metadata.uid
            if self.record.refused(uid):
                continue
            try:
                given = {name: tuple(map(self._true, own)) for name, own in self.record.given(uid).items()}
                ids = holdings.ids(pod, given, self.offer.inventory, self.offer.sharing.resources)
            except Exception:  # one pod must not take the labels of all others
                log.exception("holdings_failed", pod="/".join(name), uid=uid)
                continue
            if ids:
                found[name] = ids
        return found

    async def _listen(self) -> None:
        """Serve on the socket, which appears at once with its mode; a failure is logged and tried again."""
        await self._stop()
        try:
            self._server = await self._serve()
            self._inode, self._failure = _inode(self.socket), ""
            log.info("pod_resources_served", socket=str(self.socket))
        except (OSError, RuntimeError) as error:
            if str(error) != self._failure:
                self._failure = str(error)
                log.warning("pod_resources_not_served", socket=str(self.socket), error=self._failure)

    async def _serve(self) -> grpc.aio.Server:
        """A server on our socket; raises OSError and RuntimeError."""
        sockets.sweep(self.socket)
        if self.socket.exists():
            raise FileExistsError(f"{self.socket} is served by another process, or is no socket")
        unfinished = self.socket.with_name(f"{self.socket.name}{sockets.UNFINISHED}")
        server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=CALLS)
        rpc.add_PodResourcesListerServicer_to_server(self, server)
        try:
            server.add_insecure_port(f"unix:{unfinished}")
            unfinished.chmod(MODE)
            await server.start()
            unfinished.rename(self.socket)
        except BaseException:
            await server.stop(None)
            raise
        return server

    async def _stop(self) -> None:
        """Remove the socket if it is ours, and end the server."""
        server, self._server = self._server, None
        if server is None:
            return
        with contextlib.suppress(OSError):
            if _inode(self.socket) == self._inode:
                self.socket.unlink()
        await server.stop(grace=0.2)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None

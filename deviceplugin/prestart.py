"""Before a container starts: what must be done or waited for, so that it has its limits from its first call of CUDA.

The kubelet asks with the container's device IDs (PreStartContainer), after it has made the pod's control group, at each
start and restart. If a step fails, the container does not start, and the kubelet asks again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

import structlog

from deviceplugin.cluster import Cluster
from deviceplugin.identify import RefusedError
from deviceplugin.record import Record
from protos.contract.objects import ENDED, Pod
from protos.contract.reason import Reason

log = structlog.get_logger()

KNOW_S = 8.0
"""Patience at start until the pods of the node are listed. The kubelet waits 30 s."""

Step = Callable[[Pod, str], Awaitable[None]]
"""For a pod and the name of its container; raises RefusedError."""


class PreStart:
    """The steps before the start of a container, for one kind of resource."""

    def __init__(self, cluster: Cluster, record: Record, steps: Sequence[Step]) -> None:
        self._cluster, self._record, self._steps = cluster, record, steps

    async def start(self, resource: str, ids: Collection[str]) -> None:
        """Take the steps for the container that has these devices; raises RefusedError."""
        for pod, container in await self._found(resource, ids):
            for step in self._steps:
                try:
                    await step(pod, container)
                except RefusedError as error:
                    await self._tell(pod, error.reason)
                    raise

    async def _found(self, resource: str, ids: Collection[str]) -> Sequence[tuple[Pod, str]]:
        """Pod and container with these devices: one, unless the kubelet has given devices twice."""
        try:
            async with asyncio.timeout(KNOW_S):
                await self._cluster.pods_listed.wait()
        except TimeoutError as error:
            raise RefusedError(Reason("NodeUnknown", "the pods of this node cannot be listed")) from error
        pods = {pod.metadata.uid: pod for pod in self._cluster.pods.values() if pod.status.phase not in ENDED}
        found = [(pods[uid], name) for uid, name in self._record.having(resource, ids) if uid in pods]
        if not found:
            raise RefusedError(Reason("NodeUnknown", "the plugin does not know yet which pod has these devices"))
        return found

    async def _tell(self, pod: Pod, reason: Reason) -> None:
        log.warning("container_not_started", pod=f"{pod.metadata.namespace}/{pod.metadata.name}", sentence=str(reason))
        await self._cluster.tell(pod, reason.code, str(reason), "Warning")

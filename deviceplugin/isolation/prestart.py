"""Before a container starts: limits the memory of its pod, where the helper does that instead of the toolkit.

The kubelet asks with the container's device IDs (PreStartContainer), after it has made the pod's control group, at each
start and restart. If the limit cannot be set, the container does not start, and the kubelet asks again.
"""

import asyncio
from collections.abc import Collection, Sequence

import structlog

from deviceplugin.cluster import Cluster
from deviceplugin.identify import RefusedError
from deviceplugin.isolation import demands
from deviceplugin.isolation.watch import Watch
from deviceplugin.limits.client import Limits
from deviceplugin.limits.protocol import Limit, LimitError
from deviceplugin.offer import Offer
from deviceplugin.record import Record
from protos.contract.books import NodeBooks
from protos.contract.objects import ENDED, Pod
from protos.contract.reason import Reason

log = structlog.get_logger()

NOT_SET = "LimitNotSet"
KNOW_S = 8.0
"""Patience at start until the pods of the node are listed. The kubelet waits 30 s."""


class PreStart:
    """The limits of pods whose containers are about to start."""

    def __init__(self, cluster: Cluster, record: Record, offer: Offer, watch: Watch, limits: Limits) -> None:
        self._cluster, self._record, self._offer, self._watch, self._limits = cluster, record, offer, watch, limits

    async def start(self, resource: str, ids: Collection[str]) -> None:
        """Set the limits of the pod whose container has these devices; raises RefusedError."""
        for pod in await self._pods(resource, ids):
            ledger = NodeBooks(self._offer.inventory)
            wanted = demands.of_pod(pod, self._record, ledger, self._offer.sharing.resources)
            if not wanted or self._watch.setter == "toolkit":
                continue  # it was given none, or the hook sets it
            try:
                await self._limits.ask(Limit(pod=pod.metadata.uid, mib=wanted))
            except LimitError as error:
                await self._refuse(pod, error)
            log.info("pod_limited", pod=f"{pod.metadata.namespace}/{pod.metadata.name}", mib=wanted)

    async def _pods(self, resource: str, ids: Collection[str]) -> Sequence[Pod]:
        """The pods that have these devices: one, unless the kubelet has given devices twice."""
        try:
            async with asyncio.timeout(KNOW_S):
                await self._cluster.pods_listed.wait()
        except TimeoutError as error:
            raise RefusedError(Reason("NodeUnknown", "the pods of this node cannot be listed")) from error
        uids = self._record.having(resource, ids)
        pods = [pod for pod in self._cluster.pods.values() if pod.metadata.uid in uids]
        found = [pod for pod in pods if pod.status.phase not in ENDED]
        if not found:
            raise RefusedError(Reason("NodeUnknown", "the plugin does not know yet which pod has these devices"))
        return found

    async def _refuse(self, pod: Pod, error: LimitError) -> None:
        sentence = "the memory limit of the pod cannot be set, so its container does not start"
        reason = Reason(NOT_SET, sentence, str(error))
        log.warning("limit_not_set", pod=f"{pod.metadata.namespace}/{pod.metadata.name}", error=str(error))
        await self._cluster.tell(pod, reason.code, str(reason), "Warning")
        raise RefusedError(reason) from error

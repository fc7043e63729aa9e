"""Evicts a pod whose container runs without its memory limit, where the operator wants that.

The right for it comes with components/isolation-evict alone. A pod that a disruption budget guards stays until its next
check.
"""

import structlog

from deviceplugin.cluster import Cluster
from protos.contract.objects import Pod
from protos.kube import errors, paths

log = structlog.get_logger()

EVICTED, FORBIDDEN = "IsolationEvicted", "IsolationEvictForbidden"
REMEDY = "add components/isolation-evict to the installation, or use --on-isolation-mismatch=report"


class Evictor:
    """Evictions of this node's pods, through the API that respects disruption budgets."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._forbidden = False

    async def evict(self, pod: Pod, why: str) -> None:
        """Evict the pod, unless it is already on its way out."""
        meta = pod.metadata
        if meta.deletion_timestamp is not None:
            return
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"preconditions": {"uid": meta.uid}},
        }
        try:
            await self._cluster.client.post(paths.pod(meta.namespace, meta.name, "eviction"), body)
        except (errors.NotFound, errors.Conflict):
            return
        except errors.Forbidden:
            await self._tell_forbidden()
            return
        except errors.ApiError as error:
            log.warning("eviction_failed", pod=f"{meta.namespace}/{meta.name}", error=str(error))
            return
        self._forbidden = False
        await self._cluster.tell(pod, EVICTED, f"evicted: {why}", "Warning")

    async def _tell_forbidden(self) -> None:
        """Tell once that the plugin lacks the right."""
        before, self._forbidden = self._forbidden, True
        if not before:
            sentence = f"the plugin may not evict pods that lack their memory limit: {REMEDY}"
            await self._cluster.tell_node(FORBIDDEN, sentence, "Warning")

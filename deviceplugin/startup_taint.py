"""Removes the startup taint from this node once it offers its GPUs.

A new node is Ready before the plugin runs there. Until then it lacks the GPUs that its group promises, and an
autoscaler would add one more node for the same pods. With the taint the node counts as not started: to Cluster
Autoscaler by the key's prefix or its `--startup-taint`, to Karpenter by the NodePool's `startupTaints`.
"""

import asyncio
from collections.abc import Callable

import structlog

from deviceplugin.cluster import Cluster
from protos.contract import codec, inventory, names, quantity
from protos.contract.objects import Node, Taint
from protos.kube import errors

log = structlog.get_logger()

LOOK_S, RETRY_S = 1.0, 5.0
"""Seconds between two looks, and after an error."""


class StartupTaint:
    """Removes one taint, whenever the node has it and offers its GPUs."""

    def __init__(self, cluster: Cluster, key: str, resource: str, settled: Callable[[], bool]) -> None:
        """`resource` is that of GPU memory; `settled` says whether the kubelet follows every resource that we serve."""
        self._cluster, self._key, self._resource, self._settled = cluster, key, resource, settled

    async def run(self) -> None:
        """Look for ever: a node that is made anew under its name has the taint again."""
        while True:
            try:
                await self._look()
                await asyncio.sleep(LOOK_S)
            except errors.ApiError as error:
                log.warning("startup_taint_not_removed", taint=self._key, error=str(error))
                await asyncio.sleep(RETRY_S)

    async def _look(self) -> None:
        node = self._cluster.node
        taint = tainted(node, self._key) if node is not None else None
        if node is None or taint is None or not self._settled() or not offers(node, self._resource):
            return
        await self._cluster.remove_taint(node, taint)
        log.info("startup_taint_removed", taint=self._key)


def tainted(node: Node, key: str) -> Taint | None:
    """The node's taint with this key."""
    return next((taint for taint in node.spec.taints if taint.key == key), None)


def offers(node: Node, resource: str) -> bool:
    """Whether the node's inventory is published, and its kubelet has told of GPU memory that pods may request."""
    try:
        published = inventory.decode(node.metadata.annotations.get(names.GPUS))
    except codec.ContractError:
        return False
    ready = published is not None and published.state == "ready"
    return ready and quantity.integer_or_zero(node.status.allocatable.get(resource, 0)) > 0

"""Writes the inventory to the node: when it changes, at most every ten seconds, but losses at once.

The node says `leaving` while the kubelet does not follow our device lists, and when the plugin stops. The extender
binds no new pods to such a node.
"""

import asyncio
from collections.abc import Callable
from typing import Literal

import msgspec
import structlog

from deviceplugin.cluster import Cluster
from deviceplugin.metrics import Metrics
from deviceplugin.offer import Offer
from protos.contract import codec, inventory, mig, names
from protos.contract.inventory import HEALTHY, Inventory
from protos.kube import errors

log = structlog.get_logger()

State = Literal["ready", "leaving"]
PAUSE_S = 10.0
GRACE_S = 3.0
"""Seconds that a registration may be missing before the node says `leaving`."""
LOOK_S = 0.2
RETRY_S = 1.0


class Publisher:
    """Keeps the node annotation `gangshare.io/gpus` up to date."""

    def __init__(self, cluster: Cluster, offer: Offer, metrics: Metrics, settled: Callable[[], bool]) -> None:
        """`settled` says whether the kubelet follows every resource that we serve."""
        self.cluster, self.offer, self.metrics, self.settled = cluster, offer, metrics, settled
        self.leaving = False
        self._written_at = -PAUSE_S
        self._settled_at = 0.0
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Publish for ever."""
        self._settled_at = asyncio.get_running_loop().time()
        while True:
            try:
                await self._look()
                await asyncio.sleep(LOOK_S)
            except errors.ApiError as error:
                log.warning("inventory_not_written", error=str(error))
                await asyncio.sleep(RETRY_S)

    async def leave(self) -> None:
        """Publish that this node takes no new pods."""
        self.leaving = True
        try:
            await self._write("leaving")
        except errors.ApiError as error:
            log.warning("inventory_not_written", error=str(error))

    async def _look(self) -> None:
        now, node, settled = asyncio.get_running_loop().time(), self.cluster.node, self.settled()
        if settled:
            self._settled_at = now
        state: State = "ready" if now - self._settled_at < GRACE_S else "leaving"
        if node is None or self.leaving or (state == "ready" and not settled):
            return
        wanted = msgspec.structs.replace(self.offer.inventory, state=state)
        shown = node.metadata.annotations.get(names.GPUS)
        amounts = (node.status.capacity, node.status.allocatable)
        counted = all(str(each.get(key)) == n for each in amounts for key, n in self._resources(wanted).items())
        if shown == inventory.encode(wanted) and counted:
            return
        if now - self._written_at >= PAUSE_S or urgent(shown, wanted):
            await self._write(state)

    def _resources(self, wanted: Inventory) -> dict[str, str]:
        """Amounts in the node's status that gpushare's users read."""
        count = sum(not gpu.profile for gpu in wanted.gpus)
        return {names.ALIYUN_COUNT: str(count)} if self.offer.sharing.gpushare else {}

    async def _write(self, state: State) -> None:
        """Write the inventory of this moment. Writes run one at a time: `ready` must not arrive after `leaving`."""
        async with self._turn:
            if self.leaving and state != "leaving":
                return
            wanted = msgspec.structs.replace(self.offer.inventory, state=state)
            self._written_at = asyncio.get_running_loop().time()
            await self.cluster.patch_node({names.GPUS: inventory.encode(wanted)}, self._resources(wanted))
            self.metrics.publications.inc()
            sick = [f"{mig.shown(gpu.index)} {gpu.health}" for gpu in wanted.gpus if gpu.health != HEALTHY]
            log.info("inventory_written", state=wanted.state, gpus=len(wanted.gpus), sick=sick)


def urgent(shown: str | None, wanted: Inventory) -> bool:
    """Whether to publish at once: the state or what can be made changed, or isolation or a healthy GPU was lost."""
    try:
        before = inventory.decode(shown)
    except codec.ContractError:
        return True
    if before is None or before.state != wanted.state:
        return True
    if before.enforced.memory and not wanted.enforced.memory:
        return True
    if before.layouts != wanted.layouts:
        return True
    healthy = {gpu.uuid for gpu in wanted.gpus if gpu.health == HEALTHY}
    return any(gpu.health == HEALTHY and gpu.uuid not in healthy for gpu in before.gpus)

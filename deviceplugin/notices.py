"""What is wrong with what an operator wrote on the node, told in Events where no extender tells it."""

from deviceplugin.cluster import Cluster
from deviceplugin.offer import Offer
from protos.contract import cordon, mistakes, names
from protos.contract.reason import Reason


class NodeNotices:
    """Tells each mistake once, as long as it stays."""

    def __init__(self, cluster: Cluster, offer: Offer) -> None:
        self._cluster, self._offer = cluster, offer
        self._told: tuple[Reason, ...] = ()

    async def tell(self) -> None:
        """Post what is new."""
        if self._cluster.node is None:
            return
        metadata = self._cluster.node.metadata
        cordoned = cordon.unreadable(metadata.annotations.get(names.CORDONED_GPUS, ""), self._offer.inventory)
        found = (cordoned, mistakes.of_node(metadata.annotations, metadata.labels))
        before, self._told = self._told, tuple(reason for reason in found if reason is not None)
        for reason in self._told:
            if reason not in before:
                await self._cluster.tell_node(reason.code, str(reason), "Warning")

"""What an operator wrote on the node in vain is told once."""

from typing import Any

from deviceplugin.devices import Sharing
from deviceplugin.notices import NodeNotices
from deviceplugin.offer import Offer
from protos.contract import names
from protos.contract.objects import Node
from tests.builders import a_node
from tests.unit.deviceplugin.builders import a_machine


class Cluster:
    """The node, and the Events about it."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.events: list[str] = []

    async def tell_node(self, reason: str, message: str, kind: str) -> None:
        self.events.append(f"{kind} {reason}: {message}")


async def test_a_cordon_and_a_key_that_cannot_be_read_are_told_once_each() -> None:
    cluster: Any = Cluster()
    offer = Offer(Sharing())
    offer.set(a_machine(16, 16), {}, {})
    notices = NodeNotices(cluster, offer)
    await notices.tell()
    wrong = {names.CORDONED_GPUS: "0,9", "gangshare.io/cordon-gpus": "1"}
    for _ in range(2):
        cluster.node = a_node("n", annotations=wrong)
        await notices.tell()
    cordon = "gangshare.io/cordoned-gpus names '9': expected indexes or UUIDs of GPUs: 0, 1 or their UUIDs"
    key = "the node's annotation gangshare.io/cordon-gpus is not known to Gangshare"
    told = [
        f"Warning CordonUnreadable: {cordon}",
        f"Warning NodeKeyUnknown: {key}: did you mean annotation gangshare.io/cordoned-gpus?",
    ]
    assert cluster.events == told
    cluster.node = a_node("n", annotations={names.CORDONED_GPUS: "0"})
    await notices.tell()
    assert cluster.events == told
    cluster.node = a_node("n", annotations=wrong)
    await notices.tell()
    assert cluster.events == told * 2

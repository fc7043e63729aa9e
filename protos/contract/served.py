"""What a node serves of the request of a container, whatever is free on it."""

from __future__ import annotations

import msgspec

from protos.contract import inventory as inv
from protos.contract.ask import ContainerAsk

ONE_GPU = "MPS gives a container parts of one GPU only"
"""What a node with MPS lacks: a process connects to the server of one GPU."""


def lack(inventory: inv.Inventory, ask: ContainerAsk) -> str:
    """Why the node gives this container no parts of GPUs, whatever is free, in constant words; "" if it does."""
    if ask.isolation != "any" and not inventory.enforced.meets(ask.isolation):
        return inventory.enforced.lack
    one = ask.gpus == 1 or ask.profile or (ask.whole and ask.whole not in inventory.replicas)
    return "" if one or not inventory.enforced.compute else ONE_GPU


def spread_over(ask: ContainerAsk, gpus: int) -> ContainerAsk | None:
    """The same total over this many GPUs; None if it is not divisible, or a whole ask has another number."""
    if gpus == ask.gpus:
        return ask
    mem, slices = ask.mem * ask.gpus, ask.slices * ask.gpus
    if ask.whole or not gpus or mem % gpus or slices % gpus:
        return None
    return msgspec.structs.replace(ask, gpus=gpus, mem=mem // gpus, slices=slices // gpus)

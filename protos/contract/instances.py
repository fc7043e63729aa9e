"""What requests take of MIG instances: an instance has one holder, which gets all of it."""

from __future__ import annotations

from protos.contract import mig
from protos.contract.ask import ContainerAsk, Demand
from protos.contract.inventory import Gpu, Inventory


def slices_of(gpu: Gpu, per_gpu: int) -> int:
    """The time slices of a GPU of a node with so many for each; an instance has its part of them."""
    return per_gpu * gpu.slices // mig.SLICES if gpu.mig else per_gpu


def of_instance(ask: ContainerAsk, gpu: Gpu, inventory: Inventory) -> Demand | None:
    """All of the instance if it satisfies the container, else None; also for a GPU that is no instance.

    A request without a profile gets one instance only, since instances have no access to each other's memory.
    """
    if not gpu.mig or ask.profile not in ("", gpu.mig):
        return None
    if not ask.profile:
        alone = ask.gpus == 1 if not ask.whole else inventory.single and ask.whole not in inventory.replicas
        if not alone or ask.shared:
            return None
    slices = slices_of(gpu, inventory.slices_per_gpu)
    return Demand(gpu.mem, slices, True) if ask.mem <= gpu.mem and ask.slices <= slices else None

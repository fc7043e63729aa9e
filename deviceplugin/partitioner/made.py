"""What containers get of instances that were made for them: their true names and device nodes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from deviceplugin.mig import capabilities
from deviceplugin.partitioner.protocol import Device
from protos.contract.inventory import Gpu, Inventory
from protos.contract.on_demand import OnDemand


class Made(NamedTuple):
    """Instances of one container."""

    gpus: Mapping[str, Gpu] = {}
    """With their UUIDs, by the names of their places."""
    nodes: Mapping[str, Sequence[str]] = {}
    """Their device nodes beside those of their GPUs, by UUID."""


NOTHING_MADE = Made()


def made(inventory: Inventory, devices: Mapping[str, Device]) -> Made:
    """The instances at these places; of one that the node no longer offers only the UUID is known."""
    known = {each.uuid: each for each in OnDemand(inventory).instances}
    gpus, nodes = dict[str, Gpu](), dict[str, Sequence[str]]()
    for name, device in devices.items():
        found = known.get(name)
        gpus[name] = msgspec.structs.replace(found, uuid=device.uuid) if found else Gpu(0, device.uuid, 0)
        if found is not None:
            nodes[device.uuid] = capabilities.nodes(found.minor, device.gi, device.ci)
    return Made(gpus, nodes)

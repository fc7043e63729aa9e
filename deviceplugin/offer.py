"""The GPUs that this node offers now, and a signal for each change."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from deviceplugin import devices
from deviceplugin.devices import Sharing
from deviceplugin.machine import Machine
from deviceplugin.mig import strategy
from deviceplugin.mig.strategy import Strategy
from protos.contract.inventory import HEALTHY, Inventory
from protos.contract.isolation import Isolation
from protos.contract.reason import Reason
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api


class Offer:
    """The inventory and the device lists made from it."""

    def __init__(self, sharing: Sharing) -> None:
        self.sharing = sharing
        self.inventory: Inventory = devices.inventory(Machine(), {}, sharing)
        self.changed = asyncio.Event()
        """Set at the next change, and then replaced by a new event."""
        self.trouble: Reason | None = None
        """Why MIG instances are not offered as the operator wants it, None if they are."""
        self.nodes: Mapping[str, Sequence[str]] = {}
        """The device nodes of MIG instances beside those of their GPUs, by UUID."""
        self._held: Mapping[str, Collection[str]] = {}
        self._lists: dict[str, api.ListAndWatchResponse] = {}

    def set(
        self,
        machine: Machine,
        health: Mapping[str, str],
        held: Mapping[str, Collection[str]],
        isolation: Isolation | None = None,
    ) -> None:
        """Offer this machine; `held` are device IDs that containers hold, by resource.

        Raises TooManyDevicesError, and then the offer stays as it was.
        """
        inventory = devices.inventory(machine, health, self.sharing, isolation)
        live = devices.live(machine, health)
        self.trouble = strategy.not_uniform(live) if self.sharing.mig is Strategy.SINGLE else None
        held = held if any(gpu.health != HEALTHY for gpu in inventory.gpus) else {}
        if inventory == self.inventory and held == self._held and self._lists:
            return
        served = devices.resources(inventory, self.sharing)
        lists = {r: devices.devices(r, inventory, self.sharing, held.get(r, ())) for r in served}
        self.inventory, self._held, self._lists = inventory, held, lists
        self.nodes = {gpu.uuid: gpu.nodes for gpu in machine.gpus if gpu.nodes}
        self.changed.set()
        self.changed = asyncio.Event()

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources to register with the kubelet."""
        return devices.resources(self.inventory, self.sharing)

    def devices(self, resource: str) -> api.ListAndWatchResponse:
        """All devices of a resource, for the kubelet."""
        return self._lists.get(resource, api.ListAndWatchResponse())

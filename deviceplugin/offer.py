"""The GPUs that this node offers now, and a signal for each change."""

import asyncio
from collections.abc import Collection, Mapping

from deviceplugin import devices
from deviceplugin.devices import Sharing
from deviceplugin.machine import Machine
from protos.contract.inventory import HEALTHY, Inventory
from protos.contract.isolation import Isolation
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api


class Offer:
    """The inventory and the device lists made from it."""

    def __init__(self, sharing: Sharing) -> None:
        self.sharing = sharing
        self.inventory: Inventory = devices.inventory(Machine(), {}, sharing)
        self.changed = asyncio.Event()
        """Set at the next change, and then replaced by a new event."""
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
        held = held if any(gpu.health != HEALTHY for gpu in inventory.gpus) else {}
        if inventory == self.inventory and held == self._held and self._lists:
            return
        lists = {r: devices.devices(r, inventory, self.sharing, held.get(r, ())) for r in self.sharing.served}
        self.inventory, self._held, self._lists = inventory, held, lists
        self.changed.set()
        self.changed = asyncio.Event()

    def devices(self, resource: str) -> api.ListAndWatchResponse:
        """All devices of a resource, for the kubelet."""
        return self._lists.get(resource, api.ListAndWatchResponse())

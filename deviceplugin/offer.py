"""What this node offers at this moment, and word to those who wait for a change of it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from deviceplugin import devices
from deviceplugin.devices import Sharing
from deviceplugin.machine import Machine
from protos.contract.inventory import HEALTHY, Inventory
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api


class Offer:
    """The inventory and the device lists made of it."""

    def __init__(self, sharing: Sharing) -> None:
        self.sharing = sharing
        self.inventory: Inventory = devices.inventory(Machine(), {}, sharing)
        self.known = asyncio.Event()
        """Set once the machine was read, or could not be."""
        self.changed = asyncio.Event()
        """Set at the next change; take it anew after each."""
        self._taken: Mapping[str, Collection[str]] = {}
        self._lists: dict[str, api.ListAndWatchResponse] = {}

    def set(self, machine: Machine, health: Mapping[str, str], taken: Mapping[str, Collection[str]]) -> None:
        """Offer this machine; `taken` are device IDs that containers hold, by resource.

        Raises TooManyDevicesError, and then offers what it did before.
        """
        found = devices.inventory(machine, health, self.sharing)
        taken = taken if any(gpu.health != HEALTHY for gpu in found.gpus) else {}
        self.known.set()
        if found == self.inventory and taken == self._taken and self._lists:
            return
        lists = {r: devices.devices(r, found, self.sharing, taken.get(r, ())) for r in self.sharing.served}
        self.inventory, self._taken, self._lists = found, taken, lists
        waiting, self.changed = self.changed, asyncio.Event()
        waiting.set()

    def devices(self, resource: str) -> api.ListAndWatchResponse:
        """All devices of a resource, as the kubelet is told."""
        return self._lists.get(resource, api.ListAndWatchResponse())

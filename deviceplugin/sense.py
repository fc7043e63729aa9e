"""Watches the machine: readings and errors come in, the offer follows."""

from __future__ import annotations

import asyncio
from collections import Counter

import structlog

from deviceplugin.health import Health
from deviceplugin.machine import Machine, Source, SourceError, Xid
from deviceplugin.metrics import Metrics
from deviceplugin.offer import Offer
from deviceplugin.podresources import PodResources, PodResourcesError
from protos.contract.inventory import HEALTHY, Inventory

log = structlog.get_logger()

POLL_S = 1.0
"""Longest wait for an error; how soon the loop can end."""


class Senses:
    """One reader of one source. Blocking calls run in a worker thread, one at a time."""

    def __init__(self, source: Source, health: Health, offer: Offer, kubelet: PodResources, metrics: Metrics) -> None:
        self.source, self.health, self.offer, self.kubelet, self.metrics = source, health, offer, kubelet, metrics
        self._machine = Machine()
        self._taken: dict[str, set[str]] = {}
        self._trouble = ""
        self._logged: dict[str, str] = {}

    async def run(self) -> None:
        """Watch for ever."""
        clock = asyncio.get_running_loop().time
        due = clock() + self.source.period
        while True:
            xids = await asyncio.to_thread(self.source.poll, min(POLL_S, self.source.period))
            if xids or clock() >= due:
                due = clock() + self.source.period
                await self.read(xids)

    async def read(self, xids: list[Xid]) -> None:
        """Read the machine once, and offer what it is; raises TooManyDevicesError."""
        now = asyncio.get_running_loop().time()
        try:
            found = await asyncio.to_thread(self.source.read)
        except SourceError as error:
            self._note_trouble(str(error))
            self.health.silent("driver-silent", now)
        else:
            self._note_trouble("")
            self._machine = self.health.step(found, xids, now)
        health = {gpu.uuid: self.health.of(gpu) for gpu in self._machine.gpus}
        if any(word != HEALTHY for word in health.values()):
            await self._look_who_holds()
        self.offer.set(self._machine, health, self._taken)
        self._report(self.offer.inventory)

    async def _look_who_holds(self) -> None:
        """Note the device IDs that containers hold; what was known stays where the kubelet does not tell."""
        try:
            listed = await self.kubelet.list()
        except PodResourcesError as error:
            log.warning("devices_held_unknown", error=str(error))
            return
        found: dict[str, set[str]] = {}
        for pod in listed:
            for held in pod.devices.values():
                for resource, ids in held.items():
                    found.setdefault(resource, set()).update(ids)
        self._taken = found

    def _note_trouble(self, trouble: str) -> None:
        if trouble != self._trouble and trouble:
            log.warning("machine_not_read", why=trouble)
        self._trouble = trouble

    def _report(self, inventory: Inventory) -> None:
        health = {gpu.uuid: gpu.health for gpu in inventory.gpus}
        if health == self._logged:
            return
        for gpu in inventory.gpus:
            before = self._logged.get(gpu.uuid)
            if before != gpu.health:
                log.info("gpu", index=gpu.index, uuid=gpu.uuid, model=gpu.model, mem=gpu.mem, health=gpu.health)
        self._logged = health
        self.metrics.gpus.clear()
        for word, count in Counter(text.partition(":")[0] for text in health.values()).items():
            self.metrics.gpus.labels(word).set(count)

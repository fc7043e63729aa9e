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
"""Longest wait for an error, and the pause after one; how soon the loop can end."""
HANG_S = 30.0
"""A reading that takes longer is taken for silence, until it ends."""


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
        clock, pause = asyncio.get_running_loop().time, min(POLL_S, self.source.period)
        due = clock() + self.source.period
        while True:
            heard = await asyncio.to_thread(self.source.poll, pause)
            xids = [xid for xid in heard if xid.code not in self.health.ignored]
            if xids or clock() >= due:
                await self.read(xids)
                due = clock() + self.source.period
            for xid in heard:
                log.info("xid", gpu=xid.uuid, code=xid.code, ignored=xid not in xids)
            if heard:
                await asyncio.sleep(pause)  # errors come in storms

    async def read(self, xids: list[Xid]) -> None:
        """Read the machine once, and offer what it is; raises TooManyDevicesError."""
        clock = asyncio.get_running_loop().time
        reading = asyncio.ensure_future(asyncio.to_thread(self.source.read))
        while not (await asyncio.wait([reading], timeout=HANG_S))[0]:
            await self._silent(f"no answer in {HANG_S:g} s", clock())
        try:
            self._machine = self.health.step(await reading, xids, clock())
        except SourceError as error:
            await self._silent(str(error), clock())
        else:
            self._trouble = ""
            await self._offer()

    async def _silent(self, why: str, now: float) -> None:
        """The machine does not answer: all of it is sick."""
        if why != self._trouble:
            log.warning("machine_not_read", why=why)
        self._trouble = why
        self.health.silent("driver-silent", now)
        await self._offer()

    async def _offer(self) -> None:
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

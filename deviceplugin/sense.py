"""Watches the machine: reads GPUs and errors, and updates the offer."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

import structlog

from deviceplugin.cluster import Kind
from deviceplugin.health import Health
from deviceplugin.isolation.watch import Watch
from deviceplugin.machine import Machine, Source, SourceError, Xid
from deviceplugin.metrics import Metrics
from deviceplugin.offer import Offer
from deviceplugin.podresources import PodResources, PodResourcesError
from protos.contract import mig
from protos.contract.inventory import HEALTHY, Inventory
from protos.contract.reason import Reason

log = structlog.get_logger()
T = TypeVar("T")
Tell = Callable[[str, str, Kind], Awaitable[None]]
"""Posts an Event: its reason, message and kind."""

POLL_S = 1.0
"""Longest wait for an error, the pause after an error, and the longest time until the loop can end."""
HANG_S = 30.0
"""While a reading takes longer than this, the machine counts as silent."""


class Senses:
    """Reads one source. Its blocking calls run in a worker thread, one at a time."""

    def __init__(
        self,
        source: Source,
        health: Health,
        offer: Offer,
        kubelet: PodResources,
        metrics: Metrics,
        tell: Tell,
        isolation: Watch,
    ) -> None:
        """`tell` posts an Event about the node."""
        self.source, self.health, self.offer, self.kubelet, self.metrics = source, health, offer, kubelet, metrics
        self._isolation = isolation
        self.in_use: Callable[[], Collection[str]] = frozenset
        """The UUIDs of the GPUs that pods hold; the plugin sets it."""
        self._turn = asyncio.Lock()
        self._tell = tell
        self._told: tuple[Reason | None, ...] = (source.trouble,)
        self._machine = Machine()
        self._held: dict[str, set[str]] = {}
        """Device IDs that containers hold, by resource, as last seen while a GPU was not healthy."""
        self._trouble = ""
        self._logged: dict[str, str] = {}

    async def run(self) -> None:
        """Watch for ever."""
        clock, pause = asyncio.get_running_loop().time, min(POLL_S, self.source.period)
        due = clock() + self.source.period
        while True:
            reported = await self.call(lambda: self.source.poll(pause))
            xids = [xid for xid in reported if xid.code not in self.health.ignored]
            if xids or clock() >= due:
                await self.read(xids)
                due = clock() + self.source.period
            for xid in reported:
                log.info("xid", gpu=xid.uuid, code=xid.code, ignored=xid not in xids)
            if reported:
                await asyncio.sleep(pause)  # errors come in storms

    async def read(self, xids: list[Xid]) -> None:
        """Read the machine once and update the offer; raises TooManyDevicesError."""
        clock = asyncio.get_running_loop().time
        reading = asyncio.ensure_future(self.call(self.source.read))
        while not (await asyncio.wait([reading], timeout=HANG_S))[0]:
            await self._silent(f"no answer in {HANG_S:g} s", clock())
        try:
            self._machine = self.health.step(await reading, xids, clock(), self.in_use())
        except SourceError as error:
            await self._silent(str(error), clock())
        else:
            self._trouble = ""
            await self._isolation.look(self._machine)
            await self.update()
        await self._tell_trouble()

    async def call(self, work: Callable[[], T]) -> T:
        """Run a blocking call of the source, when no other runs."""
        async with self._turn:
            return await asyncio.to_thread(work)

    async def _tell_trouble(self) -> None:
        """Post what is wrong with the operator's description of the machine, or with its MIG instances, once."""
        before, self._told = self._told, (self.source.trouble, self.offer.trouble)
        for trouble in self._told:
            if trouble is not None and trouble not in before:
                await self._tell(trouble.code, str(trouble), "Warning")

    async def _silent(self, why: str, now: float) -> None:
        """Mark all GPUs sick, since the machine does not answer."""
        if why != self._trouble:
            log.warning("machine_not_read", why=why)
        self._trouble = why
        self.health.silent("driver-silent", now)
        await self.update()

    async def update(self) -> None:
        """Update the offer by the last reading and the isolation in force; raises TooManyDevicesError."""
        health = {gpu.uuid: self.health.of(gpu) for gpu in self._machine.gpus}
        if any(state != HEALTHY for state in health.values()):
            await self._read_held()
        self.offer.set(self._machine, health, self._held, self._isolation.now)
        self.metrics.count_mps(self._machine.mps)
        self._report(self.offer.inventory)

    async def _read_held(self) -> None:
        """Note the device IDs that containers hold; if the kubelet does not answer, the last ones stay."""
        try:
            listed = await self.kubelet.list()
        except PodResourcesError as error:
            log.warning("devices_held_unknown", error=str(error))
            return
        self._held = {}
        for pod in listed:
            for devices in pod.devices.values():
                for resource, ids in devices.items():
                    self._held.setdefault(resource, set()).update(ids)

    def _report(self, inventory: Inventory) -> None:
        health = {gpu.uuid: gpu.health for gpu in inventory.gpus}
        if health == self._logged:
            return
        self.metrics.count_gpus(inventory)
        for gpu in inventory.gpus:
            if self._logged.get(gpu.uuid) != gpu.health:
                about = {"profile": gpu.profile} if gpu.profile else {}
                log.info(
                    "gpu",
                    index=mig.shown(gpu.index),
                    uuid=gpu.uuid,
                    model=gpu.model,
                    mem=gpu.mem,
                    health=gpu.health,
                    **about,
                )
        self._logged = health

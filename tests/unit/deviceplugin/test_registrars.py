"""Resources come and go with the profiles of the node."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from deviceplugin import registrars
from deviceplugin.devices import Sharing
from deviceplugin.machine import Machine
from deviceplugin.mig.strategy import Strategy
from deviceplugin.offer import Offer
from deviceplugin.registrars import Registrars
from protos.contract import names
from tests.unit.deviceplugin.builders import a_split_machine

ALWAYS = {names.GPU_MEM, names.GPU_SLICE, names.WHOLE_GPU}
SMALL, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


class Registrar:
    """A registrar that only runs."""

    def __init__(self, resource: str, running: set[str]) -> None:
        self.resource, self.running = resource, running
        self.foreign, self.settled = False, True

    async def run(self) -> None:
        self.running.add(self.resource)
        try:
            await asyncio.Event().wait()
        finally:
            self.running.discard(self.resource)


class World:
    """An offer, and what runs for it."""

    def __init__(self) -> None:
        self.offer = Offer(Sharing(mig=Strategy.MIXED))
        self.running: set[str] = set()
        self.made: dict[str, Registrar] = {}
        self.registrars = Registrars(self.offer, self.make)

    def make(self, resource: str) -> Any:
        self.made[resource] = Registrar(resource, self.running)
        return self.made[resource]

    def has(self, *profiles: str) -> None:
        machine = a_split_machine(*profiles) if profiles else Machine()
        self.offer.set(machine, {gpu.uuid: "mig" for gpu in machine.gpus if gpu.mig}, {})

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    world = World()
    task = asyncio.create_task(world.registrars.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not world.running


async def test_a_resource_is_registered_while_its_profile_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registrars, "SETTLE_S", 0.0)
    async with a_world() as world:
        await world.until(lambda: world.running == ALWAYS)
        world.has("1g.10gb", "3g.40gb")
        await world.until(lambda: world.running == {*ALWAYS, SMALL, LARGE})
        world.has("3g.40gb")
        await world.until(lambda: world.running == {*ALWAYS, LARGE})
        before = world.made[LARGE]
        world.has("1g.10gb", "3g.40gb")
        await world.until(lambda: world.running == {*ALWAYS, SMALL, LARGE})
        assert world.made[LARGE] is before


async def test_a_resource_of_another_plugin_is_not_ours_and_all_must_settle() -> None:
    async with a_world() as world:
        world.has("1g.10gb")
        await world.until(lambda: world.running == {*ALWAYS, SMALL})
        assert world.registrars.settled
        assert world.registrars.ours == {*ALWAYS, SMALL}
        world.made[SMALL].foreign = True
        assert world.registrars.ours == ALWAYS
        world.made[SMALL].settled = False
        found = world.registrars.settled
        assert not found

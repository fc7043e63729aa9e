"""The machine is watched: readings, errors, and a driver that says nothing."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from deviceplugin import sense
from deviceplugin.devices import Sharing
from deviceplugin.health import Health
from deviceplugin.machine import Machine, MemoryLimit, Xid
from deviceplugin.metrics import Metrics
from deviceplugin.mig.strategy import Strategy
from deviceplugin.offer import Offer
from deviceplugin.podresources import PodResources
from deviceplugin.sense import Senses
from protos.contract.reason import Reason
from tests.unit.deviceplugin.builders import a_machine, a_split_machine, a_watch


class Source:
    """A machine that a test makes up."""

    period = 3600.0

    def __init__(self) -> None:
        self.readings = self.polls = 0
        self.trouble: Reason | None = None
        self.events: list[str] = []
        self.xids: Callable[[], list[Xid]] = list
        self.open = threading.Event()
        self.open.set()

    def read(self) -> Machine:
        self.open.wait(20)
        self.readings += 1
        return a_machine(16, 16)

    def poll(self, _timeout: float) -> list[Xid]:
        self.polls += 1
        return self.xids()

    def memory_limit(self, uuid: str, cgroup: str) -> MemoryLimit | None:
        return None

    def close(self) -> None:
        return


@contextlib.asynccontextmanager
async def senses(source: Source, folder: Path) -> AsyncIterator[Senses]:
    kubelet = PodResources(folder / "none.sock")

    async def tell(reason: str, message: str, kind: str) -> None:
        source.events.append(f"{kind} {reason}: {message}")

    made = Senses(source, Health(cool_down=3600), Offer(Sharing()), kubelet, Metrics(), tell, a_watch())
    await made.read([])
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await kubelet.close()


def health(made: Senses) -> list[str]:
    return [gpu.health for gpu in made.offer.inventory.gpus]


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_storm_of_errors_that_do_not_count_costs_no_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sense, "POLL_S", 0.01)
    source = Source()
    source.xids = lambda: [Xid("GPU-0", 31)]
    async with senses(source, tmp_path) as made:
        await until(lambda: source.polls > 10)
        assert source.readings == 1
        assert health(made) == ["ok", "ok"]


async def test_an_error_that_counts_is_read_at_once(tmp_path: Path) -> None:
    source = Source()
    source.xids = lambda: [Xid("GPU-1", 79)]
    async with senses(source, tmp_path) as made:
        await until(lambda: health(made) == ["ok", "sick:xid-79"])
        assert (source.polls, source.readings) == (1, 2)


async def test_a_driver_that_hangs_is_silent_until_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sense, "HANG_S", 0.05)
    source = Source()
    async with senses(source, tmp_path) as made:
        source.open.clear()
        source.xids = lambda: [Xid("GPU-1", 79)]
        await until(lambda: health(made) == ["sick:driver-silent"] * 2)
        source.open.set()
        await until(lambda: source.readings == 2)


async def test_what_is_wrong_with_the_description_of_a_machine_is_told_once(tmp_path: Path) -> None:
    source = Source()
    async with senses(source, tmp_path) as made:
        for trouble in (Reason("ProfileUnreadable", "a"), Reason("ProfileUnreadable", "a"), None, None):
            source.trouble = trouble
            await made.read([])
        assert source.events == ["Warning ProfileUnreadable: a"]
        source.trouble = Reason("ProfileUnreadable", "a", "b")
        await made.read([])
    assert source.events == ["Warning ProfileUnreadable: a", "Warning ProfileUnreadable: a: b"]


async def test_a_node_that_is_not_uniform_is_told_once_for_each_state(tmp_path: Path) -> None:
    source = Source()
    machine = a_split_machine("1g.10gb", "2g.20gb")
    source.read = lambda: machine  # type: ignore[method-assign]
    async with senses(source, tmp_path) as made:
        made.offer.sharing = Sharing(mig=Strategy.SINGLE)
        for _ in range(2):
            await made.read([])
        (told,) = source.events
        assert told.startswith("Warning MigNotUniform: ")
        assert told.endswith("there are instances of 1g.10gb, 2g.20gb")
        machine = a_split_machine("1g.10gb", whole=1)
        await made.read([])
        assert len(source.events) == 2
        machine = a_split_machine("1g.10gb")
        await made.read([])
        assert len(source.events) == 2
        assert made.offer.inventory.single


async def test_an_instance_that_a_pod_holds_stays_when_it_is_destroyed(tmp_path: Path) -> None:
    source = Source()
    machine = a_split_machine("1g.10gb", "1g.10gb")
    source.read = lambda: machine  # type: ignore[method-assign]
    async with senses(source, tmp_path) as made:
        made.in_use = lambda: {"MIG-0-0"}
        machine = a_split_machine()
        await made.read([])
        assert [(gpu.uuid, gpu.health) for gpu in made.offer.inventory.gpus] == [("GPU-0", "mig"), ("MIG-0-0", "gone")]

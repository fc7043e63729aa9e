"""The isolation in force: it follows the driver, falls when a container disproves it, and is told once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deviceplugin.isolation.levels import Mode
from deviceplugin.isolation.probe import Probe
from deviceplugin.isolation.watch import Watch
from deviceplugin.library.levels import Facts as LibraryFacts
from deviceplugin.machine import Machine
from tests.unit.deviceplugin.builders import a_gpu, a_watch


class Node:
    """A host with cgroup v2, and the Events about it."""

    def __init__(self, mode: Mode, groups: Path) -> None:
        (groups / "cgroup.controllers").write_text("")
        (groups / "kubepods").mkdir()
        self.events: list[str] = []
        self.watch: Watch = a_watch(mode, groups, self.tell)

    async def tell(self, reason: str, message: str, kind: str) -> None:
        self.events.append(f"{kind} {reason}: {message}")

    async def look(self, driver: str = "615.1", toolkit: str = "1.20.1", limits: bool = True) -> str:
        """The memory level after a look, once what is new was told."""
        await self.watch.look(Machine(gpus=(a_gpu(),), driver=driver, limits=limits, toolkit=toolkit))
        await self.watch.tell()
        assert self.watch.now is not None
        return self.watch.now.memory


@pytest.fixture(params=[Mode.AUTO, Mode.DRIVER], ids=str)
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    return Node(request.param, tmp_path)


async def test_before_the_first_look_nothing_is_believed(node: Node) -> None:
    assert node.watch.now is not None
    assert (node.watch.now.memory, node.watch.now.why) == ("", "the GPUs of this node were not read yet")


async def test_where_none_is_asked_for_nothing_is_said_of_it(tmp_path: Path) -> None:
    off = Node(Mode.OFF, tmp_path).watch
    await off.look(Machine(driver="615.1", limits=True, toolkit="1.20.1"))
    assert off.now is None
    assert not off.refute("driver", "a container")
    assert off.now is None


async def test_it_follows_the_driver_up_and_down(node: Node) -> None:
    assert await node.look() == "driver"
    assert node.events == []
    assert await node.look("595.1") == ""
    assert await node.look("595.1") == ""
    assert await node.look() == "driver"
    (event,) = node.events
    assert event.startswith(
        "Warning IsolationLacking: parts of this node's GPUs have memory promised, compute promised"
    )
    assert event.endswith("driver 595.1 is older than 615")


async def test_an_operator_who_wants_it_is_told_of_each_reason_once(tmp_path: Path) -> None:
    node = Node(Mode.DRIVER, tmp_path)
    for _ in range(3):
        await node.look("595.1")
    await node.look("595.1", "1.17.0")
    assert len(node.events) == 2
    assert "container toolkit 1.17.0 is older" in node.events[1]


async def test_who_takes_what_there_is_is_not_told_of_less_at_the_start(tmp_path: Path) -> None:
    node = Node(Mode.AUTO, tmp_path)
    assert await node.look("595.1") == ""
    assert node.events == []


async def test_a_container_that_disproves_it_makes_it_fall_until_driver_or_toolkit_change(node: Node) -> None:
    assert not node.watch.refute("driver", "too early")
    assert await node.look() == "driver"
    assert node.watch.refute("driver", "a container runs without its limit")
    assert not node.watch.refute("driver", "a second one")
    assert await node.look() == ""
    assert node.watch.now is not None
    assert node.watch.now.why == "a container runs without its limit"
    assert len(node.events) == 1
    assert await node.look(driver="") == "", "a driver that says nothing is no other driver"
    assert await node.look() == ""
    assert await node.look(toolkit="1.20.2") == "driver"


async def test_what_refutes_the_library_leaves_the_driver_and_counts_once_the_library_is_needed(tmp_path: Path) -> None:
    node = Node(Mode.LIBRARY, tmp_path)
    mark = "1-2-3"

    def facts(machine: Machine) -> LibraryFacts:
        return LibraryFacts(processes=True, mark=mark)

    library: Any = SimpleNamespace(facts=facts)
    node.watch = Watch(Mode.LIBRARY, Probe(tmp_path, None, "", library), node.tell)
    assert await node.look() == "driver"
    assert not node.watch.refute("library", "a container from before runs without it")
    assert await node.look() == "driver"
    assert await node.look("595.1") == ""
    assert node.watch.now is not None
    assert node.watch.now.why.startswith("a container from before runs without it; driver 595.1 is older")
    mark = "4-5-6"
    assert await node.look("595.1") == "library", "another library"

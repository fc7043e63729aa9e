"""The plugin process and the MPS component on one node: containers get pipes and limits, whole GPUs are free of MPS."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal

import pytest

from deviceplugin.mps import exchange
from protos.contract import names
from protos.contract.isolation import Isolation
from tests.contract.deviceplugin.world import Node, a_container, a_node
from tests.unit.deviceplugin.fake_nvml import Gpu
from tests.unit.deviceplugin.mps.conftest import World, quick

__all__ = ["quick"]
LABELS = {names.MPS: "true"}


@pytest.fixture
def folder(quick: None) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="mps", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@contextlib.asynccontextmanager
async def a_node_with_mps(folder: Path, protocol: Literal[2, 3]) -> AsyncIterator[tuple[Node, World]]:
    """A node of four T4 whose plugin and component share a folder."""
    async with a_node("--mps-dir", str(folder), profile="t4x4", labels=LABELS) as node:
        world = World(folder, protocol)
        world.nvml.gpus = [Gpu(index, uuid=uuid) for index, uuid in enumerate(node.uuids)]
        async with world.running():
            for uuid in node.uuids:
                await world.phase("serving", uuid)
            yield node, world


async def test_a_part_gets_the_pipes_and_limits_and_a_whole_gpu_is_free_of_mps(folder: Path) -> None:
    async with a_node_with_mps(folder, 2) as (node, world):
        uuid = node.uuids[1]
        node.bind("part", a_container(mem=4, slices=25), on={"main": (1,)})
        await node.runs("part")
        env = node.env("part")
        assert env["CUDA_MPS_PIPE_DIRECTORY"] == str(exchange.folder_of(folder, uuid) / "pipe")
        assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
        assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
        await node.until(lambda: _isolation(node) is not None, "the level is published")
        assert str(_isolation(node)) == "memory promised, compute capped (cooperative)"
        node.bind("whole", a_container(whole=1), on={"main": (2,)})
        await node.runs("whole")
        assert not [name for name in node.env("whole") if name.startswith("CUDA_MPS")]
        assert not world.nvml.exclusive(node.uuids[2])
        assert world.nvml.exclusive(uuid)
        node.delete("whole")
        await world.phase("serving", node.uuids[2])


async def test_with_namespaces_each_container_sees_its_own_folder(folder: Path) -> None:
    async with a_node_with_mps(folder, 3) as (node, _):
        node.bind("pair", a_container("a", mem=4), a_container("b", mem=4), on={"a": (0,), "b": (0,)})
        await node.runs("pair")
        folders = [node.env("pair", name)["CUDA_MPS_PIPE_DIRECTORY"] for name in "ab"]
        assert len(set(folders)) == 2
        assert all(
            Path(each).is_relative_to(exchange.folder_of(folder, node.uuids[0]) / "pipe" / "gpu") for each in folders
        )
        assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in node.env("pair", "a")


async def test_a_restarted_plugin_knows_who_was_given_the_pipes(folder: Path) -> None:
    async with a_node_with_mps(folder, 2) as (node, world):
        node.bind("part", a_container(mem=4), on={"main": (1,)})
        await node.runs("part")
        (folder / "holders.json").unlink()
        await node.plugin.restart()
        await node.until(
            lambda: node.state == "ready" and (folder / "holders.json").exists(), "the plugin says so again"
        )
        served = await world.phase("serving", node.uuids[1])
        assert len(served.admitted) == 1


async def test_a_wedged_server_makes_its_gpu_sick_and_new_parts_are_refused(folder: Path) -> None:
    async with a_node_with_mps(folder, 2) as (node, world):
        node.bind("old", a_container(mem=4), on={"main": (1,)})
        await node.runs("old")
        world.unkind("wedged", uuid=node.uuids[1])
        await world.phase("wedged", node.uuids[1])
        await node.until(lambda: node.health[1] == "sick:mps server does not answer", "it is sick")
        assert node.health[0] == "ok"
        world.unkind("wedged", on=False, uuid=node.uuids[1])
        await node.until(lambda: node.health[1] == "ok", "it is well again")


async def test_where_the_component_is_missing_parts_are_refused(folder: Path) -> None:
    async with a_node("--mps-dir", str(folder), labels=LABELS) as node:
        node.bind("part", a_container(mem=4), on={"main": (1,)})
        await node.fails("part")
        await node.until(lambda: "MpsNotReady" in node.events("part"), "an Event says so")


def _isolation(node: Node) -> Isolation | None:
    found = node.inventory
    return found.isolation if found and found.isolation and found.isolation.compute else None

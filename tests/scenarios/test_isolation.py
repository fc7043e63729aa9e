"""Isolation of parts: who demands enforced memory runs where the driver enforces it, with its limit, nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml

from extender.sim.kubelet.status import NodeSpec
from protos.contract import names
from tests.scenarios import embedded, gangs
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import mem, on, phase, refused_with, run, seat

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIMITS, PLAIN = "node-limits", "node-plain"
"""A node whose driver and toolkit limit memory, and one with an older driver."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedWorld]:
    groups, folder = tmp_path_factory.mktemp("cgroup"), tmp_path_factory.mktemp("profiles")
    (groups / "cgroup.controllers").write_text("cpu memory\n")
    (groups / "kubepods.slice").mkdir()
    defaults = {"model": "Tesla T4", "memMiB": 14910, "cc": "7.5"}
    nodes = []
    for name, driver in ((LIMITS, "615.71.05"), (PLAIN, "595.91.07")):
        profile = folder / f"{name}.yaml"
        machine = {"defaults": defaults, "gpus": [{}, {}], "driver": driver, "toolkit": "1.20.1"}
        profile.write_text(yaml.safe_dump(machine))
        nodes.append(NodeSpec(name=name, profile=str(profile)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GANGSHARE_ISOLATION", "auto")
        patch.setenv("GANGSHARE_CGROUP_ROOT", str(groups))
        async with embedded.a_cluster(*nodes) as cluster:
            world = EmbeddedWorld(cluster)
            await world.wait(world.knows_all_gpus, 60, "the extender knows all GPUs")
            yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running)


async def limit(world: EmbeddedWorld, pod: str) -> tuple[str | None, str | None]:
    env = await world.container_env("default", pod, "main")
    return env.get(names.MEMORY_REQUEST), env.get(names.MEMORY_LIMIT)


async def test_a_part_gets_its_limit_where_the_driver_enforces_it_and_none_elsewhere(world: EmbeddedWorld) -> None:
    await run(world, a_pod("limited", a_container(limits=mem(4)), **on(LIMITS)))
    await run(world, a_pod("promised", a_container(limits=mem(4)), **on(PLAIN)))
    await run(world, a_pod("whole", a_container(limits={names.WHOLE_GPU: 1}), **on(LIMITS)))
    assert await limit(world, "limited") == ("4096", "4096")
    assert await limit(world, "promised") == (None, None)
    assert await limit(world, "whole") == (None, None)


async def test_who_demands_enforced_memory_runs_there_alone(world: EmbeddedWorld) -> None:
    demands = {names.ISOLATION: "memory"}
    for i in range(4):
        await run(world, a_pod(f"p{i}", a_container(limits=mem(7)), annotations=demands))
        assert (await seat(world, f"p{i}"))[0] == LIMITS
        assert await limit(world, f"p{i}") == ("7168", "7168")
    await world.create_pod(a_pod("fifth", a_container(limits=mem(7)), annotations=demands))
    await refused_with(world, "fifth")
    await run(world, a_pod("any", a_container(limits=mem(7))))
    assert (await seat(world, "any"))[0] == PLAIN
    assert await phase(world, "fifth") == "Pending"


async def test_who_demands_capped_compute_waits_and_a_whole_gpu_meets_every_demand(world: EmbeddedWorld) -> None:
    demands = {names.ISOLATION: "compute"}
    await world.create_pod(a_pod("capped", a_container(limits=mem(4)), annotations=demands))
    await refused_with(world, "capped")
    await run(world, a_pod("whole", a_container(limits={names.WHOLE_GPU: 1}), annotations=demands, **on(PLAIN)))
    assert await phase(world, "capped") == "Pending"

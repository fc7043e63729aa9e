"""A library of the operator's beside limits of the driver: who demands enforced memory runs where either is proved."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from deviceplugin.library import contract
from extender.sim.kubelet.runtime import Container
from extender.sim.kubelet.status import NodeSpec
from protos.contract import inventory, names
from tests.scenarios import embedded, gangs
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import mem, on, phase, refused_with, run, seat
from tests.sim.standin_library import Library
from tests.unit.deviceplugin.library.hosts import a_group, install

pytestmark = pytest.mark.asyncio(loop_scope="module")
NEW, OLD = "node-new", "node-old"
"""A node whose driver limits memory, and one that is too old for it. Both have the operator's library."""
DEMANDS = {names.ISOLATION: "memory"}


class Host:
    """What the operator put on the nodes, and what the containers of both do there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.library = folder, install(folder)
        self.groups, self.regions = folder / "groups", folder / "regions"
        self.regions.mkdir()
        self.pids = itertools.count(4000)
        a_group(self.groups, "0a1b2c3d-1111-2222-3333-444455557777", "99" * 32, 1)  # a pod of the nodes' own

    def start(self, pod: dict[str, Any], container: Container) -> None:
        """A container starts, and its program loads what it is told to."""
        uid = pod["metadata"]["uid"]
        a_group(self.groups, uid, container.id, next(self.pids))
        if contract.REGION in container.env:
            gpus = container.env[names.VISIBLE_DEVICES].split(",")
            library = Library(self.regions / "regions" / f"{uid}_{container.name}.cache", container.env, gpus)
            library.load()
            library.count_gpus()
            library.begin(1, gpu0=2**30)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(tmp_path_factory.mktemp("host"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(host: Host) -> AsyncIterator[EmbeddedWorld]:
    nodes = []
    for name, driver in ((NEW, "615.71.05"), (OLD, "535.183.01")):
        profile = host.folder / f"{name}.yaml"
        defaults = {"model": "Tesla T4", "memMiB": 14910, "cc": "7.5"}
        machine = {"defaults": defaults, "gpus": [{}, {}], "driver": driver, "toolkit": "1.20.1"}
        profile.write_text(yaml.safe_dump(machine))
        nodes.append(NodeSpec(name=name, profile=str(profile)))
    settings = {
        "GANGSHARE_ISOLATION": "auto",
        "GANGSHARE_CGROUP_ROOT": str(host.groups),
        "GANGSHARE_LIBRARY_PATH": str(host.library),
        "GANGSHARE_LIBRARY_DIR": str(host.regions),
        "GANGSHARE_LIBRARY_DIR_MIB": str(2**40),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        async with embedded.a_cluster(*nodes) as cluster:
            for name in (NEW, OLD):
                cluster.node(name).runtime.hook = host.start
            world = EmbeddedWorld(cluster)
            await world.wait(world.knows_all_gpus, 60, "the extender knows all GPUs")
            yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running)


async def limits(world: EmbeddedWorld, pod: str) -> tuple[str | None, str | None]:
    """What the driver is told, and what the library is."""
    env = await world.container_env("default", pod, "main")
    return env.get(names.MEMORY_LIMIT), env.get(contract.MEMORY)


async def test_each_node_limits_by_the_best_that_it_proves(world: EmbeddedWorld) -> None:
    for name, node in (("new", NEW), ("old", OLD)):
        await run(world, a_pod(name, a_container(limits=mem(4)), annotations=DEMANDS, **on(node)))
    await run(world, a_pod("whole", a_container(limits={names.WHOLE_GPU: 1}), annotations=DEMANDS, **on(OLD)))
    assert await limits(world, "new") == ("4096", None)
    assert await limits(world, "old") == (None, "4096m")
    assert await limits(world, "whole") == (None, None)


async def test_who_demands_capped_compute_waits(world: EmbeddedWorld) -> None:
    await world.create_pod(a_pod("capped", a_container(limits=mem(4)), annotations={names.ISOLATION: "compute"}))
    await refused_with(world, "capped")
    assert await phase(world, "capped") == "Pending"


async def test_who_sets_its_own_limit_is_refused_beside_parts_alone(world: EmbeddedWorld) -> None:
    own = {"env": [{"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "0"}]}
    await world.create_pod(a_pod("own", {**a_container(limits=mem(4)), **own}))
    told = await refused_with(world, "own")
    assert "container main sets CUDA_DEVICE_MEMORY_LIMIT itself" in told
    await run(world, a_pod("whole", {**a_container(limits={names.WHOLE_GPU: 1}), **own}))


async def test_when_the_library_vanishes_who_demands_it_runs_elsewhere(world: EmbeddedWorld, host: Host) -> None:
    await run(world, a_pod("before", a_container(limits=mem(4)), annotations=DEMANDS, **on(OLD)))
    host.library.unlink()

    async def fell() -> bool:
        (node,) = [node for node in await world.nodes() if node["metadata"]["name"] == OLD]
        found = inventory.decode(node["metadata"]["annotations"][names.GPUS])
        return found is not None and not found.enforced.memory

    await world.wait(fell, 60, "the inventory says that memory is promised")
    await world.create_pod(a_pod("there", a_container(limits=mem(4)), annotations=DEMANDS, **on(OLD)))
    await refused_with(world, "there")
    for i in range(2):
        await run(world, a_pod(f"p{i}", a_container(limits=mem(7)), annotations=DEMANDS))
        assert (await seat(world, f"p{i}"))[0] == NEW
    assert await phase(world, "before") == "Running"
    install(host.folder)
    await world.wait(lambda: running_there(world), 60, "with the library it runs there")


async def running_there(world: EmbeddedWorld) -> bool:
    return await phase(world, "there") == "Running"

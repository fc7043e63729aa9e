"""The embedded world with the real extender and the real plugin: one scenario, to show that the parts fit."""

from __future__ import annotations

import json
from unittest import mock

import pytest

from extender.sim.cluster import EmbeddedCluster
from extender.sim.kubelet.status import NodeSpec
from protos.contract import names
from tests.scenarios import embedded
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.world import World


async def runs(world: World, name: str) -> bool:
    pod = await world.pod("default", name)
    return pod is not None and pod["status"]["phase"] == "Running"


async def allocation(world: World, name: str) -> list[str]:
    """The GPU UUIDs that the pod's annotation names for its first container."""
    pod = await world.pod("default", name)
    assert pod
    found = json.loads(pod["metadata"]["annotations"][names.ALLOCATION])
    return [share["uuid"] for share in found["containers"]["main"]]


async def test_restarts_change_nothing_for_what_runs_and_new_pods_are_placed_after_them() -> None:
    async with embedded.a_cluster(NodeSpec(name="node-1", profile="t4x4")) as cluster:
        world: World = EmbeddedWorld(cluster)
        ask = {names.GPU_MEM: 8}
        await world.create_pod(a_pod("before", a_container(limits=ask)))
        await world.wait(lambda: runs(world, "before"), 20, "the first pod runs")
        await world.restart_plugin("node-1", kill=True)
        await world.restart_kubelet("node-1")
        await world.restart_extender(kill=True)
        await world.restart_scheduler()
        await cluster.wait_for_extender()
        await cluster.wait_for_devices()
        await world.create_pod(a_pod("after", a_container(limits=ask)))
        await world.wait(lambda: runs(world, "after"), 30, "the second pod runs")
        for name in ("before", "after"):
            env = await world.container_env("default", name, "main")
            assert env[names.VISIBLE_DEVICES].split(",") == await allocation(world, name)
        assert await allocation(world, "before") != await allocation(world, "after")


async def test_a_sick_gpu_is_taken_out_of_the_node_and_comes_back_into_the_profile() -> None:
    async with embedded.a_cluster(NodeSpec(name="node-1", profile="t4x4")) as cluster:
        world: World = EmbeddedWorld(cluster)

        async def health() -> list[str]:
            node = (await world.nodes())[0]
            inventory = node["metadata"].get("annotations", {}).get(names.GPUS, '{"gpus":[]}')
            return [gpu["health"] for gpu in json.loads(inventory)["gpus"]]

        async def one_is_sick() -> bool:
            return [h.partition(":")[0] for h in await health()] == ["ok", "sick", "ok", "ok"]

        await world.set_gpu_health("node-1", 1, "sick:test")
        await world.wait(one_is_sick, 20, "the inventory shows the sick GPU")


async def test_a_wait_in_vain_names_what_it_waited_for() -> None:
    async def never() -> bool:
        return False

    with pytest.raises(TimeoutError, match="the moon is blue"):
        await EmbeddedWorld(mock.Mock(EmbeddedCluster)).wait(never, 0.1, "the moon is blue")

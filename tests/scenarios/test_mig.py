"""MIG instances end to end: asked by resource and by amount, one holder each, and instances that come and go."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from extender.sim.kubelet.status import NodeSpec
from protos.contract import mig, names
from tests.scenarios import embedded, gangs
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import delete, environment, event, mem, on, phase, refused_with, run, seat, shares

pytestmark = pytest.mark.asyncio(loop_scope="module")
SMALL, LARGE, OTHER = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb", "nvidia.com/mig-2g.20gb"
NODE, ALIKE = "node-split", "node-alike"
WHOLE = {"model": "NVIDIA A100-SXM4-80GB", "memMiB": 81050, "cc": "8.0"}
SPLIT = [{"profile": "1g.10gb"}, {"profile": "1g.10gb"}, {"profile": "3g.40gb"}]
Profile = dict[str, Any]


def a_machine(*gpus: Profile) -> Profile:
    return {"defaults": WHOLE, "gpus": list(gpus)}


def in_mig_mode(*profiles: Profile) -> Profile:
    return {"health": "mig", "instances": list(profiles)}


async def a_world(folder: Path, strategy: str, **machines: Profile) -> AsyncIterator[EmbeddedWorld]:
    nodes = []
    for name, machine in machines.items():
        profile = folder / f"{name}.yaml"
        profile.write_text(yaml.safe_dump(machine))
        nodes.append(NodeSpec(name=name.replace("_", "-"), profile=str(profile)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GANGSHARE_MIG_STRATEGY", strategy)
        patch.setenv("GANGSHARE_COOL_DOWN", "1")
        async with embedded.a_cluster(*nodes) as cluster:
            world = EmbeddedWorld(cluster)
            await world.wait(world.knows_all_gpus, 60, "the extender knows all GPUs")
            yield world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedWorld]:
    machine = a_machine({}, in_mig_mode(*SPLIT))
    async for world in a_world(tmp_path_factory.mktemp("profiles"), "mixed", node_split=machine):
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running)
    split(running, SPLIT)
    await offers(running, {SMALL: 2, LARGE: 1})


def edit(world: EmbeddedWorld, change: Callable[[Profile], None]) -> None:
    """Change the fake machine of the node; the plugin notices by itself."""
    path = world.cluster.node(NODE).profile
    machine = yaml.safe_load(path.read_text())
    change(machine)
    new = path.with_suffix(".new")
    new.write_text(yaml.safe_dump(machine))
    new.replace(path)


def split(world: EmbeddedWorld, instances: list[Profile]) -> None:
    edit(world, lambda machine: machine["gpus"][1].update(instances=instances))


async def offers(world: EmbeddedWorld, wanted: dict[str, int]) -> None:
    """Wait until the node has these amounts to give."""

    async def offered() -> bool:
        (node,) = [each for each in await world.nodes() if each["metadata"]["name"] == NODE]
        found = node["status"]["allocatable"]
        return all(found.get(resource, "0") == str(amount) for resource, amount in wanted.items())

    await world.wait(offered, 40, f"the node offers {wanted}")


async def told_of(world: EmbeddedWorld, node: str = NODE) -> dict[str, str]:
    """The health of the instances that the node publishes, by index as people read it."""
    (found,) = [each for each in await world.nodes() if each["metadata"]["name"] == node]
    gpus = json.loads(found["metadata"]["annotations"][names.GPUS])["gpus"]
    return {f"{mig.shown(gpu['index'])} {gpu['mig']}": gpu["health"] for gpu in gpus if "mig" in gpu}


async def instance(world: EmbeddedWorld, pod: str) -> str:
    """The place of a pod's only share, after checking that it is an instance that it has alone."""
    (share,) = (await shares(world, pod))["main"]
    assert share.whole
    return mig.shown(share.index)


async def test_who_asks_by_resource_gets_an_instance_of_its_own(world: EmbeddedWorld) -> None:
    await offers(world, {SMALL: 2, LARGE: 1, names.WHOLE_GPU: 1, names.GPU_MEM: 79 + 9 + 9 + 39})
    await run(world, *(a_pod(f"small-{i}", a_container(limits={SMALL: 1})) for i in range(2)))
    await run(world, a_pod("large", a_container(limits={LARGE: 1})))
    assert {await instance(world, f"small-{i}") for i in range(2)} == {"1:0", "1:1"}
    assert await instance(world, "large") == "1:2"
    env = await environment(world, "small-0")
    assert env[names.VISIBLE_DEVICES].startswith("MIG-")
    assert env[names.ENV_MEM_MIB] == "9728"
    await world.create_pod(a_pod("third", a_container(limits={SMALL: 1})))
    await refused_with(world, "third")
    await delete(world, "small-1", grace=1)
    await world.wait(lambda: _runs(world, "third"), 40, "the third runs")
    assert await instance(world, "third") == "1:1"


async def test_who_asks_an_amount_gets_the_smallest_instance_that_satisfies_and_never_shares_it(
    world: EmbeddedWorld,
) -> None:
    for i in range(4):
        await run(world, a_pod(f"amount-{i}", a_container(limits=mem(8))))
    given = [(await shares(world, f"amount-{i}"))["main"][0] for i in range(4)]
    assert [mig.shown(share.index) for share in given] == ["1:0", "1:1", "1:2", "0"]
    assert len({share.uuid for share in given}) == 4
    env = await environment(world, "amount-0")
    assert env[names.ENV_MEM_MIB] == "9728", "it has the whole instance"


async def test_resource_and_amount_count_in_one_ledger(world: EmbeddedWorld) -> None:
    await run(world, a_pod("amount", a_container(limits=mem(30))))
    assert await instance(world, "amount") == "1:2"
    await world.create_pod(a_pod("large", a_container(limits={LARGE: 1})))
    await refused_with(world, "large")
    await run(world, a_pod("whole", a_container(limits={names.WHOLE_GPU: 1})))
    assert (await seat(world, "whole"))[1] == [0]


async def test_who_names_a_profile_and_an_amount_gets_that_profile(world: EmbeddedWorld) -> None:
    named = {names.MIG_PROFILE: "3g.40gb"}
    await run(world, a_pod("named", a_container(limits=mem(4)), annotations=named))
    assert await instance(world, "named") == "1:2"


async def test_an_instance_meets_every_demand_for_isolation(world: EmbeddedWorld) -> None:
    demands = {names.ISOLATION: "compute"}
    await run(world, a_pod("isolated", a_container(limits=mem(8)), annotations=demands))
    assert await instance(world, "isolated") == "1:0"
    env = await environment(world, "isolated")
    assert names.MEMORY_LIMIT not in env


async def test_a_pod_bound_by_somebody_else_is_adopted_on_an_instance_of_its_profile(world: EmbeddedWorld) -> None:
    await run(world, a_pod("ours", a_container(limits={SMALL: 1})))
    stranger = a_pod("stranger", a_container(limits={SMALL: 1}), nodeName=NODE, schedulerName="default-scheduler")
    await run(world, stranger)
    assert "1:1" in await event(world, "stranger", "GpuAdopted")
    await world.create_pod(a_pod("third", a_container(limits={SMALL: 1})))
    await refused_with(world, "third")


async def test_a_plugin_that_is_restarted_in_between_gives_no_instance_twice(world: EmbeddedWorld) -> None:
    await run(world, a_pod("before", a_container(limits={SMALL: 1})))
    await world.restart_plugin(NODE)
    await run(world, a_pod("after", a_container(limits=mem(8))))
    assert {await instance(world, "before"), await instance(world, "after")} == {"1:0", "1:1"}


async def test_a_destroyed_instance_is_gone_while_it_is_held_and_then_not_there(world: EmbeddedWorld) -> None:
    await run(world, a_pod("holder", a_container(limits={SMALL: 1}), **on(NODE)))
    assert await instance(world, "holder") == "1:0"
    split(world, [{"profile": "2g.20gb", "place": 0}, {"profile": "3g.40gb", "place": 2}])
    await offers(world, {OTHER: 1, LARGE: 1})

    async def published(wanted: dict[str, str]) -> bool:
        return await told_of(world) == wanted

    held = {"1:0 2g.20gb": "ok", "1:1 1g.10gb": "gone", "1:2 3g.40gb": "ok"}
    await world.wait(lambda: published(held), 40, "the held instance is gone, the other one is not there")
    assert await phase(world, "holder") == "Running"
    await run(world, a_pod("new", a_container(limits={OTHER: 1})))
    assert await instance(world, "new") == "1:0"
    await delete(world, "holder", grace=1)
    left = {"1:0 2g.20gb": "ok", "1:2 3g.40gb": "ok"}
    await world.wait(lambda: published(left), 40, "no trace of it is left")
    await offers(world, {SMALL: 0, OTHER: 1})


async def test_of_a_sick_gpu_no_instance_is_given(world: EmbeddedWorld) -> None:
    await world.set_gpu_health(NODE, 1, "sick:xid 79")

    async def sick() -> bool:
        return set((await told_of(world)).values()) == {"sick:xid 79"}

    await world.wait(sick, 40, "all instances are sick")
    await world.create_pod(a_pod("waits", a_container(limits={SMALL: 1})))
    await refused_with(world, "waits")
    await world.set_gpu_health(NODE, 1, "mig")
    await world.wait(lambda: _runs(world, "waits"), 40, "it runs once the GPU is well")


async def test_single_serves_alike_instances_as_whole_gpus_and_says_where_they_are_not(tmp_path: Path) -> None:
    alike = a_machine(*(in_mig_mode({"profile": "3g.40gb"}, {"profile": "3g.40gb"}) for _ in range(2)))
    unlike = a_machine({}, in_mig_mode(*SPLIT))
    async for world in a_world(tmp_path, "single", node_alike=alike, node_split=unlike):
        await offers(world, {names.WHOLE_GPU: 1})
        for i in range(4):
            await run(world, a_pod(f"whole-{i}", a_container(limits={names.WHOLE_GPU: 1}), **on(ALIKE)))
        assert {await instance(world, f"whole-{i}") for i in range(4)} == {"0:0", "0:1", "1:0", "1:1"}
        assert "GPU 0 is not in MIG mode" in await event_of_node(world, NODE, "MigNotUniform")
        await run(world, a_pod("card", a_container(limits={names.WHOLE_GPU: 1})))
        assert await seat(world, "card") == (NODE, [0])
        await run(world, a_pod("amount", a_container(limits=mem(8))))
        assert await instance(world, "amount") == "1:0"


async def event_of_node(world: EmbeddedWorld, node: str, reason: str) -> str:
    found: list[str] = []

    async def told() -> bool:
        found[:] = [each["message"] for each in await world.events("", node) if each["reason"] == reason]
        found[:] += [
            each["message"]
            for each in await world.told("default")
            if each["reason"] == reason and each["involvedObject"]["name"] == node
        ]
        return bool(found)

    await world.wait(told, 40, f"an Event {reason} of {node}")
    return found[0]


async def _runs(world: EmbeddedWorld, name: str) -> bool:
    return await phase(world, name) == "Running"

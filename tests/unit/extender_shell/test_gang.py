"""A gang from the first question of kube-scheduler to its PodGroup's last word, over real HTTP."""

import asyncio

import pytest

from extender.sim.apiserver.api import Api
from extender.sim.apiserver.resources import PODS
from protos.contract import allocation, names
from tests.unit.extender_shell import world
from tests.unit.extender_shell.definitions import OWN, VOLCANO, add_group, define, group
from tests.unit.extender_shell.world import Json, World, add_node, add_pod, until

pytestmark = pytest.mark.usefixtures("quick")

NODES = ["node-a", "node-b"]


@pytest.fixture
def api(api: Api) -> Api:
    """Two such nodes."""
    add_node(api, "node-b", gpus=2)
    return api


def members(api: Api, number: int, least: int | None = None) -> list[Json]:
    """Pods of the gang `g1` that take a whole GPU's memory each."""
    said = {names.GROUP: "g1"} | ({names.MIN_MEMBER: str(least)} if least else {})
    return [add_pod(api, f"m{i}", mem=16, annotations=said) for i in range(number)]


async def planned(cluster: World, pod: Json) -> str:
    """The node that the pod is sent to, asked for until there is one."""
    for _ in range(100):
        nodes = (await cluster.filter(pod, NODES))["NodeNames"]
        if nodes:
            assert len(nodes) == 1
            return str(nodes[0])
        await asyncio.sleep(0.05)
    raise AssertionError("no node")


async def known(cluster: World, pods: list[Json]) -> None:
    await until(lambda: all(pod["metadata"]["uid"] in cluster.extender.engine.pods for pod in pods), "pods are known")


async def test_members_are_bound_together_or_not_at_all(cluster: World) -> None:
    pods = members(cluster.api, 3, least=3)
    await known(cluster, pods)
    nodes = [await planned(cluster, pod) for pod in pods]
    first = [asyncio.create_task(cluster.bind(pod, node)) for pod, node in zip(pods[:2], nodes[:2], strict=True)]
    answered, _ = await asyncio.wait(first, timeout=0.5)
    assert not answered
    assert not [path for _, path in cluster.server.writes if path.endswith("/binding")]
    assert await cluster.bind(pods[2], nodes[2]) == ""
    assert await asyncio.gather(*first) == ["", ""]
    for number in range(3):
        found = allocation.decode(cluster.pod(f"m{number}")["metadata"]["annotations"][names.ALLOCATION])
        assert found is not None
        assert found.group == allocation.Group("default/g1", 1, 3)


async def test_metrics_tell_gangs_by_phase_and_how_their_starts_went(cluster: World) -> None:
    pods = members(cluster.api, 2, least=2)
    await known(cluster, pods)
    nodes = [await planned(cluster, pod) for pod in pods]
    await asyncio.gather(*(cluster.bind(pod, node) for pod, node in zip(pods, nodes, strict=True)))
    _, text = await cluster.get("/metrics")
    assert 'gangshare_gangs{phase="Running"} 1\n' in text
    assert 'gangshare_gangs{phase="Waiting"} 0\n' in text
    assert 'gangshare_gang_starts_total{outcome="planned"} 1.0\n' in text
    for phase in ("Waiting", "Starting"):
        assert f'gangshare_gang_phase_seconds_count{{phase="{phase}"}} 1.0\n' in text


async def test_a_gang_that_is_not_complete_waits_and_says_how_many_are_missing(cluster: World) -> None:
    pods = members(cluster.api, 2, least=3)
    await known(cluster, pods)
    answer = await cluster.filter(pods[0], NODES)
    assert answer["NodeNames"] == []
    assert list(answer["FailedAndUnresolvableNodes"].values()) == ["gang default/g1 waits for its members"]
    await until(lambda: world.events(cluster.api), "the event")
    assert "2 of 3 members exist" in world.events(cluster.api)[0]["message"]


async def test_a_refused_member_is_woken_onto_its_node_when_the_gang_is_complete(cluster: World) -> None:
    pods = members(cluster.api, 2, least=3)
    await known(cluster, pods)
    assert not (await cluster.filter(pods[0], NODES))["NodeNames"]
    said = {names.GROUP: "g1", names.MIN_MEMBER: "3"}
    add_pod(cluster.api, "m2", mem=16, annotations=said)
    await until(lambda: names.WAKE in cluster.pod("m0")["metadata"]["annotations"], "the wake")
    nominated = cluster.pod("m0")["status"]["nominatedNodeName"]
    assert (await cluster.filter(cluster.pod("m0"), NODES))["NodeNames"] == [nominated]
    assert names.WAKE not in cluster.pod("m1")["metadata"]["annotations"]


async def test_hanging_up_undoes_nothing_and_the_member_may_come_again(cluster: World) -> None:
    pods = members(cluster.api, 2, least=2)
    await known(cluster, pods)
    nodes = [await planned(cluster, pod) for pod in pods]
    asking = asyncio.create_task(cluster.bind(pods[0], nodes[0]))
    await asyncio.sleep(0.3)
    asking.cancel()
    await asyncio.wait([asking])
    await asyncio.sleep(0.3)
    last = asyncio.create_task(cluster.bind(pods[1], nodes[1]))
    answered, _ = await asyncio.wait([last], timeout=0.5)
    assert not answered
    assert await cluster.bind(pods[0], nodes[0]) == ""
    assert await last == ""


async def test_the_groups_phase_follows_it_and_turns_back(cluster: World) -> None:
    for kind in (OWN, VOLCANO):
        define(cluster.api, kind)
        add_group(cluster.api, kind, "g1", minMember=2)

    def phases() -> list[str]:
        return [group(cluster.api, kind, "g1").get("status", {}).get("phase", "") for kind in (OWN, VOLCANO)]

    await until(lambda: phases() == ["Assembling", "Inqueue"], "an operator may make pods")
    pods = members(cluster.api, 2)
    await known(cluster, pods)
    nodes = [await planned(cluster, pod) for pod in pods]
    binds = [cluster.bind(pod, node) for pod, node in zip(pods, nodes, strict=True)]
    assert await asyncio.gather(*binds) == ["", ""]
    await until(lambda: phases() == ["Running", "Running"], "it runs")
    cluster.api.delete(PODS, ("default", "m0"), {"gracePeriodSeconds": 0})
    await until(lambda: phases()[0] != "Running" and phases()[1] != "Running", "it does not run any more")


async def test_stopping_denies_a_gang_that_is_not_all_in_bind() -> None:
    api = Api()
    add_node(api, "node-a", gpus=2)
    async with world.world(api) as cluster:
        await cluster.ready()
        pods = members(api, 2, least=2)
        await known(cluster, pods)
        node = await planned(cluster, pods[0])
        asking = asyncio.create_task(cluster.bind(pods[0], node))
        await asyncio.sleep(0.3)
        cluster.stop.set()
        assert "default/g1" in await asking
        assert cluster.bindings("m0") == 0

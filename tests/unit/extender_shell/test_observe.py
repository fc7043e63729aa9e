"""The second question about pods without GPUs: strangers go their way, members of gangs are kept until it is time."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from extender.sim.apiserver.api import Api
from protos.contract import names
from tests.unit.extender_shell import world
from tests.unit.extender_shell.test_gang import known, planned
from tests.unit.extender_shell.world import Json, World, add_node, add_pod, until

NODES = ["node-a", "node-b"]
SAID = {names.GROUP: "g1", names.MIN_MEMBER: "3"}
NOT_READY = "the pod's gang waits until the extender has read the cluster"


def a_cluster() -> Api:
    """Two nodes with two GPUs of 16 units each."""
    api = Api()
    for name in NODES:
        add_node(api, name, gpus=2)
    return api


@pytest.fixture
async def cluster() -> AsyncIterator[World]:
    async with world.world(a_cluster()) as made:
        await made.ready()
        yield made


async def observe(cluster: World, pod: Json, nodes: list[str] | None = None) -> Json:
    body = {"Pod": pod, "Nodes": None, "NodeNames": NODES if nodes is None else nodes}
    status, answer = await cluster.ask("/scheduler/observe", body)
    assert status == 200, answer
    return dict(answer)


def crew(api: Api) -> tuple[Json, list[Json]]:
    """A launcher without GPUs and two workers with a whole GPU's memory each."""
    boss = add_pod(api, "boss", 1, annotations=SAID, resource="cpu")
    return boss, [add_pod(api, f"m{i}", mem=16, annotations=SAID) for i in range(2)]


@pytest.mark.parametrize("resource", ["cpu", names.GPU_MEM])
async def test_strangers_go_their_way(cluster: World, resource: str) -> None:
    pod = add_pod(cluster.api, "p", 24, resource=resource)
    assert await observe(cluster, pod) == {"Nodes": None, "NodeNames": NODES}
    assert await observe(cluster, pod, []) == {"Nodes": None, "NodeNames": []}


async def test_nodes_sent_as_objects_come_back_as_they_were(cluster: World) -> None:
    nodes = {"items": [{"metadata": {"name": "node-b", "labels": {"ä": "b"}}}], "metadata": {}}
    body = {"Pod": add_pod(cluster.api, "p"), "Nodes": nodes, "NodeNames": None}
    assert await cluster.ask("/scheduler/observe", body) == (200, {"Nodes": nodes, "NodeNames": None})


async def test_a_body_that_kube_scheduler_would_not_send_is_refused(cluster: World) -> None:
    status, told = await cluster.ask("/scheduler/observe", b"{")
    assert status == 400
    assert "the body is not what kube-scheduler sends" in told


async def test_a_member_waits_until_all_others_are_in_bind_and_they_for_its_binding(cluster: World) -> None:
    boss, workers = crew(cluster.api)
    await known(cluster, [boss, *workers])
    refused = await observe(cluster, boss)
    assert refused["NodeNames"] == []
    assert "gang default/g1" in refused["FailedAndUnresolvableNodes"]["gangshare"]
    nodes = [await planned(cluster, pod) for pod in workers]
    binds = [asyncio.create_task(cluster.bind(pod, node)) for pod, node in zip(workers, nodes, strict=True)]
    await until(lambda: names.WAKE in cluster.pod("boss")["metadata"].get("annotations", {}), "boss is woken")
    wanted = cluster.pod("boss")["status"]["nominatedNodeName"]
    assert (await observe(cluster, cluster.pod("boss"), [wanted]))["NodeNames"] == [wanted]
    answered, _ = await asyncio.wait(binds, timeout=0.3)
    assert not answered
    cluster.api.bind(("default", "boss"), {"target": {"kind": "Node", "name": wanted}})
    assert await asyncio.gather(*binds) == ["", ""]
    await until(lambda: names.ALLOCATION in cluster.pod("boss")["metadata"]["annotations"], "boss says its start")


async def test_at_a_closed_gate_strangers_go_at_once_and_members_wait() -> None:
    async with world.world(a_cluster(), leader_election="scheduler") as made:
        await made.ready()
        assert (await made.ask("/scheduler/filter", {"Pod": add_pod(made.api, "q"), "NodeNames": NODES}))[0] == 503
        assert (await observe(made, add_pod(made.api, "p", 1, resource="cpu")))["NodeNames"] == NODES
        boss, _ = crew(made.api)
        assert await observe(made, boss) == {"NodeNames": [], "FailedAndUnresolvableNodes": {"gangshare": NOT_READY}}

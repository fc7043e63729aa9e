"""gpushare's HTTP protocol on our books."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.sim.apiserver.api import Api
from extender.sim.apiserver.resources import CONFIGMAPS, NODES
from protos.contract import names
from tests.unit.extender_shell import world
from tests.unit.extender_shell.world import ADMIN, World, add_pod, binding, until

OURS = "/gpushare-scheduler"


@pytest.fixture
async def cluster() -> AsyncIterator[World]:
    """A node as gpushare's own plugin reports it, and one without GPUs."""
    api = Api()
    shared = {names.ALIYUN_MEM: "30", names.ALIYUN_COUNT: "2", "cpu": "8", "pods": "110"}
    for name, capacity in (("gpu-1", shared), ("cpu-1", {"cpu": "8", "pods": "110"})):
        status = {"capacity": capacity, "allocatable": capacity}
        api.create(NODES, "", {"metadata": {"name": name}, "status": status}, ADMIN)
    async with world.world(api, gpushare=True) as made:
        await made.ready()
        yield made


def a_pod(cluster: World, name: str, mem: int) -> Any:
    return add_pod(cluster.api, name, mem=mem, resource=names.ALIYUN_MEM)


async def test_filter_answers_reasons_per_node_in_gpushares_words(cluster: World) -> None:
    pod = a_pod(cluster, "p1", 10)
    _, answer = await cluster.ask(f"{OURS}/filter", {"Pod": pod, "Nodes": None, "NodeNames": ["gpu-1", "cpu-1"]})
    assert answer["NodeNames"] == ["gpu-1"]
    assert answer["FailedNodes"] == {"cpu-1": "The node cpu-1 is not for GPU share, need skip"}
    big = a_pod(cluster, "p2", 16)
    _, answer = await cluster.ask(f"{OURS}/filter", {"Pod": big, "Nodes": None, "NodeNames": ["gpu-1", "cpu-1"]})
    assert answer["NodeNames"] == []
    assert answer["FailedNodes"]["gpu-1"] == "Insufficient GPU Memory in one device"


async def test_filter_of_objects_answers_objects_and_names(cluster: World) -> None:
    nodes = {"items": [{"metadata": {"name": "gpu-1"}}, {"metadata": {"name": "cpu-1"}}]}
    _, answer = await cluster.ask(f"{OURS}/filter", {"Pod": a_pod(cluster, "p1", 10), "Nodes": nodes})
    assert answer["NodeNames"] == ["gpu-1"]
    assert answer["Nodes"] == {"items": nodes["items"][:1]}


async def test_bind_writes_gpushares_annotations_and_its_errors_are_500(cluster: World) -> None:
    pod = a_pod(cluster, "p1", 10)
    await cluster.ask(f"{OURS}/filter", {"Pod": pod, "NodeNames": ["gpu-1"]})
    assert await cluster.ask(f"{OURS}/bind", binding(pod, "gpu-1")) == (200, {})
    written = cluster.pod("p1")["metadata"]["annotations"]
    assert (written[names.ALIYUN_IDX], written[names.ALIYUN_POD], written[names.ALIYUN_DEV]) == ("0", "10", "15")
    assert (written[names.ALIYUN_ASSIGNED], written[names.ALIYUN_ASSUME_TIME].isdecimal()) == ("false", True)
    status, answer = await cluster.ask(f"{OURS}/bind", binding(pod, "cpu-1"))
    assert (status, list(answer)) == (500, ["Error"])


async def test_inspect_and_version_are_gpushares(cluster: World) -> None:
    pod = a_pod(cluster, "p1", 10)
    await cluster.ask(f"{OURS}/filter", {"Pod": pod, "NodeNames": ["gpu-1"]})
    await cluster.ask(f"{OURS}/bind", binding(pod, "gpu-1"))
    node = {
        "name": "gpu-1",
        "totalGPU": 30,
        "usedGPU": 10,
        "devs": [
            {
                "id": 0,
                "totalGPU": 15,
                "usedGPU": 10,
                "pods": [{"name": "p1", "namespace": "default", "usedGPU": 10}],
            },
            {"id": 1, "totalGPU": 15, "usedGPU": 0, "pods": []},
        ],
    }
    assert await cluster.get(f"{OURS}/inspect", cluster.verbs) == (200, {"nodes": [node]})
    assert await cluster.get(f"{OURS}/inspect/gpu-1", cluster.verbs) == (200, {"nodes": [node]})
    status, answer = await cluster.get(f"{OURS}/inspect/cpu-1", cluster.verbs)
    assert (status, answer["nodes"], "cpu-1" in answer["error"]) == (200, [], True)
    async with cluster.session.get(f"{cluster.verbs}{OURS}/version") as answer:
        assert await answer.text() == "0.1.0"


async def test_gpus_that_the_config_map_calls_unhealthy_get_nothing_until_it_is_gone(cluster: World) -> None:
    key = (names.UNHEALTHY_CONFIGMAP_NAMESPACE, f"{names.UNHEALTHY_CONFIGMAP_PREFIX}gpu-1")
    meta = {"name": key[1], "namespace": key[0]}
    cluster.api.create(CONFIGMAPS, key[0], {"metadata": meta, "data": {"gpus": "0, x,"}}, ADMIN)

    def set_aside() -> list[bool]:
        books = cluster.extender.engine.nodes["gpu-1"].books
        assert books is not None
        return [book.cordoned for book in books.gpus.values()]

    await until(lambda: set_aside() == [True, False], "the GPU is set aside")
    pod = a_pod(cluster, "p1", 10)
    await cluster.ask(f"{OURS}/filter", {"Pod": pod, "NodeNames": ["gpu-1"]})
    await cluster.ask(f"{OURS}/bind", binding(pod, "gpu-1"))
    assert cluster.pod("p1")["metadata"]["annotations"][names.ALIYUN_IDX] == "1"
    cluster.api.delete(CONFIGMAPS, key, {})
    await until(lambda: not any(set_aside()), "the GPU is back")

"""The status port: probes, inspect, explain."""

import asyncio
import re

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from extender.sim.apiserver.api import Api
from extender.sim.apiserver.resources import NODES
from protos.contract import names
from protos.kube.client import MERGE_PATCH
from tests.unit.cli.run import gangshare
from tests.unit.extender_shell import world
from tests.unit.extender_shell.world import ADMIN, World, add_node, add_pod, events, until


@pytest.fixture
def api() -> Api:
    made = Api()
    add_node(made, "node-a", gpus=1)
    add_pod(made, "placed", mem=10)
    return made


@pytest.fixture
async def cluster(cluster: World) -> World:
    """The pod is bound."""
    pod = cluster.pod("placed")
    await cluster.filter(pod, ["node-a"])
    assert await cluster.bind(pod, "node-a") == ""
    return cluster


async def test_inspect_tells_nodes_pods_and_what_waits(cluster: World) -> None:
    big = add_pod(cluster.api, "big", mem=12)
    await cluster.filter(big, ["node-a"])
    _, told = await cluster.get("/inspect")
    (node,) = told["nodes"]
    assert {key: node[key] for key in ("name", "state", "unitMiB", "slicesPerGpu", "problem", "unplaced")} == {
        "name": "node-a",
        "state": "ready",
        "unitMiB": 1024,
        "slicesPerGpu": 100,
        "problem": None,
        "unplaced": [],
    }
    (gpu,) = node["gpus"]
    uid = cluster.pod("placed")["metadata"]["uid"]
    assert gpu == {
        "index": 0,
        "uuid": "GPU-node-a-0",
        "model": "T4",
        "profile": "",
        "health": "ok",
        "cordoned": False,
        "mem": 16,
        "memUsed": 10,
        "slicesUsed": 0,
        "slices": 0,
        "whole": False,
        "onDemand": False,
        "makes": "",
        "pods": [
            {"namespace": "default", "name": "placed", "uid": uid, "mem": 10, "slices": 0, "whole": False}
            | {"queue": "default"}
        ],
        "otherPods": 0,
    }
    (placed,) = told["pods"]
    assert (placed["name"], placed["node"], placed["problem"]) == ("placed", "node-a", None)
    assert placed["allocation"]["containers"]["main"][0]["uuid"] == "GPU-node-a-0"
    (waiting,) = told["waiting"]
    assert (waiting["name"], waiting["code"], waiting["sentence"]) == ("big", "NoRoom", "no GPU with 12 GiB free")
    assert "needs 12 GiB on one GPU" in waiting["numbers"]
    assert waiting["since"] >= 0
    assert told["problems"] == {"forged": 0, "malformed": 0, "overused": 0, "setAside": 0}


async def test_pending_pods_are_the_same_in_queues_in_the_metric_in_top_and_in_every_explanation(
    cluster: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pod that asked, one that never did, one that requests no GPU, and members of a gang that is not complete."""
    await cluster.filter(add_pod(cluster.api, "asked", mem=12), ["node-a"])
    member = {names.GROUP: "g", names.MIN_MEMBER: "3"}
    for name, mem, said in (("never", 12, {}), ("plain", 0, {}), ("g-0", 4, member), ("g-1", 0, member)):
        add_pod(cluster.api, name, mem=mem, annotations=said)
    engine = cluster.extender.engine
    await until(lambda: engine.tenancy.queues.root.waiting == 5, "all are seen")
    _, told = await cluster.get("/inspect")
    assert sorted(pod["name"] for pod in told["waiting"]) == ["asked", "g-0", "g-1", "never", "plain"]
    _, metrics = await cluster.get("/metrics")
    assert "\ngangshare_pending_pods 5\n" in metrics
    assert (await cluster.get("/queues"))[1]["queues"][0]["waiting"] == 5
    assert (await cluster.get("/queues/default"))[1]["waiting"] == 5
    for path in ("/explain/default/never", "/explain/default/plain", "/explain/groups/default/g"):
        assert (await cluster.get(path))[1]["pendingPods"] == 5
    top = await asyncio.to_thread(gangshare, capsys, "top", "--server", cluster.status)
    assert "; 5 pods pending: " in top.out


async def test_a_pod_whose_place_nobody_knows_is_told(cluster: World) -> None:
    stranger = add_pod(cluster.api, "stranger", mem=4, node="node-a")
    await until(lambda: stranger["metadata"]["uid"] in cluster.extender.engine.pods, "seen")
    _, node = await cluster.get("/inspect/node-a")
    assert [pod["name"] for pod in node["unplaced"]] == ["stranger"]


async def test_a_gpu_that_shrank_under_its_pods_is_counted_as_overused(cluster: World) -> None:
    smaller = {"metadata": {"annotations": {names.GPUS: world.equal_gpus("node-a", 1, 8)}}}
    cluster.api.patch(NODES, ("", "node-a"), smaller, MERGE_PATCH, ADMIN)
    books = cluster.extender.engine.nodes["node-a"].books
    assert books is not None
    await until(lambda: books.gpus["GPU-node-a-0"].gpu.mem == 8, "seen")
    assert (await cluster.get("/inspect"))[1]["problems"]["overused"] == 1


async def test_a_cordon_that_names_no_gpu_of_the_node_is_shown_and_told_as_an_event(cluster: World) -> None:
    body = {"metadata": {"annotations": {names.CORDONED_GPUS: "99,abc"}}}
    cluster.api.patch(NODES, ("", "node-a"), body, MERGE_PATCH, ADMIN)
    await until(lambda: any(told["reason"] == "CordonUnreadable" for told in events(cluster.api)), "the Event")
    (node,) = (await cluster.get("/inspect"))[1]["nodes"]
    assert node["problem"].startswith("gangshare.io/cordoned-gpus names '99', 'abc': expected indexes or UUIDs")


async def test_a_cluster_of_many_nodes_is_one_whole_answer(cluster: World) -> None:
    for number in range(100):
        add_node(cluster.api, f"n{number:03}")
    cluster.api.create(NODES, "", {"metadata": {"name": "no-gpus"}, "status": {}}, ADMIN)
    await until(lambda: len(cluster.extender.engine.nodes) == 102, "all nodes known")
    _, told = await cluster.get("/inspect")
    assert [node["name"] for node in told["nodes"]] == [f"n{number:03}" for number in range(100)] + ["node-a"]


async def test_what_is_unknown_is_404_in_words(cluster: World) -> None:
    assert await cluster.get("/inspect/nowhere") == (404, "nowhere: no such node")
    assert await cluster.get("/explain/default/nobody") == (404, "default/nobody: no such pod, or it is over")


async def test_explain_tells_where_a_pod_is(cluster: World) -> None:
    _, told = await cluster.get("/explain/default/placed")
    assert (told["node"], told["state"]) in (("node-a", "binding"), ("node-a", "bound"))


async def test_explain_tells_what_the_pod_costs_there_and_elsewhere(
    cluster: World, capsys: pytest.CaptureFixture[str]
) -> None:
    add_node(cluster.api, "node-b", gpus=2)
    await until(lambda: "node-b" in cluster.extender.engine.nodes, "seen")
    _, told = await cluster.get("/explain/default/placed?scores=true")
    assert {rank["node"]: rank["here"] for rank in told["ranking"]} == {"node-a": True, "node-b": False}
    assert all(rank["score"] == -sum(rank["terms"].values()) for rank in told["ranking"])
    command = ("explain", "pod", "placed", "--scores", "--server", cluster.status)
    ran = await asyncio.to_thread(gangshare, capsys, *command)
    assert re.search(r"NODE +SCORE +FRAGMENTS .* LINKS\n(?:.*\n)?  node-a \(here\) +-?\d+ .*\n", ran.out)


async def test_each_page_of_one_object_is_served(cluster: World) -> None:
    for path, key in (("/inspect/node-a", "name"), ("/gpus/GPU-node-a-0", "node"), ("/queues/default", "name")):
        status, told = await cluster.get(path)
        assert (status, told["verdict"]["state"]) == (200, "open")
        assert told[key] in ("node-a", "default")
    assert await cluster.get("/gpus/nothing") == (404, "nothing: no such GPU")
    assert await cluster.get("/queues/nothing") == (404, "nothing: no such queue")


async def test_livez_asks_the_scheduler_too() -> None:
    well = True

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok") if well else web.Response(status=500, text="leaderElection failed")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    scheduler = TestServer(app)
    await scheduler.start_server()
    url = str(scheduler.make_url("/healthz"))
    async with world.world(scheduler_healthz=url) as cluster:
        assert await cluster.get("/livez") == (200, "ok")
        well = False
        assert await cluster.get("/livez") == (503, f"{url} answers 500: leaderElection failed")
        assert await cluster.get("/healthz") == (200, "ok")
        await scheduler.close()
        status, words = await cluster.get("/livez")
        assert (status, url in words) == (503, True)


async def test_a_process_that_does_not_tick_is_not_alive(cluster: World) -> None:
    cluster.extender.health._clock = lambda: cluster.extender.health.ticked_at + 60
    for probe in ("/healthz", "/livez"):
        status, words = await cluster.get(probe)
        assert (status, words) == (503, "nothing moved for 60.0 s")


async def test_a_watch_that_breaks_by_a_bug_ends_the_process(cluster: World) -> None:
    def bug(_: object) -> None:
        raise RuntimeError("a bug")

    async with world.world(cluster.api) as other:
        await other.ready()
        other.extender.watches._others[0]._tell = bug
        add_pod(cluster.api, "p2")
        error = await other.broken()
        assert isinstance(error, BaseExceptionGroup)
        assert error.subgroup(RuntimeError) is not None

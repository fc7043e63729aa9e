"""kube-scheduler's questions over HTTP, with a real engine and a real (embedded) API server behind them."""

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web

from extender.server import run
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.resources import PODS
from protos.contract import names
from tests.unit.extender_shell import world
from tests.unit.extender_shell.world import ADMIN, World, add_node, add_pod, binding, given, until


@pytest.fixture
def api(api: Api) -> Api:
    """Two such nodes."""
    add_node(api, "node-b", gpus=2)
    return api


BOTH = ["node-a", "node-b"]


async def test_a_pod_is_filtered_scored_and_bound_with_its_gpus_in_one_write(cluster: World) -> None:
    pod = add_pod(cluster.api, "p1", mem=10)
    answer = await cluster.filter(pod, BOTH)
    assert sorted(answer["NodeNames"]) == BOTH
    _, scores = await cluster.ask("/scheduler/prioritize", {"Pod": pod, "NodeNames": answer["NodeNames"]})
    assert {score["Host"] for score in scores} == set(BOTH)
    assert await cluster.bind(pod, "node-b") == ""
    assert cluster.pod("p1")["spec"]["nodeName"] == "node-b"
    assert given(cluster.pod("p1")) == ["GPU-node-b-0"]
    assert cluster.bindings("p1") == 1


async def test_nodes_sent_as_objects_are_answered_as_objects(cluster: World) -> None:
    pod = add_pod(cluster.api, "p1")
    nodes = {"items": [{"metadata": {"name": "node-b", "labels": {"a": "b"}}}, {"metadata": {"name": "elsewhere"}}]}
    _, answer = await cluster.ask("/scheduler/filter", {"Pod": pod, "Nodes": nodes, "NodeNames": None})
    assert answer == {"Nodes": {"items": [nodes["items"][0]]}}


async def test_a_pod_that_fits_nowhere_gets_one_sentence_an_event_and_an_explanation(cluster: World) -> None:
    pod = add_pod(cluster.api, "big", mem=24)
    answer = await cluster.filter(pod, BOTH)
    sentence = "no node in the cluster could fit 24 GiB on one GPU, even if it were empty"
    assert answer == {"NodeNames": [], "FailedAndUnresolvableNodes": {"gangshare": sentence}}
    await until(lambda: world.events(cluster.api), "the event")
    assert "write gangshare.io/gpu-mem: 16 or less" in world.events(cluster.api)[0]["message"]
    status, told = await cluster.get("/explain/default/big")
    assert (status, told["code"]) == (200, "CannotFit")
    assert "the largest GPU has 16 GiB" in told["numbers"]


async def test_a_refused_pod_is_woken_when_room_appears(cluster: World) -> None:
    holders = [add_pod(cluster.api, f"h{i}", mem=16) for i in range(4)]
    for number, holder in enumerate(holders):
        await cluster.filter(holder, BOTH)
        assert await cluster.bind(holder, BOTH[number // 2]) == ""
    waiting = add_pod(cluster.api, "w", mem=16)
    assert not (await cluster.filter(waiting, BOTH))["NodeNames"]
    cluster.api.delete(PODS, ("default", "h0"), {"gracePeriodSeconds": 0})
    await until(lambda: names.WAKE in cluster.pod("w")["metadata"].get("annotations", {}), "the wake")
    assert (await cluster.filter(waiting, BOTH))["NodeNames"] == ["node-a"]


async def test_a_second_bind_of_a_pod_joins_the_first(cluster: World) -> None:
    pod, arrived, go = add_pod(cluster.api, "p1"), asyncio.Event(), asyncio.Event()
    hold(cluster, arrived, go)
    await cluster.filter(pod, BOTH)
    first = asyncio.create_task(cluster.bind(pod, "node-a"))
    await arrived.wait()
    second = asyncio.create_task(cluster.bind(pod, "node-a"))
    elsewhere = asyncio.create_task(cluster.bind(pod, "node-b"))
    answered, _ = await asyncio.wait([first, second, elsewhere], timeout=0.3)
    assert not answered
    go.set()
    assert await first == await second == ""
    assert "another node" in await elsewhere
    assert cluster.bindings("p1") == 1


async def test_a_bind_goes_on_when_its_connection_is_gone(cluster: World) -> None:
    pod, arrived, go = add_pod(cluster.api, "p1"), asyncio.Event(), asyncio.Event()
    hold(cluster, arrived, go)
    await cluster.filter(pod, BOTH)
    asking = asyncio.create_task(cluster.bind(pod, "node-a"))
    await arrived.wait()
    asking.cancel()
    await asyncio.wait([asking])
    go.set()
    await until(lambda: cluster.pod("p1")["spec"].get("nodeName"), "bound all the same")
    assert await cluster.bind(pod, "node-a") == ""


async def test_a_binding_whose_answer_is_lost_is_answered_by_the_truth(cluster: World) -> None:
    async def carried_out_in_silence(request: web.BaseRequest) -> Any:
        if request.path.endswith("/binding"):
            await cluster.server.carry_out(request)
            assert request.transport is not None
            request.transport.abort()
        return None

    cluster.server.fault = carried_out_in_silence
    pod = add_pod(cluster.api, "p1")
    await cluster.filter(pod, BOTH)
    assert await cluster.bind(pod, "node-a") == ""
    assert cluster.pod("p1")["spec"]["nodeName"] == "node-a"


async def test_a_pod_that_somebody_else_bound_is_an_error_and_its_gpus_are_free_again(cluster: World) -> None:
    pod = add_pod(cluster.api, "p1", mem=16)
    await cluster.filter(pod, BOTH)
    to = {"metadata": {"name": "p1", "uid": pod["metadata"]["uid"]}, "target": {"kind": "Node", "name": "node-x"}}
    cluster.server.fault = before_binding(lambda: cluster.api.bind(("default", "p1"), to))
    assert "already assigned to node node-x" in await cluster.bind(pod, "node-a")
    _, node = await cluster.get("/inspect/node-a")
    assert [gpu["memUsed"] for gpu in node["gpus"]] == [0, 0]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter waits for long for the bind of the pod before."""
    as_set = run.decisions
    longer = {"undecided_s": 60.0, "soft_charge_s": 60.0}
    monkeypatch.setattr(run, "decisions", lambda settings: msgspec.structs.replace(as_set(settings), **longer))


@pytest.mark.usefixtures("patient")
async def test_a_filter_waits_for_the_bind_of_the_pod_before(cluster: World) -> None:
    first, second = add_pod(cluster.api, "p1", mem=10), add_pod(cluster.api, "p2", mem=6)
    offered = (await cluster.filter(first, BOTH))["NodeNames"]
    asking = asyncio.create_task(cluster.filter(second, BOTH))
    _, pending = await asyncio.wait([asking], timeout=0.3)
    assert pending
    assert await cluster.bind(first, offered[1]) == ""
    assert (await asking)["NodeNames"] == [offered[1]]  # packed beside the first, where it really went


async def test_a_filter_does_not_wait_for_long(cluster: World) -> None:
    first, second = add_pod(cluster.api, "p1", mem=10), add_pod(cluster.api, "p2", mem=6)
    await cluster.filter(first, BOTH)
    assert (await cluster.filter(second, BOTH))["NodeNames"]


async def test_the_books_are_checked_from_time_to_time(cluster: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHECK_S", 0.05)
    async with world.world(cluster.api) as other:
        await other.ready()
        pod = add_pod(cluster.api, "p1", mem=10)
        await other.filter(pod, BOTH)
        assert await other.bind(pod, "node-a") == ""
        books = other.extender.engine.nodes["node-a"].books
        assert books is not None
        value = other.extender.metrics.registry.get_sample_value
        assert value("gangshare_invariant_violations") == 0
        books.gpus["GPU-node-a-0"].mem_used += 1
        await until(lambda: value("gangshare_invariant_violations") == 1, "the violation told")


async def test_preempt_keeps_candidates_where_the_pod_then_fits(cluster: World) -> None:
    holder = add_pod(cluster.api, "h", mem=16)
    await cluster.filter(holder, BOTH)
    assert await cluster.bind(holder, "node-a") == ""
    urgent = add_pod(cluster.api, "urgent", mem=16)
    uid = holder["metadata"]["uid"]
    victims = {"node-a": {"Pods": [{"UID": uid}], "NumPDBViolations": 1}, "node-x": {"Pods": [{"UID": "u"}]}}
    body = {"Pod": urgent, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    _, answer = await cluster.ask("/scheduler/preempt", body)
    assert answer == {"NodeNameToMetaVictims": {"node-a": {"Pods": [{"UID": uid}], "NumPDBViolations": 1}}}
    nobody: list[dict[str, Any]] = [{"Pods": []}, {"Pods": None}, {}]
    for none in nobody:
        _, answer = await cluster.ask("/scheduler/preempt", body | {"NodeNameToMetaVictims": {"node-b": none}})
        assert answer == {"NodeNameToMetaVictims": {"node-b": {}}}


async def test_bad_questions_are_answered_in_words(cluster: World) -> None:
    status, words = await cluster.ask("/scheduler/filter", b"nonsense")
    assert (status, words[:44]) == (400, "the body is not what kube-scheduler sends: J")
    assert (await cluster.get("/scheduler/filter", cluster.verbs))[0] == 405
    assert (await cluster.ask("/scheduler/nothing", b"{}"))[0] == 404
    assert (await cluster.ask("/gpushare-scheduler/filter", b"{}"))[0] == 404


async def test_verbs_answer_503_until_everything_was_read() -> None:
    gone = asyncio.Event()

    async def no_lists(request: web.BaseRequest) -> Any:
        return None if gone.is_set() else web.Response(status=503)

    async with world.world() as cluster:
        cluster.server.fault = no_lists
        cluster.extender.gate._patience_s = 0.05
        pod = add_pod(cluster.api, "p1")
        bodies = {
            "filter": {"Pod": pod},
            "prioritize": {"Pod": pod},
            "preempt": {"Pod": pod},
            "bind": binding(pod, "n"),
        }
        for verb, body in bodies.items():
            status, words = await cluster.ask(f"/scheduler/{verb}", body)
            assert (status, words) == (503, "the cluster's pods and nodes are still being listed")
        assert (await cluster.get("/readyz"))[0] == 503
        assert (await cluster.get("/healthz")) == (200, "ok")
        gone.set()
        cluster.extender.gate._patience_s = 20
        assert (await cluster.filter(pod, []))["NodeNames"] == []
        assert (await cluster.get("/readyz"))[0] == 200


async def test_the_books_are_the_same_after_a_restart() -> None:
    api = Api()
    add_node(api, "node-a", gpus=2)
    async with world.world(api) as before:
        await before.ready()
        for number in range(3):
            pod = add_pod(api, f"p{number}", mem=6)
            await before.filter(pod, ["node-a"])
            assert await before.bind(pod, "node-a") == ""
        held = (await before.get("/inspect/node-a"))[1]["gpus"]
    async with world.world(api) as after:
        await after.ready()
        assert (await after.get("/inspect/node-a"))[1]["gpus"] == held


async def test_an_undecodable_pod_is_a_counted_problem_and_nothing_more(cluster: World) -> None:
    container = {"name": "main", "image": "x"}
    odd = {"metadata": {"name": "odd"}, "spec": {"containers": [container], "priority": "high"}}
    cluster.api.create(PODS, "default", odd, ADMIN)
    await until(lambda: cluster.extender.metrics.errors["undecodable"], "the problem counted")
    pod = add_pod(cluster.api, "p1")
    assert (await cluster.filter(pod, BOTH))["NodeNames"]


async def test_stopping_finishes_binds_and_refuses_new_questions() -> None:
    api = Api()
    add_node(api, "node-a")
    async with world.world(api) as cluster:
        await cluster.ready()
        pod, arrived, go = add_pod(api, "p1"), asyncio.Event(), asyncio.Event()
        hold(cluster, arrived, go)
        await cluster.filter(pod, ["node-a"])
        asking = asyncio.create_task(cluster.bind(pod, "node-a"))
        await arrived.wait()
        cluster.stop.set()
        await until(lambda: cluster.extender.gate.why, "the gate closed")
        assert await cluster.ask("/scheduler/filter", {"Pod": pod}) == (503, "the extender is stopping")
        assert (await cluster.get("/readyz"))[0] == 503
        go.set()
        assert await asking == ""
    assert given(world.read_pod(api, "p1")) == ["GPU-node-a-0"]


def hold(cluster: World, arrived: asyncio.Event, go: asyncio.Event) -> None:
    """Let Bindings wait at the API server."""

    async def fault(request: web.BaseRequest) -> None:
        if request.path.endswith("/binding"):
            arrived.set()
            await go.wait()

    cluster.server.fault = fault


def before_binding(act: Any) -> world.Fault:
    """Do something between a bind's decision and its Binding."""

    async def fault(request: web.BaseRequest) -> None:
        if request.path.endswith("/binding"):
            act()

    return fault

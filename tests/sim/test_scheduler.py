"""The scheduler loop against a real HTTP extender whose answers the test decides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from extender.sim import podspec
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.patch import MERGE
from extender.sim.apiserver.resources import EVENTS, LEASES, NODES, PODS
from extender.sim.scheduler import config
from extender.sim.scheduler.loop import Scheduler
from tests.sim.builders import a_config, a_container, a_node, a_pod
from tests.sim.conftest import until

ME, STATUS = Writer("tester"), Writer("tester", "status")
Answer = Callable[[dict[str, Any]], Any]


class Extender:
    """Records the calls; ``filter`` and ``bind`` may be replaced."""

    def __init__(self, api: Api) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.filter: Answer = lambda args: {"NodeNames": args["NodeNames"]}
        self.bind: Answer = self.bind_it
        self._api = api

    def bind_it(self, args: dict[str, Any]) -> Any:
        metadata = {"name": args["PodName"], "uid": args["PodUID"]}
        key = (args["PodNamespace"], args["PodName"])
        self._api.bind(key, {"metadata": metadata, "target": {"name": args["Node"]}})
        return {}

    def asked(self, verb: str, pod: str = "") -> list[dict[str, Any]]:
        def name(args: dict[str, Any]) -> Any:
            return args["PodName"] if "PodName" in args else args["Pod"]["metadata"]["name"]

        return [args for v, args in self.calls if v == verb and (not pod or name(args) == pod)]

    async def handle(self, request: web.Request) -> web.Response:
        verb, args = request.match_info["verb"], await request.json()
        self.calls.append((verb, args))
        answer = getattr(self, verb)(args)
        if asyncio.iscoroutine(answer):
            answer = await answer
        return web.json_response(answer) if answer is not None else web.Response(status=500)


@pytest.fixture
def extender(api: Api) -> Extender:
    return Extender(api)


@asynccontextmanager
async def scheduling(api: Api, extender: Extender, **more: Any) -> AsyncIterator[Scheduler]:
    app = web.Application()
    app.router.add_post("/scheduler/{verb}", extender.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/scheduler"
    scheduler = Scheduler(api, config.parse(a_config(url, **more)), "host")
    task = asyncio.create_task(scheduler.run())
    try:
        await asyncio.wait_for(scheduler.running.wait(), 5)
        yield scheduler
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.cleanup()


def add_nodes(api: Api, *names: str, **more: Any) -> None:
    for name in names:
        api.create(NODES, "", a_node(name, **more), ME)


def create(api: Api, name: str, *containers: dict[str, Any], **more: Any) -> None:
    api.create(PODS, "default", a_pod(name, *containers, **more), ME)


def node_of(api: Api, name: str) -> str:
    return podspec.node_of(api.get(PODS, ("default", name)).obj)


def scheduled_condition(api: Api, name: str) -> dict[str, Any]:
    return podspec.condition(api.get(PODS, ("default", name)).obj, "PodScheduled") or {}


def nominate(api: Api, name: str, node: str) -> None:
    body = {"metadata": {"annotations": {"wake": node}}, "status": {"nominatedNodeName": node}}
    api.patch(PODS, ("default", name), body, MERGE, STATUS)


def annotate(api: Api, name: str, value: str) -> None:
    api.patch(PODS, ("default", name), {"metadata": {"annotations": {"wake": value}}}, MERGE, STATUS)


async def settled(extender: Extender) -> int:
    """The number of calls once no more come."""
    count = -1
    while count != len(extender.calls):
        count = len(extender.calls)
        await asyncio.sleep(0.3)
    return count


async def test_filter_and_bind_decide_the_node(api: Api, extender: Extender) -> None:
    add_nodes(api, "a", "b", "c")
    extender.filter = lambda _: {"nodenames": ["c"], "FailedNodes": {"a": "full", "b": "full"}}
    async with scheduling(api, extender):
        create(api, "p")
        await until(lambda: node_of(api, "p"), "bound")
    assert node_of(api, "p") == "c"
    asked = extender.asked("filter")[0]
    assert (sorted(asked["NodeNames"]), asked["Nodes"]) == (["a", "b", "c"], None)
    assert "kind" not in asked["Pod"]


async def test_of_the_nodes_that_an_extender_leaves_the_emptiest_is_taken(api: Api, extender: Extender) -> None:
    add_nodes(api, "full", "other")
    add_nodes(api, "empty", cpu="64")
    async with scheduling(api, extender):
        create(api, "p", a_container(cpu="1"))
        await until(lambda: node_of(api, "p") == "empty", "bound")


async def test_a_refusal_is_told_as_kube_scheduler_tells_it(api: Api, extender: Extender) -> None:
    add_nodes(api, "a", "b", "c")
    api.patch(NODES, ("", "c"), {"spec": {"unschedulable": True}}, MERGE, ME)
    extender.filter = lambda _: {"NodeNames": [], "FailedNodes": {"*": "no GPU with 24 GiB free"}}
    async with scheduling(api, extender):
        create(api, "p")
        await until(lambda: scheduled_condition(api, "p"), "condition")
        await settled(extender)
        await until(lambda: list(api.store.items(EVENTS)), "an Event")
    condition = scheduled_condition(api, "p")
    sentence = "0/3 nodes are available: 1 no GPU with 24 GiB free, 1 node(s) were unschedulable."
    assert (condition["reason"], condition["message"]) == ("Unschedulable", sentence)
    events = [i.obj for i in api.store.items(EVENTS)]
    assert {(e["reason"], e["message"], e["type"]) for e in events} == {("FailedScheduling", sentence, "Warning")}


async def test_a_constant_refusal_is_asked_twice_and_then_left_alone(api: Api, extender: Extender) -> None:
    add_nodes(api, "a")
    extender.filter = lambda _: {"NodeNames": [], "FailedNodes": {"*": "no"}}
    async with scheduling(api, extender):
        create(api, "p")
        assert await settled(extender) == 2


async def test_touching_a_refused_pod_wakes_it_alone(api: Api, extender: Extender) -> None:
    add_nodes(api, "a")
    extender.filter = lambda _: {"NodeNames": [], "FailedNodes": {"*": "no"}}
    async with scheduling(api, extender):
        create(api, "p")
        create(api, "q")
        before = await settled(extender)
        annotate(api, "p", "1")
        assert await settled(extender) == before + 1
        assert len(extender.asked("filter", "q")) == 2


async def test_an_assigned_pod_that_changes_wakes_everything_refused(api: Api, extender: Extender) -> None:
    add_nodes(api, "a")
    extender.filter = lambda _: {"NodeNames": [], "FailedNodes": {"*": "no"}}
    async with scheduling(api, extender):
        create(api, "p")
        create(api, "q")
        before = await settled(extender)
        create(api, "other", nodeName="a")
        assert await settled(extender) == before + 2


async def test_what_the_in_tree_filters_refuse_never_reaches_the_extender(api: Api, extender: Extender) -> None:
    add_nodes(api, "a", cpu="1")
    async with scheduling(api, extender):
        create(api, "p", a_container(cpu="2"))
        await until(lambda: scheduled_condition(api, "p"), "condition")
        annotate(api, "p", "1")
        await asyncio.sleep(0.2)
        assert "Insufficient cpu" in scheduled_condition(api, "p")["message"]
        assert extender.calls == []
        add_nodes(api, "big")
        await until(lambda: node_of(api, "p") == "big", "bound")


async def test_ignored_resources_are_the_extenders_business(api: Api, extender: Extender) -> None:
    add_nodes(api, "a")
    args = {"ignoredResourceGroups": ["gangshare.io"], "ignoredResources": ["nvidia.com/gpu"]}
    plugins = [{"name": "NodeResourcesFit", "args": args}]
    profiles = [{"schedulerName": "default-scheduler", "pluginConfig": plugins}]
    limits: dict[str, Any] = {"gangshare.io/gpu-mem": 900, "nvidia.com/gpu": 9}
    async with scheduling(api, extender, profiles=profiles):
        create(api, "p", a_container(**limits))
        await until(lambda: node_of(api, "p") == "a", "bound")
        create(api, "q", a_container(**{"huawei.com/Ascend910": 1}))
        await until(lambda: scheduled_condition(api, "q"), "refused")
        assert "Insufficient huawei.com/Ascend910" in scheduled_condition(api, "q")["message"]


async def test_the_nominated_node_is_tried_alone_first(api: Api, extender: Extender) -> None:
    add_nodes(api, "a", "b", "c")
    extender.filter = lambda _: {"NodeNames": [], "FailedNodes": {"*": "waits"}}
    async with scheduling(api, extender):
        create(api, "p")
        await settled(extender)
        extender.filter = lambda args: {"NodeNames": args["NodeNames"]}
        extender.calls.clear()
        nominate(api, "p", "b")
        await until(lambda: node_of(api, "p") == "b", "bound")
    assert [args["NodeNames"] for args in extender.asked("filter")] == [["b"]]


async def test_other_pods_go_on_while_a_bind_is_held(api: Api, extender: Extender) -> None:
    add_nodes(api, "a")
    release = asyncio.Event()

    async def bind(args: dict[str, Any]) -> Any:
        if args["PodName"] == "held":
            await release.wait()
        return extender.bind_it(args)

    extender.bind = bind
    async with scheduling(api, extender):
        create(api, "held")
        await until(lambda: extender.asked("bind", "held"), "in bind")
        create(api, "other")
        await until(lambda: node_of(api, "other"), "the other is bound")
        annotate(api, "held", "1")
        await asyncio.sleep(0.2)
        assert len(extender.asked("filter", "held")) == 1, "an assumed pod is not asked again"
        assert not node_of(api, "held")
        release.set()
        await until(lambda: node_of(api, "held"), "the held one is bound")


async def test_what_an_assumed_pod_asks_counts_on_its_node(api: Api, extender: Extender) -> None:
    add_nodes(api, "a", cpu="2")
    hold = asyncio.Event()
    extender.bind = lambda _: hold.wait()
    async with scheduling(api, extender):
        create(api, "held", a_container(cpu="2"))
        await until(lambda: extender.asked("bind", "held"), "in bind")
        create(api, "other", a_container(cpu="1"))
        await until(lambda: "Insufficient cpu" in scheduled_condition(api, "other").get("message", ""), "refused")


async def test_a_bind_error_is_a_scheduler_error_retried_by_itself(api: Api, extender: Extender) -> None:
    add_nodes(api, "a")
    extender.bind = lambda _: {"Error": "conflict on GPU 3"}
    async with scheduling(api, extender, podInitialBackoffSeconds=3):
        create(api, "p")
        await until(lambda: scheduled_condition(api, "p"), "condition")
        condition = scheduled_condition(api, "p")
        assert (condition["reason"], condition["message"]) == ("SchedulerError", "conflict on GPU 3")
        annotate(api, "p", "no effect")
        extender.bind = extender.bind_it
        assert len(extender.asked("filter")) == 1
        await until(lambda: node_of(api, "p"), "bound at the second try")


async def test_a_bind_that_fails_again_and_again_waits_longer_each_time(api: Api, extender: Extender) -> None:
    add_nodes(api, "a")
    extender.bind = lambda _: {"Error": "not yet"}
    times: list[float] = []

    def filtered(args: dict[str, Any]) -> Any:
        times.append(time.monotonic())
        return {"NodeNames": args["NodeNames"]}

    extender.filter = filtered
    async with scheduling(api, extender, podMaxBackoffSeconds=2):
        create(api, "p")
        await until(lambda: len(times) == 4, "asked four times", timeout=15)
    waits = [after - before for before, after in pairwise(times)]
    assert waits[0] > 0
    assert all(1 < wait <= 2.5 for wait in waits[1:]), waits  # the limit is 2, on windows of a second


async def test_binds_run_side_by_side_with_a_timeout_of_their_own_entry(api: Api, extender: Extender) -> None:
    add_nodes(api, "a")
    arrived = asyncio.Barrier(20)

    async def bind(args: dict[str, Any]) -> Any:
        await arrived.wait()
        await asyncio.sleep(0.5)  # longer than the other entry's timeout
        return extender.bind_it(args)

    extender.bind = bind
    async with scheduling(api, extender, split=True, timeout="300ms"):
        for i in range(20):
            create(api, f"p{i}")
        await until(lambda: all(node_of(api, f"p{i}") for i in range(20)), "all are bound at the first try")
    assert len(extender.asked("bind")) == 20


async def test_a_pod_deleted_in_its_bind_keeps_what_it_was_given_until_the_bind_ends(
    api: Api, extender: Extender
) -> None:
    add_nodes(api, "a", cpu="2")
    release = asyncio.Event()

    async def bind(args: dict[str, Any]) -> Any:
        if args["PodName"] == "held":
            await release.wait()
            return {"Error": 'pods "held" not found'}
        return extender.bind_it(args)

    extender.bind = bind
    async with scheduling(api, extender):
        create(api, "held", a_container(cpu="2"))
        await until(lambda: extender.asked("bind", "held"), "in bind")
        api.delete(PODS, ("default", "held"), {})
        create(api, "other", a_container(cpu="2"))
        await until(lambda: "Insufficient cpu" in scheduled_condition(api, "other").get("message", ""), "refused")
        release.set()
        await until(lambda: node_of(api, "other"), "bound when the bind has ended")


async def test_a_bind_that_took_but_whose_answer_was_lost_leaves_the_pod_on_its_node(
    api: Api, extender: Extender
) -> None:
    add_nodes(api, "a", cpu="2")

    async def bind(args: dict[str, Any]) -> Any:
        extender.bind_it(args)
        await asyncio.sleep(5)

    extender.bind = bind
    async with scheduling(api, extender, timeout="300ms"):
        create(api, "p", a_container(cpu="2"))
        await until(lambda: node_of(api, "p"), "bound")
        await asyncio.sleep(0.5)
        create(api, "q", a_container(cpu="2"))
        await until(lambda: "Insufficient cpu" in scheduled_condition(api, "q").get("message", ""), "still counted")
        assert len(extender.asked("bind")) == 1


async def test_a_failed_bind_takes_the_nomination_back(api: Api, extender: Extender) -> None:
    add_nodes(api, "a", "b")
    extender.bind = lambda _: {"Error": "no"}
    extender.filter = lambda _: {"NodeNames": [], "FailedNodes": {"*": "waits"}}
    async with scheduling(api, extender):
        create(api, "p")
        await settled(extender)
        extender.filter = lambda args: {"NodeNames": args["NodeNames"]}
        nominate(api, "p", "b")
        await until(lambda: scheduled_condition(api, "p").get("reason") == "SchedulerError", "bind failed")
        status = api.get(PODS, ("default", "p")).obj["status"]
        assert "nominatedNodeName" not in status


async def test_a_nominated_node_that_refuses_is_followed_by_the_others(api: Api, extender: Extender) -> None:
    add_nodes(api, "a", "b")
    extender.filter = lambda _: {"NodeNames": [], "FailedNodes": {"*": "waits"}}
    async with scheduling(api, extender):
        create(api, "p")
        await settled(extender)
        extender.calls.clear()
        nominate(api, "p", "b")
        await settled(extender)
    assert [sorted(args["NodeNames"]) for args in extender.asked("filter")] == [["b"], ["a", "b"]]


async def test_what_a_nominated_pod_asks_is_kept_from_others_of_its_priority(api: Api, extender: Extender) -> None:
    add_nodes(api, "a", cpu="2")
    extender.filter = lambda args: {"NodeNames": [] if args["Pod"]["metadata"]["name"] == "p" else args["NodeNames"]}
    async with scheduling(api, extender):
        create(api, "p", a_container(cpu="2"))
        await settled(extender)
        nominate(api, "p", "a")
        await settled(extender)
        create(api, "q", a_container(cpu="1"))
        await until(lambda: "Insufficient cpu" in scheduled_condition(api, "q").get("message", ""), "refused")
        api.delete(PODS, ("default", "p"), {})
        await until(lambda: node_of(api, "q"), "bound when the nominated pod is gone")


async def test_each_profile_has_its_name_and_its_own_ignored_resources(api: Api, extender: Extender) -> None:
    add_nodes(api, "a")
    plugins = [{"name": "NodeResourcesFit", "args": {"ignoredResources": ["nvidia.com/gpu"]}}]
    profiles = [{"schedulerName": name, "pluginConfig": plugins} for name in ("gangshare", "volcano", "kube-batch")]
    async with scheduling(api, extender, profiles=[*profiles, {"schedulerName": "strict"}]):
        for name in ("gangshare", "volcano", "kube-batch", "strict", "nobody"):
            create(api, name, a_container(**{"nvidia.com/gpu": 1}), schedulerName=name)
        for name in ("gangshare", "volcano", "kube-batch"):
            await until(lambda name=name: node_of(api, name) == "a", f"{name} is bound")  # type: ignore[misc]
        await until(lambda: "Insufficient nvidia.com/gpu" in scheduled_condition(api, "strict")["message"], "refused")
        names = {"gangshare", "volcano", "kube-batch", "strict"}
        await until(lambda: {i.obj["source"]["component"] for i in api.store.items(EVENTS)} == names, "told by each")
        assert scheduled_condition(api, "nobody") == {}


async def test_a_bind_is_given_up_after_the_timeout_of_its_entry(api: Api, extender: Extender) -> None:
    add_nodes(api, "a")
    hold = asyncio.Event()
    extender.bind = lambda _: hold.wait()
    async with scheduling(api, extender, timeout="300ms"):
        create(api, "p")
        await until(lambda: scheduled_condition(api, "p"), "condition")
        assert scheduled_condition(api, "p")["reason"] == "SchedulerError"


@pytest.mark.parametrize("answer", [None, {"Error": "books not ready"}, {"NodeNames": ["stranger"]}, []])
async def test_a_filter_that_goes_wrong_is_a_scheduler_error(api: Api, extender: Extender, answer: Any) -> None:
    add_nodes(api, "a")
    extender.filter = lambda _: answer
    async with scheduling(api, extender):
        create(api, "p")
        await until(lambda: scheduled_condition(api, "p"), "condition")
        assert scheduled_condition(api, "p")["reason"] == "SchedulerError"
        extender.filter = lambda args: {"NodeNames": args["NodeNames"]}
        await until(lambda: node_of(api, "p"), "bound without any event")


async def test_taints_selectors_and_names_of_other_schedulers_are_respected(api: Api, extender: Extender) -> None:
    add_nodes(api, "plain", "gpu")
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    api.patch(NODES, ("", "gpu"), {"spec": {"taints": [taint]}, "metadata": {"labels": {"kind": "gpu"}}}, MERGE, ME)
    async with scheduling(api, extender):
        create(api, "refused", nodeSelector={"kind": "gpu"})
        create(api, "tolerant", nodeSelector={"kind": "gpu"}, tolerations=[{"key": "gpu", "operator": "Exists"}])
        create(api, "foreign", schedulerName="other")
        await until(lambda: node_of(api, "tolerant") == "gpu", "bound")
        await until(lambda: scheduled_condition(api, "refused"), "refused")
        message = scheduled_condition(api, "refused")["message"]
        assert "1 node(s) had untolerated taint {gpu: yes}" in message
        assert "1 node(s) didn't match Pod's node affinity/selector" in message
        assert scheduled_condition(api, "foreign") == {}


async def test_a_port_of_a_node_is_given_to_one_pod(api: Api, extender: Extender) -> None:
    add_nodes(api, "a")
    port = {**a_container(), "ports": [{"containerPort": 80, "hostPort": 8080}]}
    async with scheduling(api, extender):
        create(api, "first", port)
        await until(lambda: node_of(api, "first"), "bound")
        create(api, "second", port)
        await until(lambda: "free ports" in scheduled_condition(api, "second").get("message", ""), "refused")
        assert extender.asked("filter", "second") == []
        api.delete(PODS, ("default", "first"), {"gracePeriodSeconds": 0})
        await until(lambda: node_of(api, "second"), "bound when the port is free")


async def test_a_gated_pod_is_not_shown_until_its_gate_goes(api: Api, extender: Extender) -> None:
    add_nodes(api, "a")
    async with scheduling(api, extender):
        create(api, "p", schedulingGates=[{"name": "gangshare.io/plan"}])
        await settled(extender)
        assert extender.calls == []
        api.patch(PODS, ("default", "p"), {"spec": {"schedulingGates": None}}, MERGE, ME)
        await until(lambda: node_of(api, "p"), "bound")


async def test_the_lease_names_the_host_and_passes_on_when_it_is_given_up(api: Api, extender: Extender) -> None:
    async with scheduling(api, extender):
        lease = api.get(LEASES, ("kube-system", "kube-scheduler")).obj["spec"]
        assert lease["holderIdentity"].startswith("host_")
        renewed = lease["renewTime"]
        await until(
            lambda: api.get(LEASES, ("kube-system", "kube-scheduler")).obj["spec"]["renewTime"] > renewed, "renewed"
        )
    assert api.get(LEASES, ("kube-system", "kube-scheduler")).obj["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": "red"}, "colour"),
        ({"extenders": [{"urlPrefix": "http://x", "prioritizeVerb": "p"}]}, "positive weight"),
        ({"extenders": [{"urlPrefix": "http://x", "bindVerb": "b"}] * 2}, "multiple extenders with a bindVerb"),
        ({"extenders": [{"urlPrefix": "http://x", "httpTimeout": "soon"}]}, "soon"),
        ({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds"),
        ({"profiles": [{"schedulerName": "a", "pluginConfig": [{"name": "NodeResourcesFit", "args": {"x": 1}}]}]}, "x"),
    ],
)
def test_a_configuration_that_kube_scheduler_refuses_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(config.ConfigError, match=words):
        config.parse(a_config(**change))

"""Binding, eviction and graceful deletion of pods."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from google.protobuf.message import Message

from extender.sim.apiserver import bodies
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.errors import ApiError
from protos.kube.binding import MAGIC
from protos.kube.binding_pb2 import Binding, ObjectMeta, TypeMeta, Unknown
from protos.kube.client import PROTOBUF
from protos.kube.eviction_pb2 import DeleteOptions, Eviction
from tests.sim.builders import a_container, a_pod
from tests.sim.conftest import PODS, Client


def a_binding(name: str, node: str = "node-1", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}


async def test_a_binding_sets_node_annotations_and_condition_in_one_write(client: Client) -> None:
    _, pod = await client.post(PODS, a_pod("p", annotations={"kept": "1", "over": "1"}))
    code, status = await client.post(f"{PODS}/p/binding", a_binding("p", annotations={"over": "2", "new": "2"}))
    assert (code, status["kind"], status["status"]) == (201, "Status", "Success")
    version = int(pod["metadata"]["resourceVersion"])
    events = await client.watch(f"/api/v1/pods?watch=1&resourceVersion={version}", count=1)
    bound = events[0]["object"]
    assert bound["spec"]["nodeName"] == "node-1"
    assert bound["metadata"]["annotations"] == {"kept": "1", "over": "2", "new": "2"}
    condition = bound["status"]["conditions"][0]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_annotations_of_a_binding_leave_no_managed_fields_entry(client: Client) -> None:
    _, pod = await client.post(PODS, a_pod("p"))
    await client.post(f"{PODS}/p/binding", a_binding("p", annotations={"a": "b"}))
    _, bound = await client.get(f"{PODS}/p")
    assert bound["metadata"]["managedFields"] == pod["metadata"]["managedFields"]


async def test_a_pod_is_bound_once(client: Client) -> None:
    await client.post(PODS, a_pod("p"))
    await client.post(f"{PODS}/p/binding", a_binding("p"))
    code, status = await client.post(f"{PODS}/p/binding", a_binding("p", "node-2"))
    assert code == 409
    assert status["message"] == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "node-1"'
    )


async def test_a_binding_keeps_its_preconditions(client: Client) -> None:
    _, pod = await client.post(PODS, a_pod("p"))
    assert (await client.post(f"{PODS}/p/binding", a_binding("p", uid="another")))[0] == 409
    assert (await client.post(f"{PODS}/p/binding", a_binding("p", resourceVersion="1")))[0] == 409
    assert (await client.post(f"{PODS}/p/binding", a_binding("other")))[0] == 400
    assert (await client.post(f"{PODS}/nobody/binding", a_binding("nobody")))[0] == 404
    assert (await client.post(f"{PODS}/p/binding", a_binding("p", uid=pod["metadata"]["uid"])))[0] == 201


async def test_a_gated_pod_cannot_be_bound(client: Client) -> None:
    _, pod = await client.post(PODS, a_pod("p", schedulingGates=[{"name": "g"}]))
    assert pod["status"]["conditions"][0]["reason"] == "SchedulingGated"
    code, status = await client.post(f"{PODS}/p/binding", a_binding("p"))
    assert code == 409
    assert "non-empty .spec.schedulingGates" in status["message"]


async def test_an_unbound_pod_goes_at_once_and_a_bound_one_when_the_kubelet_confirms(client: Client) -> None:
    await client.post(PODS, a_pod("unbound"))
    await client.delete(f"{PODS}/unbound")
    assert (await client.get(f"{PODS}/unbound"))[0] == 404
    await client.post(PODS, a_pod("bound", nodeName="node-1"))
    _, pod = await client.delete(f"{PODS}/bound", {"gracePeriodSeconds": 20})
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 20
    assert "deletionTimestamp" in pod["metadata"]
    _, again = await client.delete(f"{PODS}/bound", {"gracePeriodSeconds": 40})
    assert again["metadata"]["deletionGracePeriodSeconds"] == 20
    code, status = await client.post(f"{PODS}/bound/binding", a_binding("bound"))
    assert (code, "being deleted" in status["message"]) == (409, True)
    wrong = {"gracePeriodSeconds": 0, "preconditions": {"uid": "another"}}
    assert (await client.delete(f"{PODS}/bound", wrong))[0] == 409
    right = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
    assert (await client.delete(f"{PODS}/bound", right))[0] == 200
    assert (await client.get(f"{PODS}/bound"))[0] == 404


BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def a_budget(name: str = "b", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "x"}}, **spec}}


def an_eviction(name: str, **options: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "deleteOptions": options}


async def run(client: Client, *names: str, ready: str = "True") -> None:
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}}
    for name in names:
        await client.post(PODS, a_pod(name, labels={"app": "x"}, nodeName="node-1"))
        await client.patch(f"{PODS}/{name}/status", status)


async def test_a_disruption_budget_blocks_an_eviction_until_there_are_spare_pods(client: Client) -> None:
    await client.post(BUDGETS, a_budget(minAvailable=2))
    await run(client, "a", "b")
    code, status = await client.post(f"{PODS}/a/eviction", an_eviction("a"))
    assert (code, status["reason"], status["details"]["causes"][0]["reason"]) == (
        429, "TooManyRequests", "DisruptionBudget",
    )  # fmt: skip
    await run(client, "c")
    assert (await client.post(f"{PODS}/a/eviction", an_eviction("a")))[0] == 201
    assert "deletionTimestamp" in (await client.get(f"{PODS}/a"))[1]["metadata"]


async def test_an_evicted_pod_says_so(client: Client) -> None:
    await run(client, "a")
    assert (await client.post(f"{PODS}/a/eviction", an_eviction("a", gracePeriodSeconds=5)))[0] == 201
    _, pod = await client.get(f"{PODS}/a")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 5
    told = [c for c in pod["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert [(c["status"], c["reason"]) for c in told] == [("True", "EvictionByEvictionAPI")]


async def test_an_eviction_keeps_its_preconditions_and_names_its_pod(client: Client) -> None:
    await run(client, "a")
    _, pod = await client.get(f"{PODS}/a")
    wrong = an_eviction("a", preconditions={"uid": "another"})
    assert (await client.post(f"{PODS}/a/eviction", wrong))[0] == 409
    assert "conditions" in pod["status"]
    assert (await client.get(f"{PODS}/a"))[1] == pod, "nothing of it was written"
    assert (await client.post(f"{PODS}/a/eviction", an_eviction("b")))[0] == 400
    right = an_eviction("a", preconditions={"uid": pod["metadata"]["uid"]})
    assert (await client.post(f"{PODS}/a/eviction", right))[0] == 201
    assert (await client.post(f"{PODS}/nobody/eviction", an_eviction("nobody")))[0] == 404


async def test_two_budgets_over_one_pod_are_more_than_an_eviction_can_take(client: Client) -> None:
    await client.post(BUDGETS, a_budget("b", minAvailable=0))
    await client.post(BUDGETS, a_budget("c", minAvailable=0))
    await run(client, "a")
    code, status = await client.post(f"{PODS}/a/eviction", an_eviction("a"))
    assert (code, "more than one PodDisruptionBudget" in status["message"]) == (500, True)


async def test_an_unready_pod_may_go_when_the_healthy_ones_suffice_or_the_budget_lets_it(client: Client) -> None:
    await client.post(BUDGETS, a_budget(minAvailable=1))
    await run(client, "sick", ready="False")
    assert (await client.post(f"{PODS}/sick/eviction", an_eviction("sick")))[0] == 429
    await run(client, "well")
    assert (await client.post(f"{PODS}/sick/eviction", an_eviction("sick")))[0] == 201
    await client.delete(f"{BUDGETS}/b")
    await client.post(BUDGETS, a_budget(minAvailable=5, unhealthyPodEvictionPolicy="AlwaysAllow"))
    await run(client, "ill", ready="False")
    assert (await client.post(f"{PODS}/ill/eviction", an_eviction("ill")))[0] == 201


async def test_a_pod_that_does_not_run_may_always_go(client: Client) -> None:
    await client.post(BUDGETS, a_budget(minAvailable=5))
    await client.post(PODS, a_pod("waiting", labels={"app": "x"}))
    assert (await client.post(f"{PODS}/waiting/eviction", an_eviction("waiting")))[0] == 201
    assert (await client.get(f"{PODS}/waiting"))[0] == 404


async def test_a_log_is_that_of_the_only_container_unless_one_is_asked_for(client: Client, api: Api) -> None:
    api.log_of = lambda pod, container: f"{pod['metadata']['name']} {container}"
    await client.post(PODS, a_pod("one", a_container("main")))
    await client.post(PODS, a_pod("two", a_container("a"), a_container("b")))
    assert await client.get(f"{PODS}/one/log") == (200, "one main")
    assert await client.get(f"{PODS}/two/log?container=b") == (200, "two b")
    code, refused = await client.get(f"{PODS}/two/log")
    assert (code, refused["reason"]) == (400, "BadRequest")
    assert "a container name must be specified for pod two, choose one of: ['a', 'b']" in refused["message"]


async def test_a_proxied_get_reaches_the_first_port_of_the_pod(client: Client) -> None:
    async def page(request: web.Request) -> web.Response:
        return web.json_response({"path": request.path})

    app = web.Application()
    app.router.add_get("/{any:.*}", page)
    async with TestServer(app) as server:
        ports = [{"containerPort": server.port}, {"containerPort": 1}]
        await client.post(PODS, a_pod("p", {**a_container("main"), "ports": ports}))
        await client.patch(f"{PODS}/p/status", {"status": {"podIP": "127.0.0.1"}})
        assert await client.get(f"{PODS}/p/proxy/usage") == (200, {"path": "/usage"})
    code, status = await client.get(f"{PODS}/p/proxy/usage")
    assert (code, status["reason"]) == (503, "ServiceUnavailable")
    assert (await client.get(f"{PODS}/nobody/proxy/usage"))[0] == 404


async def test_kubectl_drain_evicts_and_does_not_delete(client: Client) -> None:
    """It asks discovery first, and sends protobuf."""
    _, found = await client.get("/api/v1")
    (eviction,) = [one for one in found["resources"] if one["name"] == "pods/eviction"]
    assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")
    whole = Eviction(metadata=ObjectMeta(name="a"), delete_options=DeleteOptions(grace_period_seconds=7))
    body = bodies.decoded(sent("Eviction", whole), PROTOBUF)
    assert body == {"metadata": {"name": "a"}, "deleteOptions": {"gracePeriodSeconds": 7}}
    assert bodies.decoded(sent("DeleteOptions", DeleteOptions(grace_period_seconds=0)), PROTOBUF) == {
        "gracePeriodSeconds": 0
    }


def sent(kind: str, message: Message) -> bytes:
    return MAGIC + Unknown(type_meta=TypeMeta(kind=kind), raw=message.SerializeToString()).SerializeToString()


@pytest.mark.parametrize(
    ("body", "why"),
    [(b"{}", "before protobuf"), (b"k8s\0\xff", "cannot be decoded"), (sent("Pod", Binding()), "got Pod")],
)
def test_a_body_that_is_none_of_these_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(ApiError, match=why):
        bodies.decoded(body, PROTOBUF)

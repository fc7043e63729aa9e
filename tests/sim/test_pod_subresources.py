"""Binding, eviction and graceful deletion of pods."""

from __future__ import annotations

from typing import Any

from tests.sim.builders import a_pod
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


async def test_a_disruption_budget_blocks_an_eviction_until_there_are_spare_pods(client: Client) -> None:
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "x"}}}}
    await client.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    for name in ("a", "b"):
        await client.post(PODS, a_pod(name, labels={"app": "x"}, nodeName="node-1"))
        await client.patch(f"{PODS}/{name}/status", ready)
    code, status = await client.post(f"{PODS}/a/eviction", {"metadata": {"name": "a"}})
    assert (code, status["reason"], status["details"]["causes"][0]["reason"]) == (
        429, "TooManyRequests", "DisruptionBudget",
    )  # fmt: skip
    await client.post(PODS, a_pod("c", labels={"app": "x"}, nodeName="node-1"))
    await client.patch(f"{PODS}/c/status", ready)
    assert (await client.post(f"{PODS}/a/eviction", {"metadata": {"name": "a"}}))[0] == 201
    assert "deletionTimestamp" in (await client.get(f"{PODS}/a"))[1]["metadata"]

"""Objects over HTTP: create, update, patch, delete, and the refusals in the words of the real server."""

from __future__ import annotations

from typing import Any

import pytest

from extender.sim.apiserver import errors
from extender.sim.apiserver.http import ApiServer
from tests.sim.builders import a_container, a_node, a_pod
from tests.sim.conftest import PODS, STRATEGIC, Client

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


async def test_a_created_pod_has_uid_defaults_and_phase_pending(client: Client) -> None:
    code, pod = await client.post(PODS, {**a_pod("p", a_container(gpu=2)), "kind": "Pod", "apiVersion": "v1"})
    assert code == 201
    assert pod["kind"] == "Pod"
    assert pod["metadata"]["uid"]
    assert pod["status"]["phase"] == "Pending"
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"] == {"example.com/gpu": "2"}


async def test_generate_name_makes_a_fresh_name(client: Client) -> None:
    manifest = {"metadata": {"generateName": "job-"}, "spec": {"containers": [a_container()]}}
    first, second = [(await client.post(PODS, manifest))[1]["metadata"]["name"] for _ in range(2)]
    assert first.startswith("job-")
    assert first != second


@pytest.mark.parametrize(
    ("body", "code", "reason", "words"),
    [
        (a_pod("taken"), 409, "AlreadyExists", 'pods "taken" already exists'),
        ({"metadata": {}}, 422, "Invalid", "name or generateName is required"),
        ({"metadata": {"name": "Capital"}, "spec": {}}, 422, "Invalid", "RFC 1123"),
        ({"metadata": {"name": "p", "namespace": "other"}}, 400, "BadRequest", "does not match the namespace"),
        ({"metadata": {"name": "p"}, "kind": "Node"}, 400, "BadRequest", "cannot be handled as a Pod"),
        (a_pod("p", {"name": "c", "resources": {"requests": {"x.io/y": 1}}}), 422, "Invalid", "non overcommitable"),
        (a_pod("p", schedulingGates=[{"name": "g"}], nodeName="n"), 422, "Invalid", "spec.nodeName"),
    ],
)
async def test_a_pod_that_cannot_be_is_refused(
    client: Client, body: dict[str, Any], code: int, reason: str, words: str
) -> None:
    await client.post(PODS, a_pod("taken"))
    found, status = await client.post(PODS, body)
    assert (found, status["kind"], status["status"], status["reason"], status["code"]) == (
        code, "Status", "Failure", reason, code,
    )  # fmt: skip
    assert words in status["message"]


async def test_what_does_not_exist_is_not_found(client: Client) -> None:
    code, status = await client.get(f"{PODS}/nobody")
    assert code == 404
    assert status["message"] == 'pods "nobody" not found'
    assert status["details"] == {"name": "nobody", "kind": "pods"}
    assert await client.get("/api/v1/unicorns") == (404, "404 page not found\n")
    assert (await client.post("/api/v1/namespaces/nowhere/pods", a_pod("p")))[0] in (400, 404)


async def test_an_update_with_an_old_resource_version_conflicts(client: Client) -> None:
    _, pod = await client.post(PODS, a_pod("p"))
    await client.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
    code, status = await client.put(f"{PODS}/p", pod)
    assert code == 409
    assert status["message"] == (
        'Operation cannot be fulfilled on pods "p": the object has been modified; please apply your changes to the '
        "latest version and try again"
    )


async def test_a_lease_cannot_be_updated_without_a_resource_version(client: Client) -> None:
    _, lease = await client.post(LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})
    del lease["metadata"]["resourceVersion"]
    assert (await client.put(f"{LEASES}/l", lease))[0] == 422


async def test_a_patch_that_carries_an_old_resource_version_conflicts_and_one_with_another_uid_is_invalid(
    client: Client,
) -> None:
    _, pod = await client.post(PODS, a_pod("p"))
    await client.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
    for wrong, refusal in (
        ({"resourceVersion": pod["metadata"]["resourceVersion"]}, (409, "Conflict")),
        ({"uid": "another"}, (422, "Invalid")),
    ):
        code, status = await client.patch(f"{PODS}/p", {"metadata": {**wrong, "labels": {"a": "c"}}})
        assert (code, status["reason"]) == refusal


async def test_a_write_that_changes_nothing_makes_no_new_version(client: Client) -> None:
    await client.post(PODS, a_pod("p", labels={"a": "b"}))
    _, before = await client.get(f"{PODS}/p")
    _, after = await client.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_the_spec_of_a_pod_is_fixed_but_its_gates_may_go(client: Client) -> None:
    await client.post(PODS, a_pod("p", schedulingGates=[{"name": "a"}, {"name": "b"}]))
    assert (await client.patch(f"{PODS}/p", {"spec": {"nodeSelector": {"a": "b"}}}))[0] == 422
    code, pod = await client.patch(f"{PODS}/p", {"spec": {"schedulingGates": [{"name": "b"}]}})
    assert (code, pod["spec"]["schedulingGates"]) == (200, [{"name": "b"}])
    assert (await client.patch(f"{PODS}/p", {"spec": {"schedulingGates": [{"name": "c"}]}}))[0] == 422


async def test_the_status_subresource_writes_status_and_annotations_but_not_spec(client: Client) -> None:
    await client.post(PODS, a_pod("p"))
    body = {"metadata": {"annotations": {"a": "b"}}, "spec": {"nodeName": "stolen"}, "status": {"phase": "Running"}}
    code, pod = await client.patch(f"{PODS}/p/status", body)
    assert code == 200
    assert pod["metadata"]["annotations"] == {"a": "b"}
    assert pod["status"]["phase"] == "Running"
    assert "nodeName" not in pod["spec"]


async def test_the_main_resource_does_not_write_status(client: Client) -> None:
    await client.post(PODS, a_pod("p"))
    _, pod = await client.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}})
    assert pod["status"]["phase"] == "Pending"


async def test_conditions_merge_by_type_under_a_strategic_patch(client: Client) -> None:
    await client.post("/api/v1/nodes", a_node())
    body = {"status": {"conditions": [{"type": "DiskPressure", "status": "False"}]}}
    _, node = await client.patch("/api/v1/nodes/node-1/status", body, STRATEGIC)
    assert [c["type"] for c in node["status"]["conditions"]] == ["Ready", "DiskPressure"]


async def test_an_edit_of_an_annotation_shows_who_made_it_and_how(client: Client) -> None:
    await client.post(PODS, a_pod("p", annotations={"a": "1"}))
    await client.patch(f"{PODS}/p/status", {"metadata": {"annotations": {"a": "2"}}}, agent="gangshare-plugin/0.1")
    _, pod = await client.get(f"{PODS}/p")
    owners = {
        (e["manager"], e["operation"], e.get("subresource"))
        for e in pod["metadata"]["managedFields"]
        if "f:a" in e["fieldsV1"].get("f:metadata", {}).get("f:annotations", {})
    }
    assert owners == {("gangshare-plugin", "Update", "status")}


async def test_requests_can_be_made_to_fail(client: Client, server: ApiServer) -> None:
    def refuse(method: str, path: str) -> errors.ApiError | None:
        bind = method == "POST" and path.endswith("/binding")
        return errors.ApiError(503, "ServiceUnavailable", "not today") if bind else None

    server.refuse = refuse
    await client.post(PODS, a_pod("p"))
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node-1"}}
    code, status = await client.post(f"{PODS}/p/binding", binding)
    assert (code, status["message"]) == (503, "not today")
    server.refuse = lambda _method, _path: None
    assert (await client.post(f"{PODS}/p/binding", binding))[0] == 201


async def test_a_quota_counts_gpu_memory_and_refuses_what_passes_it(client: Client) -> None:
    hard = {"requests.gangshare.io/gpu-mem": "24"}
    quotas = "/api/v1/namespaces/default/resourcequotas"
    await client.post(quotas, {"metadata": {"name": "gpus"}, "spec": {"hard": hard}})
    ask = {"gangshare.io/gpu-mem": 20}
    assert (await client.post(PODS, a_pod("first", a_container(**ask))))[0] == 201
    code, status = await client.post(PODS, a_pod("second", a_container(**ask)))
    assert (code, status["reason"]) == (403, "Forbidden")
    name = "requests.gangshare.io/gpu-mem"
    assert status["message"] == (
        f'pods "second" is forbidden: exceeded quota: gpus, requested: {name}=20, used: {name}=20, limited: {name}=24'
    )
    assert (await client.get(f"{quotas}/gpus"))[1]["status"]["used"] == {name: "20"}
    await client.delete(f"{PODS}/first")
    assert (await client.get(f"{quotas}/gpus"))[1]["status"]["used"] == {name: "0"}
    assert (await client.post(PODS, a_pod("second", a_container(**ask))))[0] == 201

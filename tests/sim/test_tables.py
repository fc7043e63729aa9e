"""What `kubectl get` shows: tables with the columns that kube-apiserver has, and those of CustomResourceDefinitions."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.sim import podspec
from extender.sim.apiserver import printers
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.http import ApiServer
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import CRDS, JOBS, NODES, PODS
from extender.sim.events import Recorder
from tests.sim.builders import a_container, a_node, a_pod
from tests.sim.conftest import PODS as PODS_PATH
from tests.sim.conftest import Client
from tests.sim.test_custom import DEFINITIONS, a_definition

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
WRITER = Writer("tester")
NEW = ("0s", "1s", "2s")
DEFINED = Path(__file__).parents[2] / "manifests" / "base" / "extender"


async def table(client: Client, path: str, accept: str = TABLE) -> Any:
    async with client.session.get(path, headers={"Accept": accept}) as answer:
        assert answer.status == 200
        return json.loads(await answer.text())


def shown(found: Any) -> list[dict[str, Any]]:
    """The rows by the names of the columns."""
    heads = [column["name"] for column in found["columnDefinitions"]]
    return [dict(zip(heads, row["cells"], strict=True)) for row in found["rows"]]


def pod(api: Api, name: str, status: dict[str, Any] | None = None, **spec: Any) -> None:
    made = api.create(PODS, "default", a_pod(name, **spec), WRITER)
    if status:
        api.update(PODS, made.key, {**made.obj, "status": status}, Writer("kubelet", "status"))


async def test_pods_are_a_table_with_the_usual_columns(client: Client, api: Api) -> None:
    pod(api, "waits")
    up = {"ready": True, "restartCount": 2, "state": {"running": {}}}
    pod(api, "works", {"phase": "Running", "podIP": "10.0.0.7", "containerStatuses": [up]}, nodeName="n1")
    found = await table(client, PODS_PATH)
    assert (found["kind"], found["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [(c["name"], c["priority"]) for c in found["columnDefinitions"]] == [
        ("Name", 0), ("Ready", 0), ("Status", 0), ("Restarts", 0), ("Age", 0),
        ("IP", 1), ("Node", 1), ("Nominated Node", 1),
    ]  # fmt: skip
    waits, works = shown(found)
    assert (waits["Ready"], waits["Status"], waits["Node"]) == ("0/1", "Pending", "<none>")
    assert waits["Age"] in NEW
    assert (works["Ready"], works["Status"], works["Restarts"], works["Node"]) == ("1/1", "Running", "2", "n1")
    assert found["rows"][0]["object"]["metadata"]["name"] == "waits"


CREATING = {"state": {"waiting": {"reason": "ContainerCreating"}}}
DONE = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
FAILED = {"state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
UP: dict[str, Any] = {"ready": True, "started": True, "state": {"running": {}}}
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"phase": "Pending", "containerStatuses": [CREATING]}, "ContainerCreating"),
        ({"phase": "Succeeded", "containerStatuses": [DONE]}, "Completed"),
        ({"phase": "Running", "containerStatuses": [DONE, UP]}, "Running"),
        ({"phase": "Running", "containerStatuses": [FAILED, UP]}, "Error"),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, "UnexpectedAdmissionError"),
        ({"phase": "Pending", "conditions": [GATED]}, "SchedulingGated"),
        ({"phase": "Pending", "initContainerStatuses": [DONE, UP], "containerStatuses": [CREATING]}, "Init:1/2"),
        ({"phase": "Pending", "initContainerStatuses": [FAILED], "containerStatuses": [CREATING]}, "Init:Error"),
    ],
)
async def test_the_status_of_a_pod_tells_why_it_does_not_run(
    client: Client, api: Api, status: dict[str, Any], told: str
) -> None:
    pod(api, "p", status, initContainers=[a_container("i"), a_container("j")])
    assert [row["Status"] for row in shown(await table(client, PODS_PATH))] == [told]


async def test_a_pod_that_is_deleted_terminates(client: Client, api: Api) -> None:
    pod(api, "p", nodeName="n1")
    api.delete(PODS, ("default", "p"), {})
    assert [row["Status"] for row in shown(await table(client, PODS_PATH))] == ["Terminating"]


async def test_nodes_tell_whether_they_are_ready(client: Client, api: Api) -> None:
    api.create(NODES, "", a_node("ready"), WRITER)
    cordoned = a_node("cordoned")
    cordoned["metadata"]["labels"] = {"node-role.kubernetes.io/control-plane": ""}
    api.create(NODES, "", {**cordoned, "spec": {"unschedulable": True}, "status": {}}, WRITER)
    cordoned, ready = shown(await table(client, "/api/v1/nodes"))
    assert (ready["Status"], ready["Roles"]) == ("Ready", "<none>")
    assert (cordoned["Status"], cordoned["Roles"]) == ("Unknown,SchedulingDisabled", "control-plane")


async def test_events_come_without_their_names(client: Client, api: Api) -> None:
    pod(api, "p")
    Recorder(api, "tester", "here").record(
        PODS, api.get(PODS, ("default", "p")).obj, "Warning", "NoRoom", "no room", "Scheduling"
    )
    (row,) = shown(found := await table(client, "/api/v1/namespaces/default/events"))
    assert [c["name"] for c in found["columnDefinitions"] if not c["priority"]] == list(row)[:5]
    assert (row["Type"], row["Reason"], row["Object"], row["Message"]) == ("Warning", "NoRoom", "pod/p", "no room")


async def test_jobs_tell_how_many_of_their_pods_have_succeeded(client: Client, api: Api) -> None:
    template = {"spec": a_pod("any")["spec"]}
    api.create(JOBS, "default", {"metadata": {"name": "j"}, "spec": {"completions": 3, "template": template}}, WRITER)
    (row,) = shown(await table(client, "/apis/batch/v1/namespaces/default/jobs"))
    assert (row["Name"], row["Status"], row["Completions"]) == ("j", "Running", "0/3")
    (job,) = api.store.items(JOBS)
    status = {"succeeded": 3, "conditions": [{"type": "Complete", "status": "True"}]}
    api.update(JOBS, job.key, {**job.obj, "status": status}, Writer("controller", "status"))
    (row,) = shown(await table(client, "/apis/batch/v1/namespaces/default/jobs"))
    assert (row["Status"], row["Completions"]) == ("Complete", "3/3")


async def test_a_custom_resource_has_the_columns_of_its_definition(client: Client) -> None:
    definition = a_definition("status")
    accepted = '.status.conditions[?(@.type=="Accepted")].status'
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = [
        {"name": "Minimum", "type": "integer", "jsonPath": ".spec.minMember"},
        {"name": "Accepted", "type": "string", "jsonPath": accepted},
        {"name": "Cpu", "type": "string", "jsonPath": r".spec.minResources.example\.com/cpu", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True,
    }  # fmt: skip
    assert (await client.post(DEFINITIONS, definition))[0] == 201
    path = "/apis/gangs.example/v1/namespaces/default/gangs"
    spec = {"minMember": 2, "minResources": {"example.com/cpu": 3}}
    await client.post(path, {"metadata": {"name": "g"}, "spec": spec})
    await client.post(path, {"metadata": {"name": "h"}})
    conditions = [{"type": "Placed", "status": "False"}, {"type": "Accepted", "status": "True"}]
    await client.patch(f"{path}/g/status", {"status": {"conditions": conditions}})
    known, bare = shown(await table(client, path))
    assert known.pop("Age") in NEW
    assert known == {"Name": "g", "Minimum": 2, "Accepted": "True", "Cpu": "3"}
    assert bare.pop("Age") in NEW
    assert bare == {"Name": "h", "Minimum": None, "Accepted": None, "Cpu": None}
    definition["metadata"]["name"], definition["spec"]["names"]["plural"] = "others.gangs.example", "others"
    definition["spec"]["versions"][0]["additionalPrinterColumns"][0]["jsonPath"] = "spec.minMember"
    code, refused = await client.post(DEFINITIONS, definition)
    assert (code, refused["reason"]) == (422, "Invalid")
    assert 'jsonPath: Invalid value: "spec.minMember"' in refused["message"]


@pytest.mark.parametrize("name", ["queue", "gpuclass", "podgroup"])
def test_the_server_knows_every_column_of_our_definitions(api: Api, name: str) -> None:
    definition = yaml.safe_load((DEFINED / f"{name}.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    api.create(CRDS, "", definition, WRITER)
    (resource,) = [each for each in api.catalogue.all() if each.custom]
    heads = [column.name for column in printers.columns(resource)]
    assert heads == ["Name", *(column["name"] for column in version["additionalPrinterColumns"])]


async def test_one_object_and_a_watch_are_tables_too(client: Client, api: Api) -> None:
    pod(api, "p")
    assert len((await table(client, f"{PODS_PATH}/p"))["rows"]) == 1
    async with client.session.get(f"{PODS_PATH}?watch=1", headers={"Accept": TABLE}) as answer:
        event = json.loads(await answer.content.readline())
    assert (event["type"], event["object"]["kind"], shown(event["object"])[0]["Name"]) == ("ADDED", "Table", "p")


@pytest.mark.parametrize(
    "accept",
    ["application/json", "*/*", "application/json,application/json;as=Table;v=v1;g=meta.k8s.io",
     "application/json;as=Table;v=v1beta1;g=meta.k8s.io"],
)  # fmt: skip
async def test_who_asks_for_no_table_gets_objects(client: Client, api: Api, accept: str) -> None:
    pod(api, "p")
    assert (await table(client, PODS_PATH, accept))["kind"] == "PodList"


@pytest.mark.parametrize(("include", "kind"), [("Object", "Pod"), ("None", None), ("", "PartialObjectMetadata")])
async def test_a_row_has_as_much_of_the_object_as_is_asked_for(
    client: Client, api: Api, include: str, kind: str | None
) -> None:
    pod(api, "p")
    (row,) = (await table(client, f"{PODS_PATH}?includeObject={include}"))["rows"]
    assert (row["object"] or {}).get("kind") == kind


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (700, "11m"), (4 * 3600, "4h"), (4 * 3600 + 120, "4h2m"),
     (30 * 3600, "30h"), (4 * 86_400 + 7200, "4d2h"), (40 * 86_400, "40d")],
)  # fmt: skip
def test_ages_are_told_as_kubectl_tells_them(seconds: int, told: str) -> None:
    assert printers.duration(seconds) == told


def test_an_age_is_the_time_since_then_if_that_is_known() -> None:
    now = datetime.now(UTC).timestamp()
    assert printers.age(podspec.timestamp(now - 4 * 86_400 - 7200)) == "4d2h"
    assert printers.age(podspec.timestamp(now + 60)) == "0s"
    assert printers.age(None) == printers.age("never") == "<unknown>"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl")
async def test_kubectl_prints_the_table(server: ApiServer, api: Api, tmp_path: Path) -> None:
    pod(api, "waits")
    config = server.write_kubeconfig(tmp_path / "kubeconfig")
    command = ["kubectl", f"--kubeconfig={config}", f"--cache-dir={tmp_path}", "get", "pods", "-o", "wide"]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines()[0].split() == [
        "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED", "NODE",
    ]  # fmt: skip
    assert ran.stdout.splitlines()[1].split()[:3] == ["waits", "0/1", "Pending"]

"""Custom resources: they come and go while the server runs, and are shaped by their schemas."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.sim.conftest import Client

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUPS = "/apis/gangs.example/v1/namespaces/default/gangs"
SPEC = {
    "type": "object",
    "properties": {
        "minMember": {"type": "integer", "minimum": 1},
        "queue": {"type": "string", "default": "default"},
        "minResources": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
        "mode": {"type": "string", "enum": ["hard", "soft"]},
        "since": {"type": "string", "format": "date-time"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
STATUS = {"type": "object", "properties": {"phase": {"type": "string"}}}


def a_definition(*subresources: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    root = schema or {"type": "object", "required": ["spec"], "properties": {"spec": SPEC, "status": STATUS}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": root}}
    kinds = {"plural": "gangs", "kind": "Gang"}
    versions = [{**version, "subresources": {name: {} for name in subresources}}]
    spec = {"group": "gangs.example", "scope": "Namespaced", "names": kinds, "versions": versions}
    return {"metadata": {"name": "gangs.gangs.example"}, "spec": spec}


def a_gang(name: str = "g", /, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


async def test_a_resource_is_served_once_defined_and_its_status_write_leaves_metadata(client: Client) -> None:
    assert (await client.get(GROUPS))[0] == 404
    assert (await client.post(DEFINITIONS, a_definition("status")))[0] == 201
    _, definition = await client.get(f"{DEFINITIONS}/gangs.gangs.example")
    assert [(c["type"], c["status"]) for c in definition["status"]["conditions"]] == [("Established", "True")]
    _, gang = await client.post(GROUPS, {**a_gang(minMember=2), "status": {"phase": "Running"}})
    assert (gang["kind"], gang["apiVersion"], "status" in gang) == ("Gang", "gangs.example/v1", False)
    body = {"metadata": {"labels": {"a": "b"}}, "spec": {"minMember": 3}, "status": {"phase": "Inqueue"}}
    _, gang = await client.patch(f"{GROUPS}/g/status", body)
    assert (gang["spec"]["minMember"], gang["status"]) == (2, {"phase": "Inqueue"})
    assert "labels" not in gang["metadata"]


async def test_without_a_status_subresource_the_status_is_a_field_like_any_other(client: Client) -> None:
    await client.post(DEFINITIONS, a_definition())
    _, gang = await client.post(GROUPS, {**a_gang(minMember=2), "status": {"phase": "Pending"}})
    assert gang["status"] == {"phase": "Pending"}
    code, status = await client.patch(f"{GROUPS}/g/status", {"status": {"phase": "Inqueue"}})
    assert (code, status["reason"], status["message"]) == (404, "NotFound", 'gangs.gangs.example "g" not found')
    code, gang = await client.patch(f"{GROUPS}/g", {"status": {"phase": "Inqueue"}})
    assert (code, gang["status"]) == (200, {"phase": "Inqueue"})


async def test_unknown_fields_go_and_defaults_come(client: Client) -> None:
    await client.post(DEFINITIONS, a_definition("status"))
    given = a_gang(minMember=2, colour="red", minResources={"cpu": "3", "x.io/y": 1}, free={"any": {"thing": 1}})
    _, gang = await client.post(GROUPS, given)
    kept = {"minMember": 2, "minResources": {"cpu": "3", "x.io/y": 1}, "free": {"any": {"thing": 1}}}
    assert gang["spec"] == {**kept, "queue": "default"}
    _, gang = await client.patch(f"{GROUPS}/g/status", {"status": {"phase": "Running", "conditions": []}})
    assert gang["status"] == {"phase": "Running"}


@pytest.mark.parametrize(
    ("gang", "words"),
    [
        (a_gang(minMember=0), "spec.minMember in body should be greater than or equal to 1"),
        (a_gang(minMember="two"), 'spec.minMember in body must be of type integer: "string"'),
        (a_gang(mode="soggy"), 'spec.mode: Unsupported value: "soggy": supported values: "hard", "soft"'),
        (a_gang(since="yesterday"), "spec.since in body must be of type date-time"),
        ({"metadata": {"name": "g"}}, "spec: Required value"),
    ],
)
async def test_what_the_schema_forbids_is_refused(client: Client, gang: dict[str, Any], words: str) -> None:
    await client.post(DEFINITIONS, a_definition("status"))
    code, status = await client.post(GROUPS, gang)
    assert (code, status["reason"]) == (422, "Invalid")
    assert words in status["message"]


async def test_a_definition_without_a_schema_is_refused(client: Client) -> None:
    definition = a_definition()
    del definition["spec"]["versions"][0]["schema"]
    code, status = await client.post(DEFINITIONS, definition)
    assert code == 422
    assert "schemas are required" in status["message"]


async def test_with_its_definition_go_the_objects_and_the_watches_of_a_resource(client: Client) -> None:
    await client.post(DEFINITIONS, a_definition("status"))
    await client.post(GROUPS, a_gang(minMember=1))
    watching = asyncio.create_task(client.watch(f"{GROUPS}?watch=1"))
    await asyncio.sleep(0.1)
    await client.delete(f"{DEFINITIONS}/gangs.gangs.example")
    assert [event["type"] for event in await asyncio.wait_for(watching, 5)] == ["ADDED", "DELETED"]
    assert (await client.get(GROUPS))[0] == 404
    await client.post(DEFINITIONS, a_definition("status"))
    assert (await client.get(GROUPS))[1]["items"] == []


async def test_a_quiet_watch_ends_with_its_definition_too(client: Client) -> None:
    await client.post(DEFINITIONS, a_definition("status"))
    watching = asyncio.create_task(client.watch(f"{GROUPS}?watch=1"))
    await asyncio.sleep(0.1)
    await client.delete(f"{DEFINITIONS}/gangs.gangs.example")
    assert await asyncio.wait_for(watching, 5) == []


async def test_discovery_tells_groups_versions_and_resources_as_they_come_and_go(client: Client) -> None:
    assert (await client.get("/apis/gangs.example"))[0] == 404
    definition = a_definition("status")
    first = definition["spec"]["versions"][0]
    definition["spec"]["versions"].append({**first, "name": "v2", "storage": False})
    await client.post(DEFINITIONS, definition)
    _, group = await client.get("/apis/gangs.example")
    assert [v["version"] for v in group["versions"]] == ["v1", "v2"]
    _, groups = await client.get("/apis")
    assert [g["name"] for g in groups["groups"]].count("gangs.example") == 1
    _, resources = await client.get("/apis/gangs.example/v1")
    assert [r["name"] for r in resources["resources"]] == ["gangs", "gangs/status"]
    await client.delete(f"{DEFINITIONS}/gangs.gangs.example")
    assert (await client.get("/apis/gangs.example/v1"))[0] == 404

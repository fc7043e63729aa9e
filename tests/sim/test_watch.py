"""Lists and watches: order, selectors, bookmarks, and 410 for what is forgotten."""

from __future__ import annotations

import asyncio

import pytest

from extender.sim.apiserver.api import Api
from tests.sim.builders import a_pod
from tests.sim.conftest import PODS, Client


async def test_a_watch_tells_every_change_after_its_version_in_order(client: Client) -> None:
    _, listed = await client.get(PODS)
    version = listed["metadata"]["resourceVersion"]
    await client.post(PODS, a_pod("p"))
    await client.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
    await client.delete(f"{PODS}/p")
    events = await client.watch(f"{PODS}?watch=true&resourceVersion={version}", count=3)
    assert [e["type"] for e in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
    assert versions == sorted(set(versions))
    assert all(e["object"]["kind"] == "Pod" for e in events)


async def test_many_watchers_see_the_same(client: Client, api: Api) -> None:
    watchers = [asyncio.create_task(client.watch(f"{PODS}?watch=1&resourceVersion={api.store.rv}", 20)) for _ in "abc"]
    for i in range(20):
        await client.post(PODS, a_pod(f"p{i}"))
    seen = await asyncio.gather(*watchers)
    assert seen[0] == seen[1] == seen[2]
    assert [e["object"]["metadata"]["name"] for e in seen[0]] == [f"p{i}" for i in range(20)]


async def test_a_watch_without_a_version_begins_with_what_is_there(client: Client) -> None:
    await client.post(PODS, a_pod("p"))
    assert [e["type"] for e in await client.watch(f"{PODS}?watch=1", count=1)] == ["ADDED"]


async def test_an_object_that_leaves_or_enters_the_selection_is_deleted_or_added(client: Client, api: Api) -> None:
    version = api.store.rv
    await client.post(PODS, a_pod("p"))
    await client.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "node-1"}})
    for selector, expected in (
        ("spec.nodeName=", ["ADDED", "DELETED"]),
        ("spec.nodeName=node-1", ["ADDED"]),
        ("spec.nodeName!=node-1,metadata.name=p", ["ADDED", "DELETED"]),
    ):
        url = f"{PODS}?watch=1&resourceVersion={version}&fieldSelector={selector}&timeoutSeconds=1"
        assert [e["type"] for e in await client.watch(url)] == expected
    left = (await client.watch(f"{PODS}?watch=1&resourceVersion={version}&fieldSelector=spec.nodeName=", 2))[1]
    assert "nodeName" not in left["object"]["spec"]


async def test_a_version_before_the_window_is_gone(client: Client, api: Api) -> None:
    version = api.store.rv
    for i in range(110):  # the fixture keeps 50
        await client.post(PODS, a_pod(f"p{i}"))
    events = await client.watch(f"{PODS}?watch=1&resourceVersion={version}")
    assert [(e["type"], e["object"]["code"], e["object"]["reason"]) for e in events] == [("ERROR", 410, "Expired")]
    assert await client.watch(f"{PODS}?watch=1&resourceVersion={api.store.rv}&timeoutSeconds=1") == []


async def test_bookmarks_bring_the_present_version_to_a_quiet_watch(client: Client, api: Api) -> None:
    version = api.store.rv
    await client.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "noise"}})
    url = f"{PODS}?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
    event = (await client.watch(url, count=1))[0]
    assert (event["type"], event["object"]["kind"]) == ("BOOKMARK", "Pod")
    assert event["object"]["metadata"]["resourceVersion"] == str(api.store.rv)


async def test_a_watch_ends_after_its_timeout(client: Client, api: Api) -> None:
    assert await client.watch(f"{PODS}?watch=1&resourceVersion={api.store.rv}&timeoutSeconds=1") == []


async def test_a_list_is_ordered_by_name_and_names_the_kind_once(client: Client, api: Api) -> None:
    for name in "bca":
        await client.post(PODS, a_pod(name))
    _, listed = await client.get(f"{PODS}?limit=2")
    assert [p["metadata"]["name"] for p in listed["items"]] == ["a", "b", "c"]
    assert listed["metadata"] == {"resourceVersion": str(api.store.rv)}
    assert (listed["kind"], "kind" in listed["items"][0]) == ("PodList", False)


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("labelSelector=app=x", ["a"]),
        ("labelSelector=app!=x", ["b", "c"]),
        ("labelSelector=app in (x,y)", ["a", "b"]),
        ("labelSelector=!app", ["c"]),
        ("labelSelector=app,tier=1", ["b"]),
        ("fieldSelector=metadata.name=b", ["b"]),
        ("fieldSelector=spec.schedulerName=default-scheduler,status.phase!=Pending", []),
    ],
)
async def test_selectors_choose(client: Client, selector: str, found: list[str]) -> None:
    for name, labels in (("a", {"app": "x"}), ("b", {"app": "y", "tier": "1"}), ("c", {})):
        await client.post(PODS, a_pod(name, labels=labels))
    _, listed = await client.get(f"{PODS}?{selector}")
    assert [p["metadata"]["name"] for p in listed["items"]] == found


async def test_an_unknown_field_selector_is_refused(client: Client) -> None:
    code, status = await client.get(f"{PODS}?fieldSelector=spec.colour=red")
    assert code == 400
    assert "field label not supported: spec.colour" in status["message"]

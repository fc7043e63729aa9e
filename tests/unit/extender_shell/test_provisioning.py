"""A gang that lacks capacity asks an autoscaler through the API server: once, as a whole, and no longer than needed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.engine.gangs import provisioning as planning
from extender.server import provisioning as desk
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import CRDS, PODS, PODTEMPLATES, Resource
from protos.contract import names, provisioning
from tests.unit.extender_shell.world import ADMIN, Json, World, add_pod, events, until, world

REQUESTS = Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", custom=True)
AUTOSCALER = Writer("cluster-autoscaler", "status")
CHECK = "check-capacity.autoscaling.x-k8s.io"
NAME = provisioning.name("default", "g1", 1)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "LOOK_S", 0.05)
    monkeypatch.setattr(desk, "ABSENT_S", 0.05)


@pytest.fixture
def api(api: Api) -> Api:
    """With the kind, as Cluster Autoscaler's repository defines it, but for its schema."""
    define(api)
    return api


def define(api: Api) -> None:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    called = {"plural": REQUESTS.plural, "kind": REQUESTS.kind}
    versions = [{**version, "subresources": {"status": {}}}]
    spec = {"group": REQUESTS.group, "scope": "Namespaced", "names": called, "versions": versions}
    api.create(CRDS, "", {"metadata": {"name": REQUESTS.qualified}, "spec": spec}, ADMIN)


def members(api: Api, number: int) -> list[Json]:
    """Pods of the gang `g1` that take a whole GPU's memory each."""
    said = {names.GROUP: "g1", names.MIN_MEMBER: str(number)}
    return [add_pod(api, f"m{i}", mem=16, annotations=said) for i in range(number)]


def requests(api: Api) -> list[Json]:
    return [dict(item.obj) for item in api.store.items(REQUESTS)]


def posts(cluster: World, plural: str) -> int:
    return sum(method == "POST" and path.endswith(plural) for method, path in cluster.server.writes)


def state(api: Api, name: str, word: str, message: str = "") -> None:
    """What an autoscaler writes."""
    condition = {"type": word, "status": "True", "message": message, "lastTransitionTime": "2025-01-01T00:00:00Z"}
    served = api.catalogue.find(*REQUESTS.key)
    assert served is not None
    found = dict(api.get(served, ("default", name)).obj)
    api.update(served, ("default", name), {**found, "status": {"conditions": [condition]}}, AUTOSCALER)


def asking(api: Api, **settings: Any) -> Any:
    return world(api, provisioning_class=CHECK, provisioning_after_s=0.0, **settings)


async def test_a_gang_asks_once_and_as_a_whole_and_its_members_say_so(api: Api) -> None:
    async with asking(api) as cluster:
        await cluster.ready()
        members(api, 3)
        await until(lambda: requests(api), "a request")
        await until(lambda: cluster.pod("m2")["metadata"]["annotations"].get(provisioning.CONSUMES), "members say so")
        await asyncio.sleep(0.3)
        assert posts(cluster, "/provisioningrequests") == 1
        assert posts(cluster, "/podtemplates") == 1
        (request,) = requests(api)
        template = provisioning.template_name(NAME, 0)
        assert request["metadata"]["name"] == NAME
        assert request["spec"] == {
            "provisioningClassName": CHECK,
            "podSets": [{"podTemplateRef": {"name": template}, "count": 3}],
        }
        (owner,) = request["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"][0]) == ("Pod", "m")
        made = dict(api.get(PODTEMPLATES, ("default", template)).obj)
        (container,) = made["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == {names.GPU_MEM: "16"}
        for pod in ("m0", "m1", "m2"):
            annotations = cluster.pod(pod)["metadata"]["annotations"]
            assert annotations[provisioning.CONSUMES] == NAME
            assert annotations[provisioning.CLASS] == CHECK


async def test_a_process_that_starts_anew_does_not_ask_again(api: Api) -> None:
    members(api, 3)
    async with asking(api) as cluster:
        await until(lambda: requests(api), "a request")
    uid = requests(api)[0]["metadata"]["uid"]
    async with asking(api) as cluster:
        await cluster.ready()
        await until(lambda: cluster.extender.engine.provisioning.lacking(), "the gang lacks capacity")
        await asyncio.sleep(0.3)
        assert [request["metadata"]["uid"] for request in requests(api)] == [uid]
        assert posts(cluster, "/provisioningrequests") == 0


async def test_what_an_autoscaler_says_is_told_and_a_gang_that_is_gone_leaves_nothing(api: Api) -> None:
    async with asking(api) as cluster:
        await cluster.ready()
        members(api, 3)
        await until(lambda: requests(api), "a request")
        state(api, NAME, "Accepted", "3 nodes are needed")
        await until(
            lambda: any("an autoscaler looks for capacity (3 nodes" in e["message"] for e in events(api)), "told"
        )
        _, group = await cluster.get("/explain/groups/default/g1")
        assert "an autoscaler looks for capacity" in group["provisioning"]
        for number in range(3):
            api.delete(PODS, ("default", f"m{number}"), {"gracePeriodSeconds": 0})
        await until(lambda: not requests(api), "the request is deleted")
        await until(lambda: not api.store.items(PODTEMPLATES), "its template, too")


async def test_a_request_that_failed_is_replaced_by_another_attempt(api: Api) -> None:
    async with asking(api) as cluster:
        await cluster.ready()
        members(api, 3)
        await until(lambda: requests(api), "a request")
        state(api, NAME, "Failed", "no such nodes")
        again = provisioning.name("default", "g1", 2)
        await until(lambda: [each["metadata"]["name"] for each in requests(api)] == [again], "the second attempt alone")


async def test_a_failure_is_told_at_once_long_before_the_next_attempt(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "BACKOFF_S", 1e10)
    monkeypatch.setattr(planning, "LONGEST_S", 1e10)
    async with asking(api) as cluster:
        await cluster.ready()
        members(api, 3)
        await until(lambda: requests(api), "a request")
        state(api, NAME, "Failed", "no such nodes")
        await until(lambda: any("there is no such capacity" in event["message"] for event in events(api)), "told")
        assert [each["metadata"]["name"] for each in requests(api)] == [NAME]


async def test_a_request_of_somebody_else_is_neither_believed_nor_deleted(api: Api) -> None:
    metadata = {"name": "other", "namespace": "default", "labels": {names.MANAGED_BY: names.EXTENDER}}
    api.create(REQUESTS, "default", {"metadata": metadata, "spec": {"podSets": "none"}}, ADMIN)
    async with asking(api) as cluster:
        await cluster.ready()
        members(api, 3)
        await until(lambda: len(requests(api)) == 2, "a request of ours beside it")
        assert not [path for method, path in cluster.server.writes if method == "DELETE"]


async def test_without_the_kind_nothing_breaks_and_it_is_asked_as_soon_as_it_is_there() -> None:
    bare = Api()
    async with asking(bare) as cluster:
        await cluster.ready()
        members(bare, 3)
        await until(lambda: cluster.extender.engine.provisioning.lacking(), "the gang lacks capacity")
        define(bare)
        await until(lambda: requests(bare), "a request")
        assert cluster.running is not None
        assert not cluster.running.done()


async def test_a_gang_with_room_does_not_ask(api: Api) -> None:
    async with asking(api) as cluster:
        await cluster.ready()
        members(api, 2)
        await until(lambda: len(cluster.extender.engine.pods) == 2, "pods are known")
        await asyncio.sleep(0.3)
        assert not requests(api)

"""Queues in a cluster: watched where their definitions are, told how they stand, waited for by pods."""

from typing import Any

import pytest

from extender.sim.apiserver.api import Api
from extender.sim.apiserver.resources import CRDS, NAMESPACES, PODS, Resource
from protos.contract import bounds, names, queue, queue_sources
from tests.scenarios.queue_stories import definitions
from tests.unit.extender_shell.world import ADMIN, Json, World, add_pod, events, until

pytestmark = pytest.mark.usefixtures("quick")

ELASTIC = queue_sources.SOURCES[2]
IN_TEAM_A = {names.QUEUE: "team-a"}


@pytest.fixture
def api(api: Api) -> Api:
    """Our Queue is defined, Volcano's too."""
    for definition in definitions():
        api.create(CRDS, "", definition, ADMIN)
    return api


def kind(api: Api, source: queue_sources.Source = queue_sources.OWN) -> Resource:
    group, _, version = source.api_version.partition("/")
    found = api.catalogue.find(group, version, source.plural)
    assert found is not None
    return found


def put(cluster: World, name: str, **spec: Any) -> Json:
    return dict(cluster.api.create(kind(cluster.api), "", {"metadata": {"name": name}, "spec": spec}, ADMIN).obj)


def edit(cluster: World, name: str, **spec: Any) -> None:
    cluster.api.patch(kind(cluster.api), ("", name), {"spec": spec}, "application/merge-patch+json", ADMIN)


def status(cluster: World, name: str) -> Json:
    return dict(cluster.api.get(kind(cluster.api), ("", name)).obj.get("status", {}))


def conditions(cluster: World, name: str) -> dict[str, tuple[str, str]]:
    found = status(cluster, name).get("conditions", [])
    return {c["type"]: (c["status"], c["message"]) for c in found}


def capability(cluster: World, name: str) -> dict[str, int]:
    queue_node = cluster.extender.engine.tenancy.queues.queue_nodes.get(name)
    return dict(queue_node.queue.capability) if queue_node is not None else {}


async def refused(cluster: World, name: str) -> str:
    """The sentence with which the pod is refused, "" if it is not."""
    answer = await cluster.filter(cluster.pod(name), ["node-a"])
    return "; ".join((answer.get("FailedAndUnresolvableNodes") or {}).values())


async def test_a_queue_limits_its_pods_and_tells_how_it_stands(cluster: World) -> None:
    put(cluster, "team-a", capability={"gpus": "500m"})
    await until(lambda: capability(cluster, "team-a"), "the queue is known")
    for name in ("p1", "p2"):
        add_pod(cluster.api, name, annotations=IN_TEAM_A, mem=8)
    await until(lambda: status(cluster, "team-a").get("waiting") == 2, "its pods are counted")
    assert await refused(cluster, "p1") == ""
    assert await refused(cluster, "p2") == "queue team-a has no quota left for this request"
    await until(lambda: [e for e in events(cluster.api) if e["reason"] == "QueueFull"], "an Event says so")
    (told,) = [e["message"] for e in events(cluster.api) if e["reason"] == "QueueFull"]
    assert told.endswith("queue team-a may have 0.5 GPUs: 0.5 are in use, this asks 0.5")
    code, page = await cluster.get("/queues")
    assert code == 200
    assert [(one["name"], one["depth"], one["capability"]) for one in page["queues"]] == [
        ("default", 0, {}),
        ("team-a", 0, {"gpus": "0.5"}),
    ]


async def test_namespaces_are_followed_and_a_queue_admits_those_that_it_selects(cluster: World) -> None:
    put(cluster, "team-a", namespaceSelector={"matchLabels": {"team": "a"}})
    await until(lambda: status(cluster, "team-a"), "the queue is known")
    add_pod(cluster.api, "p1", annotations=IN_TEAM_A, mem=8)
    await until(lambda: cluster.extender.engine.pods, "the pod is known")
    sentence = "queue team-a does not admit pods of this namespace; workloads that name it wait until it does"
    assert await refused(cluster, "p1") == sentence
    await until(lambda: [e for e in events(cluster.api) if e["reason"] == "QueueForbidden"], "an Event says so")
    _, page = await cluster.get("/queues")
    (told,) = [one for one in page["queues"] if one["name"] == "team-a"]
    assert told["strangers"] == {"waiting": 1, "running": 0, "namespaces": "default"}
    relabel = {"metadata": {"labels": {"team": "a"}}}
    cluster.api.patch(NAMESPACES, ("", "default"), relabel, "application/merge-patch+json", ADMIN)
    await until(lambda: wakes(cluster, "p1"), "the pod is woken")
    assert await refused(cluster, "p1") == ""


def wakes(cluster: World, name: str) -> object:
    return names.WAKE in cluster.api.get(PODS, ("default", name)).obj["metadata"].get("annotations", {})


async def test_a_queue_past_its_capability_says_so_until_it_is_within_it(cluster: World) -> None:
    put(cluster, "team-a", capability={"gpus": "500m"})
    await until(lambda: capability(cluster, "team-a"), "the queue is known")
    for name in ("p1", "p2"):
        add_pod(cluster.api, name, annotations=IN_TEAM_A, mem=8, node="node-a")
    await until(lambda: conditions(cluster, "team-a").get("WithinCapability", ("",))[0] == "False", "it says so")
    assert conditions(cluster, "team-a")["WithinCapability"][1].startswith("1 GPUs are in use, it may have 0.5 GPUs")
    _, page = await cluster.get("/metrics")
    assert 'gangshare_queue_over_capability{queue="team-a"} 1' in page
    cluster.api.delete(PODS, ("default", "p1"), {"gracePeriodSeconds": 0})
    await until(lambda: conditions(cluster, "team-a")["WithinCapability"] == ("True", ""), "it is within it")


async def test_one_that_cannot_be_read_any_more_stays_what_it_was_and_says_so(cluster: World) -> None:
    made = put(cluster, "team-a", capability={"gpus": 1})
    await until(lambda: capability(cluster, "team-a"), "the queue is known")
    edit(cluster, "team-a", deserved={"gpus": 2})
    await until(lambda: conditions(cluster, "team-a").get("Accepted", ("",))[0] == "False", "a condition says so")
    (event,) = [e for e in events(cluster.api) if e["reason"] == "QueueUnreadable"]
    assert event["involvedObject"]["uid"] == made["metadata"]["uid"]
    assert "deserved.gpus is '2': expected no more than capability, which is '1'" in event["message"]
    assert capability(cluster, "team-a") == {queue.GPUS: queue.GPU}
    edit(cluster, "team-a", deserved={"gpus": 1})
    await until(lambda: conditions(cluster, "team-a")["Accepted"][0] == "True", "it is accepted")


async def test_a_parent_that_is_missing_is_told_until_it_is_there(cluster: World) -> None:
    put(cluster, "team-a", parent="org")
    await until(lambda: conditions(cluster, "team-a").get("Placed", ("",))[0] == "False", "a condition says so")
    assert conditions(cluster, "team-a")["Placed"][1] == "its parent org does not exist: it hangs below the root"
    put(cluster, "org")
    await until(lambda: conditions(cluster, "team-a")["Placed"][0] == "True", "it hangs where it wants to")


async def test_an_elastic_quota_is_the_queue_of_its_namespace(cluster: World) -> None:
    group, _, version = ELASTIC.api_version.partition("/")
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    called = {"plural": ELASTIC.plural, "kind": ELASTIC.kind}
    spec = {"group": group, "scope": "Namespaced", "names": called, "versions": [served]}
    cluster.api.create(CRDS, "", {"metadata": {"name": f"{ELASTIC.plural}.{group}"}, "spec": spec}, ADMIN)
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"max": {names.GPU_MEM: 4}}}
    cluster.api.create(kind(cluster.api, ELASTIC), "default", quota, ADMIN)
    await until(lambda: capability(cluster, "default/q") == {names.GPU_MEM: 4}, "the quota is known")
    add_pod(cluster.api, "p1", mem=8)
    await until(lambda: cluster.extender.engine.pods, "the pod is known")
    assert await refused(cluster, "p1") == "queue default/q has no quota left for this request"


async def test_queues_that_go_with_their_definition_limit_nobody_any_more(cluster: World) -> None:
    put(cluster, "team-a", closed=True)
    await until(lambda: cluster.extender.engine.tenancy.queues.queue_nodes.get("team-a"), "the queue is known")
    add_pod(cluster.api, "p1", annotations=IN_TEAM_A)
    await until(lambda: cluster.extender.engine.pods, "the pod is known")
    assert await refused(cluster, "p1") == "queue team-a is closed; its workloads wait until it is open"
    cluster.api.delete(CRDS, ("", "queues.gangshare.io"), {})
    woken = names.WAKE
    await until(lambda: woken in cluster.pod("p1")["metadata"].get("annotations", {}), "it is woken")
    assert await refused(cluster, "p1") == ""


async def test_every_queue_is_in_the_metrics(cluster: World) -> None:
    put(cluster, "team-a")
    await until(lambda: "team-a" in cluster.extender.engine.tenancy.queues.queue_nodes, "the queue is known")
    add_pod(cluster.api, "p1", annotations=IN_TEAM_A, node="node-a", mem=8)
    engine = cluster.extender.engine
    await until(lambda: engine.tenancy.queues.queue_nodes["team-a"].running, "the pod is counted")
    _, text = await cluster.get("/metrics")
    assert 'gangshare_queue_pods{queue="team-a",state="running"} 1' in text
    assert 'gangshare_queue_requested_gpus{queue="team-a"} ' in text


async def test_a_gang_that_waits_is_told_its_queue_and_its_place_in_line(cluster: World) -> None:
    put(cluster, "team-a", capability={"gpus": 1})
    await until(lambda: capability(cluster, "team-a"), "the queue is known")
    gangs = cluster.extender.engine.gangs.roster.known
    for name in ("old", "young"):
        add_pod(cluster.api, name, annotations={**IN_TEAM_A, names.GROUP: name, names.MIN_MEMBER: "1"}, mem=17)
    await until(lambda: [known.gang.phase for known in gangs.values()] == ["Waiting"] * 2, "both wait")
    code, said = await cluster.get("/explain/groups/default/you")
    assert code == 404
    assert "default/you: no such gang; there are young (" in str(said)
    code, told = await cluster.get("/explain/groups/default/young")
    assert code == 200
    assert (told["queue"], told["place"], told["inLine"]) == ("team-a", 2, 2)


async def test_more_queues_of_a_kind_than_are_read_are_told_so_and_the_others_go_on(
    cluster: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "QUEUES", bounds.Bound("queues of one kind", 1))
    put(cluster, "first", capability={"gpus": 1})
    await until(lambda: capability(cluster, "first"), "the queue is known")
    put(cluster, "second", capability={"gpus": 1})
    await until(lambda: [e for e in events(cluster.api) if e["reason"] == "QueueUnreadable"], "an Event says so")
    (told,) = [e for e in events(cluster.api) if e["reason"] == "QueueUnreadable"]
    assert told["involvedObject"]["name"] == "second"
    assert told["message"] == "queues of one kind: 2, expected at most 1"
    assert not capability(cluster, "second")
    edit(cluster, "first", capability={"gpus": 2})
    await until(lambda: capability(cluster, "first") == {queue.GPUS: 2 * queue.GPU}, "the first goes on")

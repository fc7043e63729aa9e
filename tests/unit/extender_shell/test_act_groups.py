"""What the engine wants done with gangs, on a real (embedded) API server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from extender.cluster import act
from extender.cluster.pending import Complaint
from extender.engine.types.effects import Evict, GroupStatus, PodRef, ReportNode, ReportOwner, Requeue
from extender.sim.apiserver.resources import PDBS, PODS
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.objects import OwnerReference
from protos.contract.reason import Reason
from protos.kube.events import Reference
from tests.unit.extender_shell.definitions import COSCHEDULING, OWN, VOLCANO, add_group, define, group, undefine
from tests.unit.extender_shell.world import ADMIN, Acting, Json, acting, add_pod, events, read_pod, until

UNDONE = Reason("GangUndone", "gang default/g1 is evicted and restarts as a whole")
UPSTREAM = "scheduling.k8s.io/v1beta1"


class Bench:
    """An actor at work on one API server."""

    def __init__(self, of: Acting) -> None:
        self.server, self.api, self.actor, self.failed = of.server, of.server.api, of.actor, of.failed

    def pod(self, name: str, **labels: str) -> PodRef:
        """A pod that runs on node-a."""
        uid = add_pod(self.api, name, node="node-a")["metadata"]["uid"]
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        merge = "application/merge-patch+json"
        self.api.patch(PODS, ("default", name), {"metadata": {"labels": labels}}, merge, ADMIN)
        status = msgspec.structs.replace(ADMIN, subresource="status")
        self.api.patch(PODS, ("default", name), {"status": ready}, merge, status)
        return PodRef("default", name, uid)

    def budget(self, name: str, app: str) -> None:
        """No pod of this app may be evicted."""
        spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": app}}}
        self.api.create(PDBS, "default", {"metadata": {"name": name}, "spec": spec}, ADMIN)

    def ending(self, name: str) -> bool:
        return "deletionTimestamp" in read_pod(self.api, name)["metadata"]

    def paths(self, method: str) -> list[str]:
        return [path for used, path in self.server.writes if used == method]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with acting() as at_work:
        yield Bench(at_work)


# Wakes.


async def test_a_wake_with_a_node_nominates_it_in_the_same_write(bench: Bench) -> None:
    pod = add_pod(bench.api, "p1")
    bench.actor.submit([Requeue(PodRef("default", "p1", pod["metadata"]["uid"]), "node-b")])
    await until(lambda: names.WAKE in read_pod(bench.api, "p1")["metadata"].get("annotations", {}), "the wake")
    assert read_pod(bench.api, "p1")["status"]["nominatedNodeName"] == "node-b"
    assert bench.server.writes == [("PATCH", "/api/v1/namespaces/default/pods/p1/status")]


# Evictions.


async def test_an_eviction_takes_the_pod_away_and_an_event_says_why(bench: Bench) -> None:
    pod = bench.pod("p1")
    bench.actor.submit([Evict(pod, UNDONE)])
    await until(lambda: events(bench.api), "the event")
    assert bench.ending("p1")
    (event,) = events(bench.api)
    assert (event["reason"], event["message"], event["type"]) == (UNDONE.code, str(UNDONE), "Warning")
    assert event["involvedObject"]["uid"] == pod.uid
    assert bench.paths("DELETE") == []


@pytest.mark.parametrize(("given", "has"), [(None, 30), (3600, 3600)])
async def test_an_evicted_pod_has_its_own_time_or_what_it_is_given(bench: Bench, given: int | None, has: int) -> None:
    bench.actor.submit([Evict(bench.pod("p1"), UNDONE, grace_s=given)])
    await until(lambda: bench.ending("p1"), "the eviction")
    assert read_pod(bench.api, "p1")["metadata"]["deletionGracePeriodSeconds"] == has


async def test_another_pod_of_the_same_name_is_not_evicted(bench: Bench) -> None:
    pod = bench.pod("p1")
    bench.actor.submit([Evict(PodRef("default", "p1", "the-former"), UNDONE), Evict(bench.pod("p2"), UNDONE)])
    await until(lambda: bench.ending("p2"), "the other's eviction")
    await until(lambda: events(bench.api), "its event")
    assert not bench.ending("p1"), pod
    assert len(events(bench.api)) == 1
    assert bench.failed == []


async def test_a_disruption_budget_is_asked_first_and_passed_where_that_is_insisted_on(bench: Bench) -> None:
    bench.budget("all-must-stay", "a")
    bench.actor.submit([Evict(bench.pod("p1", app="a"), UNDONE)])
    await until(lambda: bench.ending("p1"), "deleted in the end")
    assert bench.paths("DELETE") == ["/api/v1/namespaces/default/pods/p1"]
    assert "/api/v1/namespaces/default/pods/p1/eviction" in bench.paths("POST")


async def test_a_pod_with_several_budgets_which_no_eviction_passes_is_deleted(bench: Bench) -> None:
    bench.budget("one", "a")
    bench.budget("two", "a")
    bench.actor.submit([Evict(bench.pod("p1", app="a"), UNDONE)])
    await until(lambda: bench.ending("p1"), "deleted in the end")


async def test_a_pod_that_was_replaced_is_not_deleted_past_its_budget(bench: Bench) -> None:
    bench.budget("all-must-stay", "a")
    pod = bench.pod("p1", app="a")

    async def replaced(request: web.BaseRequest) -> None:
        if request.method == "DELETE":
            bench.api.delete(PODS, ("default", "p1"), {"gracePeriodSeconds": 0})
            bench.pod("p1", app="a")

    bench.server.fault = replaced
    bench.actor.submit([Evict(pod, UNDONE), Evict(bench.pod("p2"), UNDONE)])
    await until(lambda: bench.paths("DELETE") and bench.ending("p2"), "both tried")
    await until(lambda: len(events(bench.api)) == 1, "the other's event")
    assert not bench.ending("p1")
    assert bench.failed == []


async def test_an_eviction_without_insist_reports_the_budget_that_forbids_it(bench: Bench) -> None:
    bench.budget("all-must-stay", "a")
    told: list[tuple[str, str]] = []
    bench.actor.refused = lambda uid, why: told.append((uid, why))
    pod = bench.pod("p1", app="a")
    bench.actor.submit([Evict(pod, UNDONE, insist=False)])
    await until(lambda: told, "it is told")
    assert told == [(pod.uid, "Cannot evict pod as it would violate the pod's disruption budget.")]
    assert not bench.ending("p1")
    assert bench.paths("DELETE") == []
    assert bench.failed == []


# The status of groups.


def said(*kinds: str, phase: Phase = Phase.ASSEMBLING, bound: int = 0) -> GroupStatus:
    return GroupStatus(
        key=GroupKey("default", "g1"),
        kinds=kinds,
        phase=phase,
        reason=None,
        min_member=2,
        present=2,
        bound=bound,
        succeeded=0,
    )


def phase(bench: Bench, kind: str) -> str | None:
    found: str | None = group(bench.api, kind, "g1").get("status", {}).get("phase")
    return found


async def test_every_kind_gets_its_own_words_and_keeps_its_spec(bench: Bench) -> None:
    kinds = (OWN, VOLCANO, COSCHEDULING)
    for kind in kinds:
        define(bench.api, kind)
        add_group(bench.api, kind, "g1", minMember=2)
    bench.actor.submit([said(*kinds)])
    await until(lambda: phase(bench, COSCHEDULING) == "Pending", "the last one's status")
    assert [phase(bench, kind) for kind in kinds] == ["Assembling", "Inqueue", "Pending"]
    for kind in kinds:
        assert group(bench.api, kind, "g1")["spec"] == {"minMember": 2}
    assert all(path.endswith("/g1/status") for path in bench.paths("PATCH"))
    assert group(bench.api, OWN, "g1")["status"]["members"] == 2  # nothing of it was pruned
    assert group(bench.api, OWN, "g1")["status"]["conditions"][0]["lastTransitionTime"]


async def test_a_kind_without_status_subresource_is_written_through_the_object(bench: Bench) -> None:
    define(bench.api, VOLCANO, subresource=False)
    add_group(bench.api, VOLCANO, "g1", minMember=2, queue="default")
    bench.actor.submit([said(VOLCANO)])
    await until(lambda: phase(bench, VOLCANO) == "Inqueue", "the status")
    assert [path.rpartition("/")[2] for path in bench.paths("PATCH")] == ["status", "g1"]
    assert group(bench.api, VOLCANO, "g1")["spec"] == {"minMember": 2, "queue": "default"}
    bench.actor.submit([said(VOLCANO, phase=Phase.RUNNING, bound=2)])
    await until(lambda: phase(bench, VOLCANO) == "Running", "the next status")
    assert [path.rpartition("/")[2] for path in bench.paths("PATCH")] == ["status", "g1", "g1"]


async def test_of_many_statuses_in_a_second_the_first_and_the_latest_are_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(act, "STATUS_PAUSE_S", 0.5)
    define(bench.api, OWN)
    add_group(bench.api, OWN, "g1", minMember=2)
    bench.actor.submit([said(OWN, bound=1)])
    await until(lambda: phase(bench, OWN), "the first one")
    for number in range(2, 50):
        bench.actor.submit([said(OWN, bound=number)])
        await asyncio.sleep(0)
    await until(lambda: group(bench.api, OWN, "g1")["status"]["bound"] == 49, "the latest one")
    assert len(bench.paths("PATCH")) == 2


async def test_groups_rest_while_others_are_written(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(act, "STATUS_PAUSE_S", 60)
    define(bench.api, OWN)
    for number in range(act.IN_FLIGHT + 5):
        add_group(bench.api, OWN, f"n{number}", minMember=2)
        bench.actor.submit([msgspec.structs.replace(said(OWN), key=GroupKey("default", f"n{number}"))])
    last = f"n{act.IN_FLIGHT + 4}"
    await until(lambda: group(bench.api, OWN, last).get("status"), "the last one's status")


async def test_what_is_there_already_is_not_written_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(act, "STATUS_PAUSE_S", 0.01)
    define(bench.api, OWN)
    add_group(bench.api, OWN, "g1", minMember=2)
    bench.actor.submit([said(OWN)])
    await until(lambda: phase(bench, OWN), "the status")
    version = group(bench.api, OWN, "g1")["metadata"]["resourceVersion"]
    bench.actor.submit([said(OWN)])
    await asyncio.sleep(0.1)
    bench.actor.submit([said(OWN, bound=1)])
    await until(lambda: group(bench.api, OWN, "g1")["metadata"]["resourceVersion"] != version, "another status")
    assert len(bench.paths("PATCH")) == 2


async def test_groups_and_kinds_that_are_gone_or_forbidden_do_not_stop_the_others(bench: Bench) -> None:
    for kind in (OWN, VOLCANO, COSCHEDULING, UPSTREAM):
        define(bench.api, kind)
        add_group(bench.api, kind, "g1", minMember=2)
    undefine(bench.api, VOLCANO)

    async def closed(request: web.BaseRequest) -> web.StreamResponse | None:
        refused = request.method == "PATCH" and "gangshare.io" in request.path
        return web.json_response({"kind": "Status", "reason": "Forbidden"}, status=403) if refused else None

    bench.server.fault = closed
    bench.actor.submit([said(OWN, VOLCANO, COSCHEDULING, UPSTREAM)])
    await until(lambda: phase(bench, COSCHEDULING) == "Pending", "the status")
    assert phase(bench, OWN) is None
    assert phase(bench, UPSTREAM) is None
    assert bench.failed == []


# Complaints.


async def test_a_complaint_becomes_an_event_about_its_object(bench: Bench) -> None:
    define(bench.api, VOLCANO)
    made: Json = add_group(bench.api, VOLCANO, "odd", minMember="four")
    about: Any = Reference(VOLCANO, "PodGroup", "odd", "default", made["metadata"]["uid"])
    bench.actor.submit([Complaint(about, Reason("GroupUnreadable", "spec.minMember is 'four'"))])
    await until(lambda: events(bench.api), "the event")
    (event,) = events(bench.api)
    assert event["involvedObject"]["kind"] == "PodGroup"
    assert event["message"] == "spec.minMember is 'four'"


async def test_a_report_about_a_node_becomes_an_event_where_kubectl_describe_finds_it(bench: Bench) -> None:
    bench.actor.submit([ReportNode("node-a", Reason("CordonUnreadable", "gangshare.io/cordoned-gpus names '99'"))])
    await until(lambda: events(bench.api), "the event")
    (event,) = events(bench.api)
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "node-a"}
    assert (event["reason"], event["type"]) == ("CordonUnreadable", "Warning")


async def test_the_reason_of_a_pending_gang_is_an_event_of_its_podgroup_and_of_its_controller(bench: Bench) -> None:
    define(bench.api, COSCHEDULING)
    made: Json = add_group(bench.api, COSCHEDULING, "g1", minMember=2)
    no_room = Reason("GangNoRoom", "gang default/g1 waits until all its members fit", "short by 2")
    owner = OwnerReference(kind="Job", name="train", uid="uid-train", controller=True, api_version="batch/v1")
    waits = msgspec.structs.replace(said(COSCHEDULING), phase=Phase.WAITING, reason=no_room)
    bench.actor.submit([waits, ReportOwner("default", owner, no_room)])
    await until(lambda: len(events(bench.api)) == 2, "both Events")
    about = {told["involvedObject"]["kind"]: told for told in events(bench.api)}
    assert about["PodGroup"]["involvedObject"]["uid"] == made["metadata"]["uid"]
    assert about["Job"]["involvedObject"] == {
        "apiVersion": "batch/v1", "kind": "Job", "name": "train", "namespace": "default", "uid": "uid-train",
    }  # fmt: skip
    assert {told["message"] for told in about.values()} == {str(no_room)}


async def test_a_gang_that_assembles_gets_no_event_on_its_podgroup(bench: Bench) -> None:
    define(bench.api, COSCHEDULING)
    add_group(bench.api, COSCHEDULING, "g1", minMember=2)
    reason = Reason("GangAssembling", "gang default/g1 waits for its members", "1 of 2 members exist")
    bench.actor.submit([msgspec.structs.replace(said(COSCHEDULING), phase=Phase.ASSEMBLING, reason=reason)])
    await until(lambda: phase(bench, COSCHEDULING) == "Pending", "the status")
    await asyncio.sleep(0.1)
    assert events(bench.api) == []

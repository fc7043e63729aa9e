"""PodGroups, their status and evictions on a real API server, with the rights of the extender's account."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from extender.cluster.act import Actor
from extender.cluster.leadership import Permission
from extender.cluster.watch import Watches
from extender.engine.types.effects import Effect, Evict, GroupStatus, PodRef, Requeue
from extender.engine.types.events import Event, GroupGone, GroupSeen
from extender.faults import Faults
from extender.metrics import Metrics
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract.reason import Reason
from protos.kube import credentials
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from protos.kube.events import Recorder
from tests.cluster import builds
from tests.cluster.api import ApiError, Json
from tests.cluster.cluster import Cluster, a_pod
from tests.cluster.process import HarnessError, wait_for

MANIFESTS = builds.ROOT / "manifests"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OWN, VOLCANO = "gangshare.io/v1alpha1", "scheduling.volcano.sh/v1beta1"
PODS = "/api/v1/namespaces/default/pods"
UNDONE = Reason("GangUndone", "gang default/g1 is evicted and restarts as a whole")
KEY = GroupKey("default", "g1")
DEADLINE_S = 40.0


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    """An API server with manifests/base; nothing runs on it."""
    with Cluster.up(nodes=0, scheduler=False) as running:
        running.apply(MANIFESTS / "base")
        wait_for(lambda: running.api.items(groups(OWN)) == [], 30, "our PodGroups")
        yield running


def groups(kind: str) -> str:
    return f"/apis/{kind}/namespaces/default/podgroups"


def a_group(kind: str, name: str, /, **spec: Any) -> Json:
    return {"apiVersion": kind, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> Path:
    """Of the extender's account."""
    return cluster.account_kubeconfig("gangshare-system", "gangshare-scheduler")


class Bench:
    """An actor and watches at work with the extender's account."""

    def __init__(self, client: ApiClient) -> None:
        self.told: list[Event] = []
        self.failed: list[str] = []
        recorder = Recorder(client, component="test", instance="test", clock=time.monotonic)
        self.actor = Actor(client, Permission(), recorder, self.failed.append, Faults())
        self.watches = Watches(client, self.told.append, Metrics({}), lambda *_: None, gpushare=False)

    def do(self, effect: Any) -> None:
        self.actor.submit([effect])

    def knows(self, kind: str) -> int | None:
        """The group's minimum as told last, None if there is no such group."""
        least = None
        for event in self.told:
            match event:
                case GroupSeen(seen, key, declaration) if (seen, key) == (kind, KEY):
                    least = declaration.min_member
                case GroupGone(gone, key) if (gone, key) == (kind, KEY):
                    least = None
        return least


@asynccontextmanager
async def at_work(access: Credentials) -> AsyncIterator[Bench]:
    async with ApiClient(access) as client:
        bench = Bench(client)
        running = [asyncio.create_task(work) for work in (bench.actor.run(), bench.watches.run())]
        yield bench
        for task in running:
            task.cancel()
        await asyncio.wait(running)


@pytest.fixture
async def bench(kubeconfig: Path) -> AsyncIterator[Bench]:
    async with at_work(await credentials.load(str(kubeconfig))) as made:
        yield made


async def until(true: Any, what: str) -> Any:
    """Poll with a deadline; an answer of the API server that is an error counts as not yet."""
    for _ in range(int(DEADLINE_S / 0.1)):
        try:
            found = true()
        except (ApiError, LookupError):
            found = None
        if found:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"did not happen: {what}")


def said(kind: str, phase: Phase, bound: int = 0) -> Effect:
    counts = {"min_member": 2, "present": 2, "bound": bound, "succeeded": 0}
    return GroupStatus(key=KEY, kinds=(kind,), phase=phase, reason=None, **counts)


async def test_our_kind_is_followed_and_told_how_it_stands(cluster: Cluster, bench: Bench) -> None:
    cluster.api.post(groups(OWN), a_group(OWN, "g1", minMember=2, onMemberLost="restart"))
    await until(lambda: bench.watches.replayed.is_set() and bench.knows(OWN) == 2, "the group is known")
    bench.do(said(OWN, Phase.ASSEMBLING))
    bench.do(said(OWN, Phase.RUNNING, bound=2))
    path = f"{groups(OWN)}/g1"
    await until(lambda: cluster.api.get(path)["status"]["phase"] == "Running", "it runs")
    status = cluster.api.get(path)["status"]
    assert {c["type"]: c["status"] for c in status["conditions"]}["Running"] == "True"
    assert (status["minMember"], status["members"], status["bound"]) == (2, 2, 2)
    printed = cluster.kubectl("get", "gang", "g1").splitlines()[1].split()
    assert printed[:5] == ["g1", "Running", "2", "2", "2"]
    assert "2 of 2 members are bound" in cluster.kubectl("get", "gang", "g1", "-o", "wide")
    cluster.api.delete(path)
    await until(lambda: bench.knows(OWN) is None, "the group is gone")
    assert bench.failed == []


@pytest.mark.parametrize(
    ("spec", "words"), [({"minMember": 0}, "greater than or equal to 1"), ({"onMemberLost": "cry"}, "cry")]
)
def test_nonsense_is_refused_where_it_is_written(cluster: Cluster, spec: Json, words: str) -> None:
    with pytest.raises(ApiError, match=words):
        cluster.api.post(groups(OWN), a_group(OWN, "odd", **spec))


def volcanos(*, subresource: bool) -> Json:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: Json = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    if subresource:
        version["subresources"] = {"status": {}}
    called = {"plural": "podgroups", "kind": "PodGroup", "listKind": "PodGroupList", "singular": "podgroup"}
    spec = {"group": "scheduling.volcano.sh", "scope": "Namespaced", "names": called, "versions": [version]}
    return {"metadata": {"name": "podgroups.scheduling.volcano.sh"}, "spec": spec}


@pytest.mark.parametrize("subresource", [True, False])
async def test_volcanos_kind_comes_and_goes_and_is_told_in_its_words(
    cluster: Cluster, bench: Bench, subresource: bool
) -> None:
    await until(bench.watches.replayed.is_set, "replayed")
    cluster.api.post(DEFINITIONS, volcanos(subresource=subresource))
    group = a_group(VOLCANO, "g1", minMember=2)
    await until(lambda: cluster.api.post(groups(VOLCANO), group), "a group of Volcano's")
    await until(lambda: bench.knows(VOLCANO) == 2, "the group is known")
    bench.do(said(VOLCANO, Phase.ASSEMBLING))
    await until(lambda: cluster.api.get(f"{groups(VOLCANO)}/g1")["status"]["phase"] == "Inqueue", "in the queue")
    assert cluster.api.get(f"{groups(VOLCANO)}/g1")["spec"] == {"minMember": 2}
    cluster.api.delete(f"{DEFINITIONS}/podgroups.scheduling.volcano.sh")
    await until(lambda: bench.knows(VOLCANO) is None, "the group is gone")
    assert bench.failed == []


# Pods.


@pytest.fixture
def pod(cluster: Cluster) -> Iterator[PodRef]:
    """A pod that says it runs."""
    made = a_pod("member", "true", node="nowhere")
    made["metadata"]["labels"] = {"app": "member"}
    uid = cluster.create_pod(made)["metadata"]["uid"]
    ready = [{"type": "Ready", "status": "True"}]
    cluster.api.patch(f"{PODS}/member/status", {"status": {"phase": "Running", "conditions": ready}})
    yield PodRef("default", "member", uid)
    cluster.api.delete(f"{PODS}/member", gracePeriodSeconds="0")


@asynccontextmanager
async def budgets(cluster: Cluster, number: int) -> AsyncIterator[None]:
    """So many budgets that let no member go."""
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    for name in (f"b{i}" for i in range(number)):
        spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "member"}}}
        cluster.api.post(path, {"metadata": {"name": name}, "spec": spec})
        await until(lambda: cluster.api.get(f"{path}/{name}")["status"]["observedGeneration"], "a budget in force")  # noqa: B023
    yield
    for i in range(number):
        cluster.api.delete(f"{path}/b{i}")


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_member_is_evicted_and_past_its_budgets_deleted(
    cluster: Cluster, bench: Bench, pod: PodRef, number: int
) -> None:
    async with budgets(cluster, number):
        bench.do(Evict(PodRef("default", "member", "the-former"), UNDONE))
        bench.do(Evict(pod, UNDONE))
        await until(lambda: cluster.pod("member")["metadata"].get("deletionTimestamp"), "it goes")
        await until(lambda: [e for e in cluster.events("member") if e["reason"] == UNDONE.code], "its owner is told")
    assert bench.failed == []


async def test_who_does_not_insist_leaves_it(cluster: Cluster, bench: Bench, pod: PodRef) -> None:
    told: list[str] = []
    bench.actor.refused = lambda uid, _: told.append(uid)
    async with budgets(cluster, 1):
        bench.do(Evict(pod, UNDONE, insist=False))
        await until(lambda: told == [pod.uid], "it is told")
        assert "deletionTimestamp" not in cluster.pod("member")["metadata"]


async def test_a_wake_nominates_a_node(cluster: Cluster, bench: Bench) -> None:
    made = a_pod("waiting", "true")
    made["spec"]["schedulerName"] = "nobody"
    uid = cluster.create_pod(made)["metadata"]["uid"]
    bench.do(Requeue(PodRef("default", "waiting", uid), "node-7"))
    await until(lambda: cluster.pod("waiting")["status"]["nominatedNodeName"] == "node-7", "nominated")
    cluster.api.delete(f"{PODS}/waiting")
    assert bench.failed == []


def test_the_account_may_not_touch_what_our_groups_say(cluster: Cluster, kubeconfig: Path) -> None:
    cluster.api.post(groups(OWN), a_group(OWN, "g2", minMember=2))
    may = ["auth", "can-i", "patch", "podgroups.gangshare.io", "--subresource"]
    assert cluster.kubectl(*may, "status", kubeconfig=kubeconfig).strip() == "yes"
    patch = ["patch", "gang", "g2", "--type=merge", "--patch", '{"spec": {"minMember": 9}}']
    with pytest.raises(HarnessError, match="cannot patch resource"):
        cluster.kubectl(*patch, kubeconfig=kubeconfig)
    cluster.api.delete(f"{groups(OWN)}/g2")

"""What the optional components leave to their accounts, on a real API server; no container runs there."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protos.contract import idle, names, objects
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.cluster import Cluster, a_pod
from tests.cluster.gangshare import NAMESPACE, kustomization
from tests.cluster.process import wait_for
from tests.cluster.test_rights import PODS, an_event, annotated

COMPONENTS = ("nvidia", "isolation-driver", "isolation-evict", "usage", "usage-events", "usage-idle")
Account = Callable[..., Api]
EVENTS = "/api/v1/namespaces/default/events"
MARK = idle.encode(idle.Idle(1, "2026-01-31T12:00:00Z", "2026-01-31T12:15:00Z"))


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    """An API server with manifests/base and the components, and two nodes that are only objects."""
    with Cluster.up(nodes=0, scheduler=False) as running:
        running.apply(kustomization(running, "base", *COMPONENTS))
        for name in ("node-1", "node-2"):
            running.api.post("/api/v1/nodes", {"metadata": {"name": name}})
        yield running


@pytest.fixture(scope="module")
def account(cluster: Cluster) -> Account:
    """The API server as one of our accounts sees it, on a node or on none, once all policies work."""

    @functools.cache
    def api(name: str, node: str | None = None) -> Api:
        return cluster.account_api(NAMESPACE, name, node=node)

    plugin, usage = api(names.PLUGIN, "node-1"), api(names.USAGE, "node-1")
    cluster.create_pod(a_pod("probe", "true", node="node-2"))
    status = f"{PODS}/probe/status"
    for attempt in (
        lambda: cluster.api.post(f"{PODS}?dryRun=All", _born_idle()),
        lambda: plugin.patch(status, annotated(f"{names.DOMAIN}/test", "1"), dryRun="All"),
        lambda: usage.patch(status, annotated(names.IDLE, MARK), dryRun="All"),
        lambda: usage.post(f"{EVENTS}?dryRun=All", an_event("Node", "node-1")),
    ):
        wait_for(functools.partial(_denied, attempt), 30, "policies that work")
    cluster.api.delete(f"{PODS}/probe", gracePeriodSeconds="0")
    return api


@pytest.fixture
def pod(cluster: Cluster) -> Iterator[str]:
    """The path of a pod on node-1."""
    made = a_pod("placed", "sleep infinity", node="node-1")
    made["metadata"]["annotations"] = {"example.com/mine": "1"}
    cluster.create_pod(made)
    yield f"{PODS}/placed"
    cluster.api.delete(f"{PODS}/placed", gracePeriodSeconds="0")


def _born_idle() -> Json:
    made = a_pod("born", "true")
    made["metadata"]["annotations"] = {names.IDLE: MARK}
    return made


def _denied(attempt: Callable[[], object]) -> str:
    """What a policy says to the attempt, "" if none does."""
    try:
        attempt()
    except ApiError as error:
        return error.message if "ValidatingAdmissionPolicy" in error.message else ""
    return ""


# -- isolation-evict


@pytest.mark.core
def test_a_plugin_evicts_and_may_do_no_more_than_before(cluster: Cluster, account: Account, pod: str) -> None:
    plugin = account(names.PLUGIN, "node-1")
    for path, patch, sentence in (
        (f"{pod}/status", annotated("example.com/mine", "2"), "not example.com/mine"),
        (f"{pod}/status", {"status": {"phase": "Failed"}}, "not the status of pods"),
        (pod, annotated(f"{names.DOMAIN}/test", "1"), 'cannot patch resource "pods"'),
    ):
        with pytest.raises(ApiError, match=sentence):
            plugin.patch(path, patch)
    with pytest.raises(ApiError, match='cannot create resource "pods/binding"'):
        plugin.post(f"{pod}/binding", {"metadata": {"name": "placed"}, "target": {"kind": "Node", "name": "node-2"}})
    with pytest.raises(ApiError, match='cannot delete resource "pods"'):
        plugin.delete(pod)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "placed", "namespace": "default"}}
    plugin.post(f"{pod}/eviction", eviction | {"deleteOptions": {"gracePeriodSeconds": 5}})
    assert "deletionTimestamp" in cluster.api.get(pod)["metadata"]


# -- usage-events


def a_notice(kind: str = "Pod", name: str = "placed", **fields: Any) -> Json:
    """An Event of the measuring process of node-1, but for these fields."""
    return an_event(kind, name, **{"reportingComponent": names.USAGE, **fields})


@pytest.mark.core
def test_the_measuring_process_tells_of_pods_in_its_own_name(account: Account, pod: str) -> None:
    usage = account(names.USAGE, "node-1")
    made = usage.post(EVENTS, a_notice())
    usage.patch(f"{EVENTS}/{made['metadata']['name']}", {"count": 2})
    theirs = account(names.PLUGIN, "node-1").post(EVENTS, an_event("Pod", "placed"))
    refused = "may write core/v1 Events about pods, with the reportingComponent gangshare-usage"
    for told in (
        a_notice("Node", "node-1"),
        a_notice("Secret", "s"),
        a_notice(reportingComponent="kubelet"),
        a_notice(reportingComponent=names.PLUGIN),
        a_notice(reportingInstance="node-2"),
    ):
        with pytest.raises(ApiError, match=refused):
            usage.post(EVENTS, told)
    with pytest.raises(ApiError, match=refused):
        usage.patch(f"{EVENTS}/{theirs['metadata']['name']}", {"reportingComponent": names.USAGE})
    with pytest.raises(ApiError, match=refused):
        account(names.USAGE).post(EVENTS, a_notice(reportingInstance=""))
    with pytest.raises(ApiError, match='cannot delete resource "events"'):
        usage.delete(f"{EVENTS}/{made['metadata']['name']}")


# -- usage-idle


@pytest.mark.core
def test_the_measuring_process_marks_pods_of_its_own_node(cluster: Cluster, account: Account, pod: str) -> None:
    usage = account(names.USAGE, "node-1")
    usage.patch(f"{pod}/status", annotated(names.IDLE, MARK), fieldManager=names.USAGE)
    found = idle.of(objects.decode_pod(json.dumps(cluster.api.get(pod)).encode()))
    assert found is not None
    assert found.since == "2026-01-31T12:00:00Z"
    usage.patch(f"{pod}/status", annotated(names.IDLE, None), fieldManager=names.USAGE)
    assert names.IDLE not in cluster.api.get(pod)["metadata"]["annotations"]


REFUSED: dict[str, tuple[str, Json, str]] = {
    "another annotation": ("/status", annotated("example.com/mine", None), "the annotation gangshare.io/idle alone"),
    "an allocation": (
        "/status",
        annotated(names.ALLOCATION, "{}"),
        "may not be set by|the annotation gangshare.io/idle",
    ),
    "a label": ("/status", {"metadata": {"labels": {"a": "b"}}}, "the annotation gangshare.io/idle alone"),
    "finalizers": (
        "/status",
        {"metadata": {"finalizers": ["example.com/a"]}},
        "the annotation gangshare.io/idle alone",
    ),
    "a phase": ("/status", {"status": {"phase": "Failed"}}, "the annotation gangshare.io/idle alone"),
    "the pod itself": ("", annotated(names.IDLE, MARK), 'cannot patch resource "pods"'),
}


@pytest.mark.core
@pytest.mark.parametrize("what", REFUSED)
def test_the_measuring_process_may_not_change(account: Account, pod: str, what: str) -> None:
    part, patch, sentence = REFUSED[what]
    with pytest.raises(ApiError, match=sentence):
        account(names.USAGE, "node-1").patch(pod + part, patch)


@pytest.mark.core
@pytest.mark.parametrize("node", ["node-2", None])
def test_nor_a_pod_of_another_node(account: Account, pod: str, node: str | None) -> None:
    with pytest.raises(ApiError, match="may not change pod default/placed, which is not bound there"):
        account(names.USAGE, node).patch(f"{pod}/status", annotated(names.IDLE, MARK))


@pytest.mark.core
def test_nobody_else_says_that_a_pod_is_idle_or_that_it_is_not(cluster: Cluster, account: Account, pod: str) -> None:
    refused = f"the annotation {names.IDLE} may not be "
    reason = "it says since when a pod uses none of its GPUs, and gangshare-usage alone writes it"
    with pytest.raises(ApiError, match=refused + "set by admin"):
        cluster.api.post(PODS, _born_idle())
    account(names.USAGE, "node-1").patch(f"{pod}/status", annotated(names.IDLE, MARK), fieldManager=names.USAGE)
    plugin = account(names.PLUGIN, "node-1")
    for who, path in ((cluster.api, pod), (cluster.api, f"{pod}/status"), (plugin, f"{pod}/status")):
        for value, deed in ((None, "removed"), ("{}", "changed")):
            with pytest.raises(ApiError, match=f"{refused}{deed} by .*: {reason}"):
                who.patch(path, annotated(names.IDLE, value))
    cluster.api.patch(pod, annotated("example.com/mine", "2"))

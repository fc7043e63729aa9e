"""What the manifests leave to whom, on a real API server: no container runs, so nobody interferes."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from protos.contract import names
from tests.cluster import builds
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.cluster import Cluster, a_pod
from tests.cluster.process import wait_for

Account = Callable[..., Api]
MANIFESTS = builds.ROOT / "manifests"
PODS = "/api/v1/namespaces/default/pods"
SYSTEM = "gangshare-system"
NODE_1, NODE_2 = "/api/v1/nodes/node-1", "/api/v1/nodes/node-2"


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    """An API server with manifests/base and two nodes that are only objects."""
    with Cluster.up(nodes=0, scheduler=False) as running:
        running.apply(MANIFESTS / "base")
        for name in ("node-1", "node-2"):
            running.api.post("/api/v1/nodes", {"metadata": {"name": name}})
        wait_for(lambda: policies_work(running.api), 30, "policies that work")
        yield running


def policies_work(api: Api) -> bool:
    """Whether the API server follows its new policies yet."""
    forged = a_pod("forged", "true")
    forged["metadata"] |= claim()
    try:
        api.post(f"{PODS}?dryRun=All", forged)
    except ApiError as error:
        return names.ALLOCATION in error.message
    return False


@pytest.mark.parametrize("path", sorted((MANIFESTS / "samples").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_sample_is_valid(cluster: Cluster, path: Path) -> None:
    dry = ["apply", "--server-side", "--dry-run=server", "--filename", str(path)]
    if path.stem == "08-quota":  # a dry run makes no namespace for what comes after it
        cluster.kubectl("create", "namespace", "team-a")
    assert "serverside-applied (server dry run)" in cluster.kubectl(*dry)


@pytest.mark.parametrize("name", ["nvidia", "standalone", "shared", "gpushare"])
def test_the_other_overlays_are_valid(cluster: Cluster, name: str) -> None:
    folder = MANIFESTS / "overlays" / name
    dry = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--kustomize", str(folder)]
    assert "daemonset.apps/gangshare-plugin serverside-applied" in cluster.kubectl(*dry)


# Who may write gangshare.io/allocation.


@pytest.fixture(scope="module")
def account(cluster: Cluster) -> Account:
    """The API server as one of our accounts sees it, on a node or on none."""

    @functools.cache
    def api(name: str, node: str | None = None) -> Api:
        kubeconfig = json.loads(cluster.account_kubeconfig(SYSTEM, name, node=node).read_text())
        return Api(cluster.plane.port, cluster.plane.ca, token=kubeconfig["users"][0]["user"]["token"])

    return api


@pytest.fixture
def pod(cluster: Cluster, account: Account) -> Iterator[str]:
    """The path of a pod bound to node-1 by the extender's account, with an allocation."""
    made = a_pod("placed", "sleep infinity")
    made["spec"]["schedulerName"] = "nobody"
    made["metadata"]["annotations"] = {"example.com/mine": "1"}
    cluster.create_pod(made)
    path = f"{PODS}/placed"
    account("gangshare-scheduler").post(f"{path}/binding", binding("placed", "node-1", "first"))
    yield path
    cluster.api.delete(path, gracePeriodSeconds="0")


def binding(name: str, node: str, allocation: str) -> Json:
    metadata = {"name": name, "namespace": "default", "annotations": {names.ALLOCATION: allocation}}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": node}}


def annotated(key: str, value: str | None) -> Json:
    return {"metadata": {"annotations": {key: value}}}


def allocation(cluster: Cluster, path: str) -> str:
    return str(cluster.api.get(path)["metadata"]["annotations"][names.ALLOCATION])


FORGERIES: dict[str, tuple[str, Callable[[Api, str], Json]]] = {
    "a pod born with it": (
        "set",
        lambda api, _: api.post(PODS, a_pod("forged", "true") | {"metadata": {"name": "forged", **claim()}}),
    ),
    "a pod born with an empty one": (
        "set",
        lambda api, _: api.post(PODS, a_pod("forged", "true") | {"metadata": {"name": "forged", **claim("")}}),
    ),
    "an edit": ("changed", lambda api, path: api.patch(path, annotated(names.ALLOCATION, "mine"))),
    "its removal": ("removed", lambda api, path: api.patch(path, annotated(names.ALLOCATION, None))),
    "the removal of all annotations": (
        "removed",
        lambda api, path: api.patch(path, {"metadata": {"annotations": None}}),
    ),
    "an edit through status": (
        "changed",
        lambda api, path: api.patch(f"{path}/status", annotated(names.ALLOCATION, "mine")),
    ),
    "a Binding of one's own": (
        "set",
        lambda api, path: api.post(f"{path}/binding", binding("placed", "node-1", "mine")),
    ),
    "a Binding by the old path": (
        "set",
        lambda api, _: api.post("/api/v1/namespaces/default/bindings", binding("placed", "node-1", "mine")),
    ),
}


def claim(value: str = "{}") -> Json:
    return {"annotations": {names.ALLOCATION: value}}


@pytest.mark.core
@pytest.mark.parametrize("forgery", FORGERIES)
def test_nobody_else_writes_an_allocation_not_even_an_administrator(cluster: Cluster, pod: str, forgery: str) -> None:
    deed, attempt = FORGERIES[forgery]
    with pytest.raises(ApiError) as refused:
        attempt(cluster.api, pod)
    assert f"the annotation {names.ALLOCATION} may not be {deed} by admin: it says which GPUs" in refused.value.message
    assert allocation(cluster, pod) == "first"


def test_a_controller_of_forged_pods_says_why_it_has_none(cluster: Cluster) -> None:
    template = {"metadata": {"labels": {"app": "forged"}, **claim()}, "spec": a_pod("forged", "true")["spec"]}
    template["spec"]["restartPolicy"] = "Always"
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "forged"}}, "template": template}
    replica_sets = "/apis/apps/v1/namespaces/default/replicasets"
    cluster.api.post(replica_sets, {"metadata": {"name": "forged"}, "spec": spec})
    try:
        wait_for(lambda: any(names.ALLOCATION in event["message"] for event in cluster.events("forged")), 30, "event")
    finally:
        cluster.api.delete(f"{replica_sets}/forged")


@pytest.mark.core
def test_everything_else_of_a_placed_pod_stays_its_owners(cluster: Cluster, pod: str) -> None:
    cluster.api.patch(pod, annotated("example.com/mine", "2"))
    assert allocation(cluster, pod) == "first"


@pytest.mark.core
def test_the_extender_and_the_plugin_correct_it_through_status(cluster: Cluster, account: Account, pod: str) -> None:
    account("gangshare-scheduler").patch(f"{pod}/status", annotated(names.ALLOCATION, "second"))
    assert allocation(cluster, pod) == "second"
    account("gangshare-plugin", "node-1").patch(f"{pod}/status", annotated(names.ALLOCATION, "third"))
    assert allocation(cluster, pod) == "third"


# What the plugin may write.


@pytest.fixture
def plugin(account: Account) -> Api:
    """The plugin of node-1."""
    return account("gangshare-plugin", "node-1")


def test_a_plugin_annotates_its_own_node(cluster: Cluster, plugin: Api) -> None:
    plugin.patch("/api/v1/nodes/node-1/status", annotated(f"{names.DOMAIN}/test", "1"))
    plugin.patch("/api/v1/nodes/node-1/status", annotated(f"{names.DOMAIN}/test", None))


REFUSED: dict[str, tuple[str, Json, str]] = {
    "another node": (
        f"{NODE_2}/status",
        annotated(names.GPUS, "{}"),
        "gangshare-plugin of node node-1 may not change node node-2",
    ),
    "an annotation of others": (
        f"{NODE_1}/status",
        annotated("example.com/mine", "1"),
        "may change annotations that begin with gangshare.io/ alone, not example.com/mine",
    ),
    "a label": (f"{NODE_1}/status", {"metadata": {"labels": {"a": "b"}}}, "annotations alone, not labels"),
    "a condition": (
        f"{NODE_1}/status",
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        "not the status of nodes",
    ),
    "an amount": (f"{NODE_1}/status", {"status": {"capacity": {"cpu": "99"}}}, "not the status of nodes"),
    "a node's spec": (NODE_1, {"spec": {"unschedulable": True}}, 'cannot patch resource "nodes"'),
    "a pod's spec": (f"{PODS}/placed", {"spec": {"activeDeadlineSeconds": 1}}, 'cannot patch resource "pods"'),
    "a pod's phase": (f"{PODS}/placed/status", {"status": {"phase": "Failed"}}, "not the status of pods"),
    "a pod's finalizers": (
        f"{PODS}/placed/status",
        {"metadata": {"finalizers": ["example.com/stay"]}},
        "annotations alone, not labels, finalizers",
    ),
    "a pod's annotation of others": (
        f"{PODS}/placed/status",
        annotated("example.com/mine", None),
        "may change annotations that begin with gangshare.io/ alone, not example.com/mine",
    ),
}


@pytest.mark.core
@pytest.mark.parametrize("what", REFUSED)
def test_a_plugin_may_not_change(cluster: Cluster, pod: str, plugin: Api, what: str) -> None:
    path, patch, sentence = REFUSED[what]
    with pytest.raises(ApiError) as refused:
        plugin.patch(path, patch)
    assert sentence in refused.value.message


@pytest.mark.core
def test_a_plugin_may_not_change_a_pod_of_another_node(account: Account, pod: str) -> None:
    with pytest.raises(
        ApiError, match="gangshare-plugin of node node-2 may not change pod default/placed, which is bound"
    ):
        account("gangshare-plugin", "node-2").patch(f"{pod}/status", annotated(names.ALLOCATION, "mine"))


@pytest.mark.core
def test_a_plugin_changes_no_spec_through_status(cluster: Cluster, pod: str, plugin: Api) -> None:
    plugin.patch(f"{pod}/status", {"spec": {"activeDeadlineSeconds": 1}})
    assert "activeDeadlineSeconds" not in cluster.api.get(pod)["spec"]


@pytest.mark.core
def test_a_plugins_token_that_names_no_node_is_good_for_no_write(account: Account, pod: str) -> None:
    with pytest.raises(ApiError, match="does not name its node"):
        account("gangshare-plugin").patch(f"{pod}/status", annotated(names.ALLOCATION, "mine"))


def test_a_plugin_writes_pods_through_status_even_where_it_was_given_more(
    cluster: Cluster, pod: str, plugin: Api
) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}]
    cluster.api.post(f"{roles}/clusterroles", {"metadata": {"name": "more"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "gangshare-plugin", "namespace": SYSTEM}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "more"}
    given = {"metadata": {"name": "more"}, "subjects": [subject], "roleRef": role}
    cluster.api.post(f"{roles}/clusterrolebindings", given)
    try:
        told = wait_for(lambda: refusal_by_policy(plugin, pod), 10, "refusal by the policy")
    finally:
        cluster.api.delete(f"{roles}/clusterrolebindings/more")
        cluster.api.delete(f"{roles}/clusterroles/more")
    assert "through pods/status and nodes/status alone, it may not update pods" in told


def refusal_by_policy(api: Api, pod: str) -> str:
    """What a policy says to an annotation of ours by way of the pod itself; "" while RBAC refuses it still."""
    with pytest.raises(ApiError) as refused:
        api.patch(pod, annotated(f"{names.DOMAIN}/test", "1"))
    return refused.value.message if "ValidatingAdmissionPolicy" in refused.value.message else ""


def test_with_gpushares_names_a_plugin_writes_those_too_and_no_more(cluster: Cluster, pod: str, plugin: Api) -> None:
    count = {"status": {kind: {names.ALIYUN_COUNT: "4"} for kind in ("capacity", "allocatable")}}
    with pytest.raises(ApiError, match="not the status of nodes"):
        plugin.patch(f"{NODE_1}/status", count)
    cluster.apply(plugin_policy(cluster, "overlays/gpushare"))
    try:
        wait_for(lambda: plugin.patch(f"{NODE_1}/status", count), 30, "policy that lets the count pass")
        plugin.patch(f"{pod}/status", annotated(names.ALIYUN_ASSIGNED, "true"))
        for path, patch, sentence in (
            (f"{NODE_1}/status", {"status": {"capacity": {"cpu": "9"}}}, f"allocatable of {names.ALIYUN_COUNT}"),
            (f"{NODE_1}/status", {"status": {"phase": "Running"}}, "not the status of nodes"),
            (f"{pod}/status", annotated("example.com/mine", "2"), "gangshare.io/ or ALIYUN_COM_GPU_MEM_ alone, not"),
        ):
            with pytest.raises(ApiError, match=sentence):
                plugin.patch(path, patch)
    finally:
        cluster.apply(plugin_policy(cluster, "base"))


def plugin_policy(cluster: Cluster, folder: str) -> Json:
    """The plugin's policy as a folder of the manifests has it."""
    built = yaml.safe_load_all(cluster.kubectl("kustomize", str(MANIFESTS / folder)))
    kind_and_name = ("ValidatingAdmissionPolicy", "gangshare-plugin")
    policy: Json = next(made for made in built if (made["kind"], made["metadata"]["name"]) == kind_and_name)
    return policy

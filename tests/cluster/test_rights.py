"""What the manifests leave to whom, on a real API server: no container runs, so nobody interferes."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangfilter import naming
from protos.contract import names
from tests.cluster import builds
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.cluster import Cluster, a_pod
from tests.cluster.process import HarnessError, wait_for

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
        running.apply(MANIFESTS / "components" / "fake" / "runtimeclass.yaml")  # samples name it
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
        cluster.kubectl("create", "namespace", "sample-team-a")
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
        return cluster.account_api(SYSTEM, name, node=node)

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


@pytest.mark.core
def test_the_extender_alone_says_what_is_booked_for_a_running_pod(cluster: Cluster, account: Account, pod: str) -> None:
    booked = annotated(names.RESIZED, "{}")
    for api, path in (
        (cluster.api, pod),
        (cluster.api, f"{pod}/status"),
        (account("gangshare-plugin", "node-1"), f"{pod}/status"),
    ):
        with pytest.raises(ApiError, match="it says what gangshare has booked for a running pod"):
            api.patch(path, booked)
    account("gangshare-scheduler").patch(f"{pod}/status", booked)
    assert cluster.api.get(pod)["metadata"]["annotations"][names.RESIZED] == "{}"
    with pytest.raises(ApiError, match="it says what gangshare has booked for a running pod"):
        cluster.api.patch(pod, annotated(names.RESIZED, None))


# Who may write gangshare.io/reservation.

ROOM = '{"v":1,"rooms":{},"until":"2100-01-01T00:00:00Z"}'
PREEMPTING = '{"v":1,"rooms":{},"until":"2100-01-01T00:00:00Z","preempting":true}'
DISGUISED = ROOM[:-1] + ',"\\u0070reempting":true}'


@pytest.fixture
def waiting(cluster: Cluster) -> Iterator[str]:
    """The path of a pod that waits."""
    made = a_pod("waiting", "true")
    made["spec"]["schedulerName"] = "nobody"
    cluster.create_pod(made)
    yield f"{PODS}/waiting"
    cluster.api.delete(f"{PODS}/waiting", gracePeriodSeconds="0")


def test_a_tenant_asks_for_no_room(cluster: Cluster, account: Account, waiting: str) -> None:
    tenant = with_role(cluster, account, "tenant", "edit")
    born = a_pod("born", "true")
    born["metadata"]["annotations"] = {names.RESERVATION: ROOM}
    refused = f"the annotation {names.RESERVATION} may not be set by"
    with pytest.raises(ApiError, match=refused):
        tenant.post(PODS, born)
    for somebody in (tenant, cluster.api):
        with pytest.raises(ApiError, match=refused):
            somebody.patch(waiting, annotated(names.RESERVATION, ROOM))
    with pytest.raises(ApiError, match='cannot patch resource "pods/status"'):
        tenant.patch(f"{waiting}/status", annotated(names.RESERVATION, ROOM))
    account("gangshare-scheduler").patch(f"{waiting}/status", annotated(names.RESERVATION, PREEMPTING))
    for value, deed in ((None, "removed"), (ROOM, "changed")):
        with pytest.raises(ApiError, match=f"may not be {deed} by"):
            tenant.patch(waiting, annotated(names.RESERVATION, value))
    tenant.patch(waiting, annotated("example.com/mine", "1"))


def test_an_operator_asks_for_room_through_status_and_does_not_preempt(
    cluster: Cluster, account: Account, waiting: str
) -> None:
    operator = with_role(cluster, account, "operator", "gangshare-defrag")
    operator.patch(f"{waiting}/status", annotated(names.RESERVATION, ROOM))
    for forged in (PREEMPTING, DISGUISED):
        with pytest.raises(ApiError, match="may say preempting only if the extender writes it"):
            operator.patch(f"{waiting}/status", annotated(names.RESERVATION, forged))
    operator.patch(f"{waiting}/status", annotated(names.RESERVATION, None))


def test_the_right_to_patch_status_alone_is_not_enough(cluster: Cluster, account: Account, waiting: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]
    cluster.api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "half"}, "rules": rules})
    half = with_role(cluster, account, "half", "half")
    half.patch(f"{waiting}/status", annotated("example.com/mine", "1"))
    with pytest.raises(ApiError, match="with the right to create reservations"):
        half.patch(f"{waiting}/status", annotated(names.RESERVATION, ROOM))


def with_role(cluster: Cluster, account: Account, name: str, role: str) -> Api:
    """Somebody who has this role in all namespaces, once that works."""
    cluster.kubectl("create", "serviceaccount", name, "--namespace", SYSTEM)
    who = f"--serviceaccount={SYSTEM}:{name}"
    cluster.kubectl("create", "clusterrolebinding", name, f"--clusterrole={role}", who)
    asked = {"namespace": "default", "verb": "patch", "resource": "pods"}
    asked |= {} if role == "edit" else {"subresource": "status"}
    review = {"spec": {"user": f"system:serviceaccount:{SYSTEM}:{name}", "resourceAttributes": asked}}
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    wait_for(lambda: cluster.api.post(reviews, review)["status"]["allowed"], 20, "the role to work")
    return account(name)


# Who may write gangshare.io/gpus.


def test_a_kubelet_does_not_say_which_gpus_its_node_has(cluster: Cluster, plugin: Api) -> None:
    forged = annotated(names.GPUS, "{}")
    told = f"the annotation {names.GPUS} of node node-1 may not be changed by system:node:node-1"
    kubelet = cluster.api.impersonate("system:node:node-1", "system:nodes")
    for path in (NODE_1, f"{NODE_1}/status"):
        with pytest.raises(ApiError, match=told):
            kubelet.patch(path, forged)
    plugin.patch(f"{NODE_1}/status", forged)
    kubelet.patch(f"{NODE_1}/status", annotated("example.com/kubelet", "1"))
    cluster.api.patch(NODE_1, annotated(names.GPUS, None))


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


def an_event(kind: str, name: str, **fields: Any) -> Json:
    """An Event of the plugin of node-1, but for these fields."""
    said = {"reportingComponent": names.PLUGIN, "reportingInstance": "node-1", "reason": "Test", "type": "Normal"}
    about = {"kind": kind, "name": name, "namespace": "" if kind == "Node" else "default"}
    meta = {"generateName": "test-", "namespace": "default"}
    return {"metadata": meta, "involvedObject": about, "message": "x", **said, **fields}


@pytest.mark.core
def test_a_plugin_tells_of_pods_and_its_own_node_in_its_own_name(plugin: Api, account: Account) -> None:
    events = "/api/v1/namespaces/default/events"
    for told in (an_event("Pod", "placed"), an_event("Node", "node-1")):
        made = plugin.post(events, told)
        plugin.patch(f"{events}/{made['metadata']['name']}", {"count": 2})
    for told, sentence in (
        (an_event("Node", "node-2"), "may tell of pods and of its own node, not of Node node-2"),
        (an_event("Secret", "s"), "may tell of pods and of its own node, not of Secret s"),
        (an_event("Pod", "placed", reportingComponent="kubelet"), "reportingComponent gangshare-plugin"),
        (an_event("Pod", "placed", reportingInstance="node-2"), "its node as reportingInstance"),
    ):
        with pytest.raises(ApiError, match=sentence):
            plugin.post(events, told)
    theirs = account("gangshare-scheduler").post(events, an_event("Pod", "placed", reportingComponent="others"))
    with pytest.raises(ApiError, match="reportingComponent gangshare-plugin"):
        plugin.patch(f"{events}/{theirs['metadata']['name']}", {"message": "y", "reportingComponent": names.PLUGIN})


@pytest.mark.core
def test_a_plugin_may_not_change_a_pod_of_another_node(account: Account, pod: str) -> None:
    with pytest.raises(
        ApiError, match="gangshare-plugin of node node-2 may not change pod default/placed, which is bound"
    ):
        account("gangshare-plugin", "node-2").patch(f"{pod}/status", annotated(names.ALLOCATION, "mine"))


def test_a_plugin_evicts_nobody_without_the_component_for_it(pod: str, plugin: Api) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "placed", "namespace": "default"}}
    with pytest.raises(ApiError, match='cannot create resource "pods/eviction"'):
        plugin.post(f"{pod}/eviction", eviction)


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


# PodGroups and PriorityClasses.


def test_a_podgroup_of_a_system_class_is_refused_outside_of_kube_system(cluster: Cluster) -> None:
    def group(**spec: str) -> Json:
        return {"apiVersion": "gangshare.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "eager"}, "spec": spec}

    groups = "/apis/gangshare.io/v1alpha1/namespaces/{}/podgroups"
    system = group(priorityClassName="system-node-critical")
    with pytest.raises(ApiError, match="PodGroups of system classes may only be in the namespace kube-system"):
        cluster.api.post(groups.format("default"), system)
    cluster.api.post(groups.format("kube-system"), system)
    cluster.api.post(groups.format("default"), group(priorityClassName="urgent"))
    with pytest.raises(ApiError, match="this one is in default"):
        cluster.api.patch(f"{groups.format('default')}/eager", {"spec": {"priorityClassName": "system-mine"}})


# Queues and namespaces.

QUEUES = "/apis/gangshare.io/v1alpha1/queues"
GROUPS = "/apis/gangshare.io/v1alpha1/namespaces/default/podgroups"
HIVED = "hivedscheduler.microsoft.com/pod-scheduling-spec"


@pytest.fixture
def queues(cluster: Cluster) -> Iterator[None]:
    """Queues that admit namespaces by their labels; `default` has the label `team: a`."""
    cluster.api.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"team": "a"}}})
    selectors: dict[str, Json] = {
        "of-a": {"matchLabels": {"team": "a"}},
        "of-b": {"matchLabels": {"team": "b"}},
        "in-b": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["b", "c"]}]},
        "not-in-a": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
        "not-in-b": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["b"]}]},
        "has-org": {"matchExpressions": [{"key": "org", "operator": "Exists"}]},
        "has-no-org": {"matchExpressions": [{"key": "org", "operator": "DoesNotExist"}]},
        "every": {},
    }
    for name, selector in selectors.items():
        made = {"apiVersion": "gangshare.io/v1alpha1", "kind": "Queue", "metadata": {"name": name}}
        cluster.api.post(QUEUES, {**made, "spec": {"namespaceSelector": selector}})
    wait_for(lambda: denied(cluster, in_queue("of-b")), 30, "the API server follows the queues")
    yield
    for name in selectors:
        cluster.api.delete(f"{QUEUES}/{name}")
    cluster.api.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"team": None}}})


def in_queue(name: str, key: str = names.QUEUE, place: str = "annotations") -> Json:
    made = a_pod("queued", "true")
    made["metadata"][place] = {key: name}
    return made


def denied(cluster: Cluster, pod: Json) -> str:
    """Why the pod may not be made, "" if it may; it is not."""
    try:
        cluster.api.post(f"{PODS}?dryRun=All", pod)
    except ApiError as error:
        return error.message
    return ""


@pytest.mark.core
@pytest.mark.usefixtures("queues")
def test_a_queue_is_named_only_in_namespaces_that_it_admits(cluster: Cluster) -> None:
    for name in ("of-b", "in-b", "not-in-a", "has-org"):
        sentence = f"queue {name} does not admit pods of namespace default: its namespaceSelector selects others"
        assert sentence in denied(cluster, in_queue(name))
    for name in ("of-a", "not-in-b", "has-no-org", "every", "missing", "default"):
        assert denied(cluster, in_queue(name)) == ""
    assert denied(cluster, a_pod("plain", "true")) == ""
    for key in naming.QUEUE_KEYS:
        assert "queue of-b does not" in denied(cluster, in_queue("of-b", key.name, f"{key.place}s")), key
    for name, why in (("of-b", "queue of-b does not"), ("of-a", ""), ("b", "")):
        for text in (
            f"virtualCluster: {name}\n",
            f'a: 1\nvirtualCluster:  "{name}" # x',
            f'{{"virtualCluster":"{name}"}}',
        ):
            told = denied(cluster, in_queue(text, HIVED))
            assert (why in told, bool(told)) == (True, bool(why)), text
    plain = in_queue("of-b", "queue", "labels")
    assert denied(cluster, plain) == "", "that label says nothing on a pod that is not YuniKorn's"
    plain["metadata"]["annotations"] = {"yunikorn.apache.org/task-group-name": "w"}
    assert "queue of-b does not" in denied(cluster, plain)
    group = {"apiVersion": "gangshare.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "queued"}}
    with pytest.raises(ApiError, match="queue of-b does not admit pods of namespace default"):
        cluster.api.post(GROUPS, {**group, "spec": {"minMember": 1, "queue": "of-b"}})
    cluster.api.post(GROUPS, {**group, "spec": {"minMember": 1, "queue": "of-a"}})
    with pytest.raises(ApiError, match="queue of-b does not admit pods of namespace default"):
        cluster.api.patch(f"{GROUPS}/queued", {"spec": {"queue": "of-b"}})
    cluster.api.delete(f"{GROUPS}/queued")


@pytest.mark.core
@pytest.mark.usefixtures("queues")
def test_what_has_started_stays_in_its_queue(cluster: Cluster, account: Account) -> None:
    made = in_queue("of-a")
    made["spec"]["schedulerName"] = "nobody"
    cluster.create_pod(made)
    path = f"{PODS}/queued"
    cluster.api.patch(path, annotated(names.QUEUE, "every"))
    account("gangshare-scheduler").post(f"{path}/binding", binding("queued", "node-1", "first"))
    for part in ("", "/status"):
        with pytest.raises(ApiError, match=r"gangshare\.io/queue may not change: what has started stays in its queue"):
            cluster.api.patch(path + part, annotated(names.QUEUE, "of-a"))
    with pytest.raises(ApiError, match=r"kai\.scheduler/queue may not change"):
        cluster.api.patch(path, {"metadata": {"labels": {"kai.scheduler/queue": "of-a"}}})
    with pytest.raises(ApiError, match=r"pod-scheduling-spec may not change"):
        cluster.api.patch(path, annotated(HIVED, "virtualCluster: of-a"))
    cluster.api.patch(path, {"metadata": {"labels": {"anything": "else", "queue": "of-b"}}})
    asked = {"annotations": {"yunikorn.apache.org/task-group-name": "w"}, "labels": {"queue": "of-a"}}
    with pytest.raises(ApiError, match=r": queue may not change"):
        cluster.api.patch(path, {"metadata": asked})
    cluster.api.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"team": "b"}}})
    cluster.api.patch(path, annotated("example.com/mine", "1"))
    cluster.api.delete(path, gracePeriodSeconds="0")
    group = {"apiVersion": "gangshare.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "started"}}
    cluster.api.post(GROUPS, {**group, "spec": {"minMember": 1, "queue": "every"}})
    cluster.api.patch(f"{GROUPS}/started", {"spec": {"queue": "missing"}})
    cluster.api.patch(f"{GROUPS}/started/status", {"status": {"phase": "Running"}})
    with pytest.raises(ApiError, match=r"spec\.queue may not change"):
        cluster.api.patch(f"{GROUPS}/started", {"spec": {"queue": "every"}})
    cluster.api.delete(f"{GROUPS}/started")


@pytest.mark.parametrize(
    ("name", "mistake"),
    [("gangshare-queue-namespaces", "params.spec.nothing"), ("gangshare-queue-fixed", "object.spec.nothing")],
)
def test_our_policies_are_free_of_mistakes_that_the_api_server_finds(cluster: Cluster, name: str, mistake: str) -> None:
    """It finds a mistake that we add, once it knows the kinds, and no other."""
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}"
    validations = cluster.api.get(path)["spec"]["validations"]
    versions = (f"{mistake} == '{n}'" for n in itertools.count())

    def warnings() -> list[Json]:
        asked = [*validations, {"expression": next(versions)}]
        version = cluster.api.patch(path, {"spec": {"validations": asked}})["metadata"]["generation"]
        with contextlib.suppress(HarnessError):
            return wait_for(functools.partial(_warnings, cluster, path, version), 5, "a mistake was found")
        return []

    found = wait_for(warnings, 60, f"mistake in {name} was found")
    cluster.api.patch(path, {"spec": {"validations": validations}})
    assert [warning["fieldRef"] for warning in found] == [f"spec.validations[{len(validations)}].expression"], found


def _warnings(cluster: Cluster, path: str, version: int) -> list[Json]:
    """What the API server finds in this version of a policy, which it checks once."""
    status: Json = cluster.api.get(path)["status"]
    found: list[Json] = status["typeChecking"]["expressionWarnings"] if status["observedGeneration"] >= version else []
    return found

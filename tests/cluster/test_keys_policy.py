"""Keys that we do not read are told at `kubectl apply`: somebody with `edit` rights, against a real API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from protos.contract import names
from tests.cluster import assets
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import beta_policies, kustomization, memory_units
from tests.cluster.mistaken import (
    MISTAKES,
    RIGHT,
    a_wrong_pod,
    asking,
    cron_job,
    daemon_set,
    deployment,
    job,
    replica_set,
    stateful_set,
)
from tests.cluster.process import HarnessError, wait_for

PATIENCE_S = 30
WARNED, DENIED, SILENT = "warned", "denied", "silent"
NAMESPACES: Mapping[str, Mapping[str, str]] = {
    WARNED: {},
    DENIED: {names.UNKNOWN_KEYS: "deny"},
    SILENT: {names.UNKNOWN_KEYS: "ignore"},
    "told": {names.UNKNOWN_KEYS: "warn"},
}


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    """An API server with manifests/base, and no node."""
    with Cluster.up(nodes=0, scheduler=False, apiserver_args=beta_policies(assets.provide().minor)) as running:
        running.apply(kustomization(running, "base"))
        for name, labels in NAMESPACES.items():
            running.api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels)}})
        yield running


@pytest.fixture(scope="module")
def tenant(cluster: Cluster) -> Path:
    """The kubeconfig of somebody with the ClusterRole `edit` in each of the namespaces."""
    account = {"kind": "ServiceAccount", "name": "tenant", "namespace": WARNED}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    cluster.api.post(f"/api/v1/namespaces/{WARNED}/serviceaccounts", {"metadata": {"name": "tenant"}})
    for namespace in NAMESPACES:
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
        cluster.api.post(path, {"metadata": {"name": "edit"}, "subjects": [account], "roleRef": role})
    found = cluster.account_kubeconfig(WARNED, "tenant")
    wrong = a_wrong_pod()
    wait_for(lambda: "Warning:" in answer(cluster, found, WARNED, wrong), PATIENCE_S, "a policy that warns")
    wait_for(lambda: "denied" in answer(cluster, found, DENIED, wrong), PATIENCE_S, "a policy that denies")
    return found


def answer(cluster: Cluster, kubeconfig: Path, namespace: str, found: Json) -> str:
    """What `kubectl apply` of the object says against it, "" if nothing."""
    apply = ["apply", "--dry-run=server", "--warnings-as-errors", f"--namespace={namespace}", "--filename=-"]
    try:
        cluster.kubectl(*apply, stdin=json.dumps(found), kubeconfig=kubeconfig)
    except HarnessError as error:
        return str(error)
    return ""


@pytest.mark.core
@pytest.mark.parametrize("made", [dict, deployment], ids=["pod", "Deployment"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_warned_of_and_denied_or_passed_over_where_the_namespace_says_so(
    cluster: Cluster, tenant: Path, mistake: str, made: Callable[[Json], Json]
) -> None:
    pod, sentence = MISTAKES[mistake]
    warned, denied = (answer(cluster, tenant, namespace, made(pod)) for namespace in (WARNED, DENIED))
    assert sentence in warned
    assert (warned.count("Warning:"), "denied request" in warned) == (1, False)
    assert sentence in denied
    assert "denied request" in denied
    assert answer(cluster, tenant, SILENT, made(pod)) == ""


@pytest.mark.parametrize("made", [replica_set, stateful_set, daemon_set, job, cron_job])
def test_so_it_is_for_every_kind_of_workload(cluster: Cluster, tenant: Path, made: Callable[[Json], Json]) -> None:
    pod, sentence = MISTAKES["a misspelt annotation"]
    assert sentence in answer(cluster, tenant, WARNED, made(pod))
    assert answer(cluster, tenant, WARNED, made(asking())) == ""


@pytest.mark.parametrize("made", [deployment, stateful_set, daemon_set, job, cron_job])
def test_an_annotation_of_the_workload_itself_is_told(
    cluster: Cluster, tenant: Path, made: Callable[[Json], Json]
) -> None:
    workload = made(asking())
    workload["metadata"]["annotations"] = {names.GPU_MODEL: "H200", "example.com/mine": "x"}
    expected = (
        f"annotation gangshare.io/gpu-model of the {workload['kind']} itself is not read: "
        "write it in the metadata of its pod template"
    )
    said = answer(cluster, tenant, WARNED, workload)
    assert expected in said
    assert "example.com" not in said
    both = made(asking(annotations={names.GPU_MODEL: "H200"}))
    both["metadata"]["annotations"] = {names.GPU_MODEL: "H200"}
    assert answer(cluster, tenant, DENIED, both) == ""


def test_a_gang_that_only_the_workload_itself_names_is_told(cluster: Cluster, tenant: Path) -> None:
    workload = job(asking())
    workload["metadata"]["labels"] = {names.GROUP: "g", names.MIN_MEMBER: "2"}
    said = answer(cluster, tenant, WARNED, workload)
    for key in (names.GROUP, names.MIN_MEMBER):
        assert f"label {key} of the Job itself is not read: write it in the metadata of its pod template" in said
    workload["spec"]["template"]["metadata"]["labels"] |= workload["metadata"]["labels"]
    assert answer(cluster, tenant, DENIED, workload) == ""


def test_the_annotations_that_a_controller_copies_are_not_judged_again(cluster: Cluster, tenant: Path) -> None:
    copied = replica_set(asking())
    copied["metadata"]["annotations"] = {names.GPU_MODEL: "H200"}
    assert answer(cluster, tenant, DENIED, copied) == ""


@pytest.mark.core
@pytest.mark.parametrize("made", [dict, deployment], ids=["pod", "Deployment"])
@pytest.mark.parametrize("what", RIGHT)
def test_nothing_is_said_of(cluster: Cluster, tenant: Path, what: str, made: Callable[[Json], Json]) -> None:
    for namespace in (WARNED, DENIED):
        assert answer(cluster, tenant, namespace, made(RIGHT[what])) == ""


def test_several_mistakes_are_told_together(cluster: Cluster, tenant: Path) -> None:
    both = {"gangshare.io/gpu-modle": "x", "gangshare.io/nvlink": "y", names.LINK: "nvswitch"}
    said = answer(cluster, tenant, WARNED, asking({names.GPU_MEM: "10Gi"}, annotations=both))
    for part in ("gpu-modle is not known", "nvlink is not known", "'nvswitch'", "write gangshare.io/gpu-mem: 10"):
        assert part in said
    assert said.count("Warning:") == 3, "one for each kind"


def test_only_what_a_request_changes_is_judged(cluster: Cluster, tenant: Path) -> None:
    """Who labels a pod, removes a gate or scales a Deployment is not held to what was there before."""
    folder, apps = f"/api/v1/namespaces/{DENIED}", f"/apis/apps/v1/namespaces/{DENIED}/deployments"
    allow = {"metadata": {"labels": {names.UNKNOWN_KEYS: "ignore"}}}
    cluster.api.patch(folder, allow)
    old = asking({names.GPU_MEM: "10Gi"}, annotations={"gangshare.io/gpu-modle": "x"}, labels={"gangshare.io/x": "y"})
    old["metadata"]["name"] = "old"
    old["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    wait_for(lambda: answer(cluster, tenant, DENIED, old) == "", PATIENCE_S, "silence")
    cluster.api.post(f"{folder}/pods", old)
    cluster.api.post(apps, deployment({**old, "spec": RIGHT["every annotation"]["spec"]}))
    cluster.api.patch(folder, {"metadata": {"labels": dict(NAMESPACES[DENIED])}})
    wait_for(lambda: "denied" in answer(cluster, tenant, DENIED, a_wrong_pod()), PATIENCE_S, "denial")

    def patch(what: str, body: Json, *flags: str) -> None:
        change = ["patch", what, f"--namespace={DENIED}", "--type=merge", f"--patch={json.dumps(body)}", *flags]
        cluster.kubectl(*change, kubeconfig=tenant)

    patch("pod/old", {"metadata": {"labels": {"example.com/mine": "1"}, "finalizers": []}})
    patch("pod/old", {"spec": {"schedulingGates": []}})
    patch("deployment/pods", {"spec": {"replicas": 2}})
    for body in ({"gangshare.io/gpu-modle": "other"}, {"gangshare.io/nvlink": "1"}, {names.LINK: "nvswitch"}):
        with pytest.raises(HarnessError, match="denied request"):
            patch("pod/old", {"metadata": {"annotations": body}})
    patch("pod/old", {"metadata": {"annotations": {"gangshare.io/gpu-modle": None, names.GPU_MODEL: "*H200*"}}})
    patch("deployment/pods", {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}})


def test_large_pods_are_judged_too(cluster: Cluster, tenant: Path) -> None:
    limits = {"cpu": "10m", "memory": "1Gi", names.GPU_MEM: "1", names.GPU_SLICE: "1"}
    others = {f"example.com/{'k' * 40}-{i}": "v" * 40 for i in range(500)}
    large = asking(*[limits] * 64, annotations=others)
    assert answer(cluster, tenant, DENIED, large) == ""
    large["metadata"]["annotations"]["gangshare.io/gpu-modle"] = "x"
    assert MISTAKES["a misspelt annotation"][1] in answer(cluster, tenant, DENIED, large)


def test_mistakes_without_end_are_not_listed_and_take_the_api_server_no_time(cluster: Cluster, tenant: Path) -> None:
    def wrong(count: int) -> Json:
        return asking(annotations={f"gangshare.io/{'k' * 50}-{i}": "" for i in range(count)})

    assert "too many to list" in answer(cluster, tenant, DENIED, wrong(500))
    foreign = asking(*[{"nvidia.com/gpumem": "1", "nvidia.com/gpucores": "1"}] * 64)
    assert "the keys are of other products" in answer(cluster, tenant, DENIED, foreign)
    in_bytes = asking(*[{names.GPU_MEM: "10Gi"}] * 64)
    assert "the limits of several containers are no amounts of GPUs" in answer(cluster, tenant, DENIED, in_bytes)
    assert answer(cluster, tenant, DENIED, deployment(wrong(513))) == "", "left to the policy on its pods"
    assert "annotations: expected at most 512" in answer(cluster, tenant, DENIED, wrong(513))


def test_with_the_component_every_namespace_denies_that_does_not_say_otherwise(cluster: Cluster, tenant: Path) -> None:
    cluster.apply(kustomization(cluster, "base", "deny-unknown-keys"))
    pod = a_wrong_pod()
    wait_for(lambda: "denied request" in answer(cluster, tenant, WARNED, pod), PATIENCE_S, "denial")
    wait_for(lambda: "Warning:" in answer(cluster, tenant, "told", pod), PATIENCE_S, "a warning")
    assert "denied request" in answer(cluster, tenant, DENIED, pod)
    assert answer(cluster, tenant, SILENT, pod) == ""
    cluster.apply(kustomization(cluster, "base"))
    wait_for(lambda: "Warning:" in answer(cluster, tenant, WARNED, pod), PATIENCE_S, "a warning")


POLICY = "/apis/admissionregistration.k8s.io"
SILENT_PODS = f"/api/v1/namespaces/{SILENT}/pods"


@pytest.fixture
def rewriting(cluster: Cluster) -> Iterator[None]:
    """With the component that makes numbers of amounts of memory."""
    component = memory_units(cluster.plane.assets.minor)
    if not component:
        pytest.skip("MutatingAdmissionPolicies need Kubernetes 1.34")
    older = asking({names.GPU_MEM: "10Gi"})
    older["metadata"] |= {"name": "older", "namespace": SILENT, "finalizers": ["example.com/stay"]}
    cluster.create_pod(older)
    cluster.apply(kustomization(cluster, "base", component))
    first = asking({names.GPU_MEM: "10Gi"})
    wait_for(lambda: asked(born(cluster, first)) == ["10"], PATIENCE_S, "a policy that rewrites")
    yield
    cluster.api.patch(f"{SILENT_PODS}/older", {"metadata": {"finalizers": None}})
    cluster.api.delete(f"{SILENT_PODS}/older", gracePeriodSeconds="0")
    version = component.removeprefix("memory-units").removeprefix("-") or "v1"
    for kind in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
        cluster.api.delete(f"{POLICY}/{version}/{kind}/gangshare-memory-units")
    cluster.apply(kustomization(cluster, "base"))
    wait_for(lambda: asked(born(cluster, first)) == ["10Gi"], PATIENCE_S, "no such policy")


def born(cluster: Cluster, pod: Json) -> Json:
    """The pod as it would be created."""
    return cluster.api.post(f"{SILENT_PODS}?dryRun=All", pod)


def asked(pod: Json) -> list[str]:
    """The GPU memory that each container has as limit, which is also its request."""
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    limits, requests = (
        [container["resources"].get(part, {}).get(names.GPU_MEM, "") for container in containers]
        for part in ("limits", "requests")
    )
    assert limits == requests
    return limits


@pytest.mark.usefixtures("rewriting")
def test_amounts_of_memory_become_units_and_what_was_written_stays(cluster: Cluster) -> None:
    amounts = ("10Gi", "500Mi", "1025Mi", "10G", "1Ti", "7", "0")
    pod = asking(*({names.GPU_MEM: amount} for amount in amounts), {"cpu": "1"})
    pod["spec"]["initContainers"] = [
        {**pod["spec"]["containers"][0], "name": "init", "resources": {"limits": {names.GPU_MEM: "2049Mi"}}}
    ]
    pod["spec"]["schedulerName"] = "nobody"
    made = born(cluster, pod)
    assert asked(made) == ["3", "10", "1", "2", "10", "1024", "7", "0", ""]
    assert made["metadata"]["annotations"] == {
        names.GPU_MEM_WRITTEN: "c-0=10Gi,c-1=500Mi,c-2=1025Mi,c-3=10G,c-4=1Ti,init=2049Mi"
    }
    others = asking({names.GPU_MEM: "10"}, annotations={"example.com/mine": "1"})
    assert born(cluster, others)["metadata"]["annotations"] == {"example.com/mine": "1"}
    both = asking({names.GPU_MEM: "10Gi"}, annotations={"example.com/mine": "1"})
    kept = {"example.com/mine": "1", names.GPU_MEM_WRITTEN: "c-0=10Gi"}
    assert born(cluster, both)["metadata"]["annotations"] == kept


@pytest.mark.usefixtures("rewriting")
def test_an_amount_of_memory_is_no_mistake_then_and_its_manifest_can_be_applied_again(
    cluster: Cluster, tenant: Path
) -> None:
    pod = asking({names.GPU_MEM: "10Gi"})
    pod["metadata"]["name"] = "again"
    wait_for(lambda: answer(cluster, tenant, DENIED, deployment(pod)) == "", PATIENCE_S, "silence")
    apply = ["apply", "--warnings-as-errors", f"--namespace={DENIED}", "--filename=-"]
    for _ in range(2):
        cluster.kubectl(*apply, stdin=json.dumps(pod), kubeconfig=tenant)
    found = cluster.pod("again", DENIED)
    assert asked(found) == ["10"]
    assert found["metadata"]["annotations"][names.GPU_MEM_WRITTEN] == "c-0=10Gi"
    pod["metadata"]["annotations"] = {"example.com/mine": "2"}
    cluster.kubectl(*apply, stdin=json.dumps(pod), kubeconfig=tenant)
    assert cluster.pod("again", DENIED)["metadata"]["annotations"]["example.com/mine"] == "2"


@pytest.mark.usefixtures("rewriting")
def test_pods_from_before_keep_their_amount_and_can_be_changed_otherwise(cluster: Cluster) -> None:
    """As controllers do that remove the finalizers of pods."""
    changed = cluster.api.patch(
        f"{SILENT_PODS}/older", {"metadata": {"labels": {"example.com/x": "y"}, "finalizers": None}}
    )
    assert asked(changed) == ["10Gi"]
    assert names.GPU_MEM_WRITTEN not in changed["metadata"].get("annotations", {})

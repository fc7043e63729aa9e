"""Keys that we do not read are told at `kubectl apply`: somebody with `edit` rights, against a real API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from protos.contract import names
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster, a_pod
from tests.cluster.gangshare import kustomization
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
    with Cluster.up(nodes=0, scheduler=False) as running:
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


def asking(
    *limits: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    scheduler: str = names.PROFILE,
) -> Json:
    """A pod with a container for each of the limits."""
    pod = a_pod("pod", "sleep infinity")
    pod["metadata"] |= {"annotations": dict(annotations or {}), "labels": {"app": "pod", **(labels or {})}}
    (main,) = pod["spec"]["containers"]
    each = limits or [{names.GPU_MEM: "10"}]
    pod["spec"] |= {
        "schedulerName": scheduler,
        "restartPolicy": "Always",
        "containers": [
            {**main, "name": f"c-{i}", "resources": {"limits": dict(asked)}} for i, asked in enumerate(each)
        ],
    }
    return pod


def a_wrong_pod() -> Json:
    return asking(annotations={"gangshare.io/gpu-modle": "*H200*"})


def deployment(pod: Json) -> Json:
    """A Deployment of such pods."""
    template = {"metadata": {key: pod["metadata"][key] for key in ("annotations", "labels")}, "spec": pod["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "pod"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "pods"}, "spec": spec}


def job(pod: Json) -> Json:
    template = deployment({**pod, "spec": {**pod["spec"], "restartPolicy": "Never"}})["spec"]["template"]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pods"}, "spec": {"template": template}}


def cron_job(pod: Json) -> Json:
    spec = {"schedule": "@daily", "jobTemplate": {"spec": job(pod)["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "pods"}, "spec": spec}


def replica_set(pod: Json) -> Json:
    return {**deployment(pod), "kind": "ReplicaSet"}


def daemon_set(pod: Json) -> Json:
    found = deployment(pod)
    del found["spec"]["replicas"]
    return {**found, "kind": "DaemonSet"}


def stateful_set(pod: Json) -> Json:
    found = deployment(pod)
    return {**found, "kind": "StatefulSet", "spec": {**found["spec"], "serviceName": "pods"}}


HAMI = {names.WHOLE_GPU: "1", "nvidia.com/gpumem": "3000"}
COUNT = {names.GPU_COUNT: "2"}

MISTAKES: Mapping[str, tuple[Json, str]] = {
    "a misspelt annotation": (
        a_wrong_pod(),
        "annotation gangshare.io/gpu-modle is not known to Gangshare: "
        "its annotations are checkpoint, expected-runtime, gpu-class, gpu-count, gpu-model, gpu-uuid, group, link,",
    ),
    "an annotation with a domain like ours": (
        asking(annotations={"gangshare.com/gpu-model": "*H200*"}),
        "annotation gangshare.com/gpu-model is not known to Gangshare: write gangshare.io/gpu-model",
    ),
    "an annotation without a domain": (
        asking(annotations={"gpu-model": "*H200*"}),
        "gpu-model is not known to Gangshare: write annotation gangshare.io/gpu-model",
    ),
    "an annotation as a label": (
        asking(labels={names.GPU_MODEL: "H200"}),
        "label gangshare.io/gpu-model is not known to Gangshare: write it as annotation gangshare.io/gpu-model",
    ),
    "a limit as an annotation": (
        asking(annotations={names.GPU_MEM: "10"}),
        "annotation gangshare.io/gpu-mem is not known to Gangshare: "
        "write it as limit gangshare.io/gpu-mem of a container",
    ),
    "an annotation as a limit": (
        asking({names.GPU_COUNT: "2"}),
        "resource gangshare.io/gpu-count is not known to Gangshare: write it as annotation gangshare.io/gpu-count",
    ),
    "a limit of another name": (
        asking({"cpu": "1"}, {"gangshare.io/gpu-memory": "4"}),
        "resource gangshare.io/gpu-memory is not known to Gangshare: did you mean gangshare.io/gpu-mem?",
    ),
    "a term of the field": (
        asking(annotations={"gangshare.io/min-available": "4"}),
        "annotation gangshare.io/min-available is not known to Gangshare: did you mean gangshare.io/min-member?",
    ),
    "memory with its unit": (
        asking({names.GPU_MEM: "10Gi"}),
        "container c-0: gangshare.io/gpu-mem is '10Gi': expected a number of 1 GiB: write gangshare.io/gpu-mem: 10",
    ),
    "less memory than a unit": (asking({names.GPU_MEM: "500Mi"}), "write gangshare.io/gpu-mem: 1"),
    "memory in thousands": (
        asking({names.GPU_MEM: "10G"}),
        "is '10G': expected a number of 1 GiB: write gangshare.io/gpu-mem: 10",
    ),
    "no memory": (
        asking({names.GPU_MEM: "0"}),
        "container c-0 asks gangshare.io/gpu-mem 0, which is no GPU: ask one or more, or leave it out",
    ),
    "whole GPUs by gpu-count": (
        asking({names.WHOLE_GPU: "1"}, annotations=COUNT),
        "container c-0 asks nvidia.com/gpu 1, and gangshare.io/gpu-count 2 is for parts of GPUs: "
        "write nvidia.com/gpu: 2 without gangshare.io/gpu-count",
    ),
    "KAI's fraction": (
        asking({"cpu": "1"}, annotations={"gpu-fraction": "0.5"}),
        "annotation gpu-fraction is of KAI, and Gangshare does not read it: write limit gangshare.io/gpu-slice",
    ),
    "HAMi's memory": (
        asking(HAMI),
        "resource nvidia.com/gpumem is of HAMi, and Gangshare does not read it: write limit gangshare.io/gpu-mem",
    ),
    "Volcano's memory": (
        asking({"volcano.sh/vgpu-memory": "3000"}),
        "resource volcano.sh/vgpu-memory is of Volcano, and Gangshare does not read it: "
        "write limit gangshare.io/gpu-mem",
    ),
    "memory of the GPU without a unit": (
        asking(annotations={names.MIN_GPU_MEMORY: "70"}),
        "gangshare.io/min-gpu-memory is '70': expected an amount like 40Gi",
    ),
    "an unknown link": (
        asking(annotations={names.LINK: "nvswitch"}),
        "gangshare.io/link is 'nvswitch': expected any, nvlink, prefer",
    ),
    "an unknown placement": (
        asking(annotations={names.PLACEMENT: "wide"}),
        "gangshare.io/placement is 'wide': expected pack, spread",
    ),
    "a count that is none": (
        asking(annotations={names.GPU_COUNT: "0"}),
        "gangshare.io/gpu-count is '0': expected a whole number from 1 to 1024",
    ),
    "a yes": (
        asking(annotations={names.RESTARTABLE: "yes"}),
        "gangshare.io/restartable is 'yes': expected true or false",
    ),
    "a value of several lines": (
        asking(annotations={names.LINK: "nv\nlink"}),
        "gangshare.io/link cannot be read: expected any, nvlink, prefer",
    ),
}


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


RIGHT: Mapping[str, Json] = {
    "every annotation": asking(
        annotations={
            names.GPU_COUNT: "2", names.GPU_CLASS: "large", names.GPU_MODEL: "*A100*", names.GPU_UUID: "GPU-*",
            names.MIN_GPU_MEMORY: "40Gi", names.MIN_CLOCK_MHZ: "1400", names.MIN_COMPUTE_CAPABILITY: "8.0",
            names.LINK: "nvlink", names.PLACEMENT: "spread", names.RESTARTABLE: "true", names.EXPECTED_RUNTIME: "2h",
            names.CHECKPOINT: "2026-01-31T12:00:00Z", names.GROUP: "g", names.MIN_MEMBER: "2",
        },
        labels={names.QUEUE: "research", names.ROLE: "worker"},
    ),
    "parts and whole GPUs": asking(
        {names.GPU_MEM: "20", names.GPU_SLICE: "25"}, {names.WHOLE_GPU: "2"}, annotations=COUNT
    ),
    "a pod for any cluster": asking({names.WHOLE_GPU: "0", "cpu": "1"}, scheduler="default-scheduler"),
    "keys of a product that schedules the pod": asking(
        HAMI, annotations={"gpu-fraction": "0.5"}, scheduler="kai-scheduler"
    ),
    "a domain of somebody else": asking(annotations={"gangway.io/x": "1", "sim.gangshare.io/run-seconds": "1"}),
    "words without a domain in a pod without GPUs": asking({"cpu": "1"}, annotations={"gpu-model": "x"}),
}  # fmt: skip


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
    assert answer(cluster, tenant, DENIED, wrong(513)) == "", "left to the extender"


def test_with_the_component_every_namespace_denies_that_does_not_say_otherwise(cluster: Cluster, tenant: Path) -> None:
    cluster.apply(kustomization(cluster, "base", "deny-unknown-keys"))
    pod = a_wrong_pod()
    wait_for(lambda: "denied request" in answer(cluster, tenant, WARNED, pod), PATIENCE_S, "denial")
    wait_for(lambda: "Warning:" in answer(cluster, tenant, "told", pod), PATIENCE_S, "a warning")
    assert "denied request" in answer(cluster, tenant, DENIED, pod)
    assert answer(cluster, tenant, SILENT, pod) == ""
    cluster.apply(kustomization(cluster, "base"))
    wait_for(lambda: "Warning:" in answer(cluster, tenant, WARNED, pod), PATIENCE_S, "a warning")

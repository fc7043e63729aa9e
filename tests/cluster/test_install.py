"""The manifests on a real cluster: images built here, rolled out by kustomize, and the rights they leave to whom."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from protos.contract import names
from tests.cluster import assets, builds, images
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.cluster import Cluster, a_pod
from tests.cluster.process import wait_for

pytestmark = pytest.mark.timeout(1800)  # a first run makes a base image and two images on it
MANIFESTS = builds.ROOT / "manifests"
PODS = "/api/v1/namespaces/default/pods"
SYSTEM = "gangshare-system"


@pytest.fixture(scope="module")
def built(able_machine: None) -> dict[str, builds.Built]:
    """Images by the names that the manifests use."""
    try:
        return {
            "gangshare/plugin": builds.plugin(),
            "gangshare/extender": builds.extender(),
            "registry.k8s.io/kube-scheduler": builds.kube_scheduler(assets.provide()),
        }
    except assets.MissingAsset as missing:
        if assets.in_ci():
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def cluster(built: Mapping[str, builds.Built]) -> Iterator[Cluster]:
    """Two nodes with the images, and manifests/overlays/fake applied."""
    with Cluster.up(nodes=2, in_cluster=True) as running:
        for node in running.nodes.values():
            for image in built.values():
                node.import_image(image.archive)
        running.apply(overlay(running.dir / "install", "fake", built))
        yield running


def overlay(folder: Path, name: str, built: Mapping[str, builds.Built]) -> Path:
    """A kustomization of one's own, as a user writes it to take images from another registry."""
    folder.mkdir()
    replaced = []
    for image, build in built.items():
        repository, tag = build.name.rsplit(":", 1)
        replaced.append({"name": image, "newName": repository, "newTag": tag})
    base = os.path.relpath(MANIFESTS / "overlays" / name, folder.resolve())
    (folder / "kustomization.yaml").write_text(json.dumps({"resources": [base], "images": replaced}))
    return folder


@pytest.fixture(scope="module")
def rolled_out(cluster: Cluster) -> None:
    """Plugin and scheduler are up on all nodes."""

    def ready(kind: str, name: str, count: str) -> bool:
        status = cluster.api.get(f"/apis/apps/v1/namespaces/{SYSTEM}/{kind}/{name}")["status"]
        assert status.get(count) == 2, [told(pod) for pod in cluster.pods(SYSTEM)]
        return True

    wait_for(lambda: ready("daemonsets", "gangshare-plugin", "numberReady"), 180, "plugin on each node", every=1)
    wait_for(lambda: ready("deployments", "gangshare-scheduler", "readyReplicas"), 180, "two schedulers", every=1)


def told(pod: Json) -> list[Any]:
    status = pod["status"]
    containers = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
    return [pod["metadata"]["name"], [(found["name"], found["ready"], found["state"]) for found in containers]]


def test_the_installation_places_a_pod_and_tells_it_its_gpu(cluster: Cluster, rolled_out: None) -> None:
    pod = sample("01-memory", "echo $NVIDIA_VISIBLE_DEVICES")

    cluster.create_pod(pod)

    done = cluster.wait_phase("memory", "Succeeded", timeout=120)
    allocation = json.loads(done["metadata"]["annotations"][names.ALLOCATION])
    (share,) = allocation["containers"]["main"]
    assert cluster.pod_log("memory").strip() == share["uuid"]
    assert share["mem"] == 10


def sample(name: str, script: str) -> Json:
    """A sample with a container that this cluster has an image for."""
    pod: Json = yaml.safe_load((MANIFESTS / "samples" / f"{name}.yaml").read_text())
    pod["metadata"]["namespace"] = "default"
    pod["spec"]["containers"][0] |= {"image": images.BUSYBOX, "command": ["sh", "-c", script]}
    return pod


def test_the_leading_replica_is_replaced_when_it_goes(cluster: Cluster, rolled_out: None) -> None:
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/gangshare-scheduler"

    def holder() -> str:
        return str(cluster.api.get(lease)["spec"].get("holderIdentity") or "").rpartition("_")[0]

    leader = wait_for(holder, 60, "leading scheduler")
    cluster.api.delete(f"/api/v1/namespaces/{SYSTEM}/pods/{leader}")

    wait_for(lambda: holder() not in ("", leader), 60, "another leader")
    pod = sample("02-slices", "true")
    cluster.create_pod(pod)
    cluster.wait_phase("slices", "Succeeded", timeout=120)


@pytest.mark.parametrize("path", sorted((MANIFESTS / "samples").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_sample_is_valid(cluster: Cluster, path: Path) -> None:
    cluster.api.get("/api/v1/namespaces/default/serviceaccounts/default")
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


@pytest.fixture
def pod(cluster: Cluster) -> Iterator[str]:
    """The path of a pod bound to node-1 by the extender's account, with an allocation."""
    made = a_pod("placed", "sleep infinity")
    made["spec"]["schedulerName"] = "nobody"
    made["metadata"]["annotations"] = {"example.com/mine": "1"}
    cluster.create_pod(made)
    path = f"{PODS}/placed"
    account(cluster, "gangshare-scheduler").post(f"{path}/binding", binding("placed", "node-1", "first"))
    yield path
    cluster.delete_pods()


def account(cluster: Cluster, name: str, node: str | None = None) -> Api:
    """The API server as one of our accounts sees it."""
    kubeconfig = json.loads(cluster.account_kubeconfig(SYSTEM, name, node=node).read_text())
    return Api(cluster.plane.port, cluster.plane.ca, token=kubeconfig["users"][0]["user"]["token"])


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
def test_the_extender_and_the_plugin_correct_it_through_status(cluster: Cluster, pod: str) -> None:
    account(cluster, "gangshare-scheduler").patch(f"{pod}/status", annotated(names.ALLOCATION, "second"))
    assert allocation(cluster, pod) == "second"
    account(cluster, "gangshare-plugin", "node-1").patch(f"{pod}/status", annotated(names.ALLOCATION, "third"))
    assert allocation(cluster, pod) == "third"


# What the plugin may write.


@pytest.fixture
def plugin(cluster: Cluster) -> Api:
    """The plugin of node-1."""
    return account(cluster, "gangshare-plugin", "node-1")


def test_a_plugin_annotates_its_own_node(cluster: Cluster, plugin: Api) -> None:
    plugin.patch("/api/v1/nodes/node-1/status", annotated(f"{names.DOMAIN}/test", "1"))
    plugin.patch("/api/v1/nodes/node-1/status", annotated(f"{names.DOMAIN}/test", None))


NODE_1, NODE_2 = "/api/v1/nodes/node-1", "/api/v1/nodes/node-2"
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
    "a condition": (f"{NODE_1}/status", {"status": {"conditions": None}}, "not the status of nodes"),
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
def test_a_plugin_may_not_change_a_pod_of_another_node(cluster: Cluster, pod: str) -> None:
    with pytest.raises(
        ApiError, match="gangshare-plugin of node node-2 may not change pod default/placed, which is bound"
    ):
        account(cluster, "gangshare-plugin", "node-2").patch(f"{pod}/status", annotated(names.ALLOCATION, "mine"))


@pytest.mark.core
def test_a_plugin_changes_no_spec_through_status(cluster: Cluster, pod: str, plugin: Api) -> None:
    plugin.patch(f"{pod}/status", {"spec": {"activeDeadlineSeconds": 1}})
    assert "activeDeadlineSeconds" not in cluster.api.get(pod)["spec"]


@pytest.mark.core
def test_a_plugins_token_that_names_no_node_is_good_for_no_write(cluster: Cluster, pod: str) -> None:
    with pytest.raises(ApiError, match="does not name its node"):
        account(cluster, "gangshare-plugin").patch(f"{pod}/status", annotated(names.ALLOCATION, "mine"))


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


def test_images_run_as_told_and_carry_no_other_process(built: Mapping[str, builds.Built], tmp_path: Path) -> None:
    for image, user in (("gangshare/plugin", ""), ("gangshare/extender", "65532:65532")):
        config = json.loads(inspect(built[image], tmp_path / image.replace("/", "-")))
        assert config["config"].get("User", "") == user


def inspect(build: builds.Built, folder: Path) -> str:
    """The configuration inside a docker archive."""
    folder.mkdir()
    subprocess.run(["tar", "--extract", f"--file={build.archive}", f"--directory={folder}"], check=True)
    (manifest,) = json.loads((folder / "manifest.json").read_text())
    return (folder / str(manifest["Config"])).read_text()

"""The chart's life on a real cluster: installed, upgraded, rolled back, uninstalled, installed again."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator, Mapping

import pytest
from cryptography import x509

from protos.contract import names
from tests.cluster import assets, builds, images, needed
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import a_gpu_pod
from tests.cluster.process import wait_for
from tests.cluster.release import Release, left_over, unchanged
from tests.cluster.test_install import overlay

pytestmark = pytest.mark.timeout(1800)  # a first run makes a base image and two images on it, and helm
NAMESPACE = "gpus"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/gangshare-scheduler"
IN_MANIFESTS = {
    "plugin": "gangshare/plugin",
    "extender": "gangshare/extender",
    "scheduler": "registry.k8s.io/kube-scheduler",
}
GROUPS = "/apis/gangshare.io/v1alpha1"


def extender_args(release: Release) -> list[str]:
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/gangshare-scheduler"
    found: list[str] = release.cluster.api.get(path)["spec"]["template"]["spec"]["initContainers"][0]["args"]
    return found


@pytest.fixture(scope="module")
def built(able_machine: None) -> dict[str, builds.Built]:
    with needed.or_skip():
        return {
            "plugin": builds.plugin(),
            "extender": builds.extender(),
            "scheduler": builds.kube_scheduler(assets.provide()),
        }


@pytest.fixture(scope="module")
def release(built: Mapping[str, builds.Built]) -> Iterator[Release]:
    """Two nodes with the images, and nothing of ours on them yet."""
    image = {
        part: dict(zip(("repository", "tag"), one.name.rsplit(":", 1), strict=True)) for part, one in built.items()
    }
    values = {
        "fake": {"profile": "dgx-a100-80g"},
        "extender": {"image": image["extender"]},
        "plugin": {"image": image["plugin"]},
        "scheduler": {"kubeScheduler": {"image": image["scheduler"]}},
    }
    with Cluster.up(nodes=2, in_cluster=True) as running:
        for node in running.nodes.values():
            for one in built.values():
                node.import_image(one.archive)
        yield Release(running, assets.helm(), values, NAMESPACE)


def test_from_nothing_to_a_running_sample_by_the_commands_that_are_told(release: Release) -> None:
    cluster, began = release.cluster, time.monotonic()

    told = release.install()

    for line in re.findall(r"^ {5}(kubectl .*)$", told, re.MULTILINE):
        release.run(line)
    release.run(f"kubectl set image pod/memory main={images.BUSYBOX}")  # the sample's own is in no registry here
    pod = cluster.wait_phase("memory", "Running", timeout=120)
    print(f"from nothing to a running sample: {time.monotonic() - began:.0f} s")
    (share,) = json.loads(pod["metadata"]["annotations"][names.ALLOCATION])["containers"]["main"]
    printed = wait_for(lambda: cluster.pod_log("memory").strip(), 30, "the sample's GPU")
    assert printed.startswith(share["uuid"])


def test_only_the_namespace_of_the_release_names_gpus_to_the_runtime(release: Release) -> None:
    pod = a_gpu_pod("names-all")
    pod["spec"]["containers"][0]["env"] = [{"name": names.VISIBLE_DEVICES, "value": "all"}]
    line = f"kubectl create --dry-run=server --filename {release.cluster.dir / 'pod.json'} --namespace"

    (release.cluster.dir / "pod.json").write_text(json.dumps(pod | {"metadata": {"name": "names-all"}}))

    release.run(f"{line} {NAMESPACE}")
    with pytest.raises(AssertionError, match=f"no container may set {names.VISIBLE_DEVICES}"):
        release.run(f"{line} default")


def test_an_upgrade_and_a_rollback_leave_pods_running_and_a_gang_waiting(release: Release) -> None:
    cluster = release.cluster
    cluster.create_pod(a_gpu_pod("stays", whole=1))
    before = cluster.wait_phase("stays", "Running", timeout=60)
    gang = {names.GROUP: "train", names.MIN_MEMBER: "3"}
    for number in range(2):
        cluster.create_pod(a_gpu_pod(f"train-{number}", whole=8, annotations=gang))

    release.upgrade("extender.args.min-runtime=45")

    assert "--min-runtime=45" in extender_args(release)
    assert unchanged(cluster, before)
    assert {cluster.pod(f"train-{number}")["status"]["phase"] for number in range(2)} == {"Pending"}
    release.run(f"helm rollback gangshare 1 --namespace {NAMESPACE} --wait --timeout 5m")
    assert not [arg for arg in extender_args(release) if "min-runtime" in arg]
    assert unchanged(cluster, before)
    for number in range(2):
        assert "nodeName" not in cluster.pod(f"train-{number}")["spec"]
        cluster.api.delete(f"/api/v1/namespaces/default/pods/train-{number}", gracePeriodSeconds="1")
    cluster.create_pod(a_gpu_pod("after", mem=10))
    cluster.wait_phase("after", "Running", timeout=60)


def test_what_the_api_server_asks_is_trusted_by_the_name_of_this_namespace(release: Release) -> None:
    """No API server of the harness reaches Services, so what it would check is checked."""
    release.upgrade("visibility.enabled=true", "gate=webhook")
    former: dict[tuple[str, str], str] = {}

    for name, kind in (("gangshare-visibility", "apiservice/v1alpha1.visibility.gangshare.io"),
                       ("gangshare-webhook", "mutatingwebhookconfiguration/gangshare-webhook")):  # fmt: skip
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"
        made = wait_for(lambda path=path: release.cluster.api.get(path)["data"]["tls.crt"], 60, name)  # type: ignore[misc]
        certificate = x509.load_pem_x509_certificate(base64.b64decode(made))
        hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert f"{name}.{NAMESPACE}.svc" in hosts.get_values_for_type(x509.DNSName)
        wait_for(lambda kind=kind, made=made: made in release.run(f"kubectl get {kind} --output=json"), 60, kind)  # type: ignore[misc]
        former[path, kind] = made

    release.words["gangshare-system"] = NAMESPACE
    release.follow("docs/rotation.md", "Renew the certificates of the webhook and of the aggregated API")
    del release.words["gangshare-system"]

    for (path, kind), made in former.items():

        def renewed(path: str = path, kind: str = kind, made: str = made) -> bool:
            fresh = release.cluster.api.get(path)["data"]["tls.crt"]
            return bool(fresh != made and fresh in release.run(f"kubectl get {kind} --output=json"))

        wait_for(renewed, 60, f"new certificate of {kind}")


A_PROXY = """
import signal, urllib.error, urllib.request
own = open("/var/run/secrets/kubernetes.io/serviceaccount/token").read()
both = {"own": own, "other": "x"}
for who, headers in [*((who, {"Authorization": f"Bearer {token}"}) for who, token in both.items()), ("none", {})]:
    try:
        asked = urllib.request.Request("http://127.0.0.1:8080/api/snapshot", headers=headers)
        print(who, urllib.request.urlopen(asked).status, flush=True)
    except urllib.error.HTTPError as error:
        print(who, error.status, error.read().decode(), flush=True)
signal.signal(signal.SIGTERM, lambda *_: exit())
signal.pause()
"""
"""Stands in for a login proxy. It passes the token of its account, then a wrong one, then none. It fails until the page
listens, and is started again."""


def test_the_page_beside_a_login_proxy_asks_the_api_server_with_the_viewers_token(
    release: Release, built: Mapping[str, builds.Built]
) -> None:
    command = ["/opt/gangshare/bin/python", "-c", A_PROXY]
    ports = [{"name": "login", "containerPort": 4180}]
    proxy = {"name": "login", "image": built["extender"].name, "command": command, "ports": ports}
    values = {"visibility": {"enabled": True}, "page": {"enabled": True, "proxy": [proxy]}}
    (release.cluster.dir / "page.json").write_text(json.dumps(values))

    release.upgrade(f"visibility.enabled=true --values {release.cluster.dir / 'page.json'}")

    def answers() -> dict[str, str]:
        told = release.run(f"kubectl --namespace {NAMESPACE} logs deployment/gangshare-page --container login")
        return {who: said for who, _, said in (line.partition(" ") for line in told.splitlines())}

    said = wait_for(lambda: found if len(found := answers()) == 3 else None, 120, "three answers of the page")
    assert said["own"].startswith("403 ")
    assert f"system:serviceaccount:{NAMESPACE}:gangshare-page" in said["own"]
    assert said["other"].startswith("401 ")
    assert said["none"].startswith("401 ")


def test_a_node_gets_the_plugin_of_its_label_and_its_pods_run_on(release: Release) -> None:
    cluster = release.cluster
    before = cluster.pod("stays")
    node = before["spec"]["nodeName"]
    release.run(f"kubectl label node {node} {names.PLUGIN_CONFIG}=patient")

    release.upgrade("plugin.configs.patient.args.cool-down=900")

    wait_for(lambda: plugin_of(cluster, node) == ("gangshare-plugin-patient", "--cool-down=900"), 60, "its plugin")
    assert unchanged(cluster, before)
    cluster.create_pod(a_gpu_pod("beside", mem=10, nodeSelector={"kubernetes.io/hostname": node}))
    cluster.wait_phase("beside", "Running", timeout=60)
    release.run(f"kubectl label node {node} {names.PLUGIN_CONFIG}-")
    wait_for(lambda: plugin_of(cluster, node) == ("gangshare-plugin", ""), 60, "the usual plugin")
    assert unchanged(cluster, before)


def plugin_of(cluster: Cluster, node: str) -> tuple[str, str]:
    """The DaemonSet of the one plugin that is ready on a node, and its cool-down."""
    found = [
        pod
        for pod in cluster.pods(NAMESPACE)
        if pod["spec"]["nodeName"] == node and pod["spec"]["containers"][0]["name"] == "plugin"
    ]
    assert len(found) == 1
    pod = found[0]
    assert all(one["ready"] for one in pod["status"]["containerStatuses"])
    args = [arg for arg in pod["spec"]["containers"][0]["args"] if "cool-down" in arg]
    return str(pod["metadata"]["labels"]["app.kubernetes.io/name"]), "".join(args)


def test_uninstalling_leaves_running_pods_and_the_definitions_with_what_is_of_them(release: Release) -> None:
    cluster = release.cluster
    before = cluster.wait_phase("stays", "Running")
    queue = {"apiVersion": "gangshare.io/v1alpha1", "kind": "Queue", "metadata": {"name": "research"}}
    cluster.api.post(f"{GROUPS}/queues", queue | {"spec": {"deserved": {"gpus": 4}}})

    release.uninstall()

    wait_for(lambda: not cluster.pods(NAMESPACE), 60, "namespace without our pods")
    assert unchanged(cluster, before)
    assert left_over(cluster) == {
        "CustomResourceDefinition/gpuclasses.gangshare.io",
        "CustomResourceDefinition/podgroups.gangshare.io",
        "CustomResourceDefinition/queues.gangshare.io",
        "Lease/gangshare-scheduler",
        "Lease/gangshare-scheduler-extender",
    }
    assert cluster.api.get(f"{GROUPS}/queues/research")


def test_installed_again_it_knows_what_runs(release: Release) -> None:
    cluster = release.cluster
    before = cluster.pod("stays")

    release.install()

    cluster.create_pod(a_gpu_pod("again", whole=1))
    pod = cluster.wait_phase("again", "Running", timeout=60)
    assert unchanged(cluster, before)
    assert given(pod).isdisjoint(given(before))


def test_helm_takes_over_what_kustomize_installed(release: Release, built: Mapping[str, builds.Built]) -> None:
    cluster = release.cluster
    before = cluster.pod("stays")
    release.uninstall()
    images_of = {IN_MANIFESTS[part]: one for part, one in built.items()}
    cluster.apply(overlay(cluster.dir / "install", "fake", images_of))
    release.run(f"kubectl -n {names.NAMESPACE} rollout status deployment/gangshare-scheduler")

    release.install(f"--namespace {names.NAMESPACE} --take-ownership")

    assert f"{NAMESPACE}\t" not in release.run("helm list --all-namespaces")
    assert unchanged(cluster, before)
    cluster.create_pod(a_gpu_pod("taken", mem=10))
    cluster.wait_phase("taken", "Running", timeout=60)


def given(pod: Json) -> set[str]:
    """The GPUs of its containers."""
    containers = json.loads(pod["metadata"]["annotations"][names.ALLOCATION])["containers"]
    return {share["uuid"] for shares in containers.values() for share in shares}

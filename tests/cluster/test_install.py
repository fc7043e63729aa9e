"""The manifests on a real cluster: images built here, rolled out by kustomize, and a pod that they place."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from protos.contract import names
from tests.cluster import assets, builds, images, needed
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.process import wait_for

pytestmark = pytest.mark.timeout(1800)  # a first run makes a base image and two images on it
MANIFESTS = builds.ROOT / "manifests"
SYSTEM = "gangshare-system"


@pytest.fixture(scope="module")
def built(able_machine: None) -> dict[str, builds.Built]:
    """Images by the names that the manifests use."""
    with needed.or_skip():
        return {
            "gangshare/plugin": builds.plugin(),
            "gangshare/extender": builds.extender(),
            "registry.k8s.io/kube-scheduler": builds.kube_scheduler(assets.provide()),
        }


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


@pytest.mark.parametrize(
    ("image", "user", "packages"),
    [
        ("gangshare/plugin", "0:0", {"protos", "deviceplugin"}),
        ("gangshare/extender", "65532:65532", {"protos", "gangfilter", "extender"}),
    ],
)
def test_an_image_holds_one_process(
    built: Mapping[str, builds.Built], image: str, user: str, packages: set[str]
) -> None:
    with tarfile.open(built[image].archive) as archive:
        (manifest,) = json.loads(content(archive, "manifest.json").read())
        config = json.loads(content(archive, manifest["Config"]).read())
        with tarfile.open(fileobj=content(archive, manifest["Layers"][-1])) as layer:
            files = layer.getnames()
    assert config["config"].get("User", "") == user
    ours = {"protos", "gangfilter", "extender", "deviceplugin"}
    inside = {name for name in ours for file in files if file.endswith(f"site-packages/{name}/__init__.py")}
    assert inside == packages


def content(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    assert found is not None
    return found

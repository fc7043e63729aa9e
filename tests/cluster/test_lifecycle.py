"""An upgrade and a rollback on a real cluster, by the commands of the page, while pods run and a gang waits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from protos.contract import names
from tests.cluster import assets, builds
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import a_gpu_pod, beta_policies
from tests.cluster.process import wait_for
from tests.cluster.release import CHART, Release, given, images_of, ready, steps, unchanged
from tests.cluster.test_chart import LEASE

pytestmark = pytest.mark.timeout(1800)  # a first run makes a base image and two images on it, and helm
PAGE = "docs/upgrade.md"
OLD: str = yaml.safe_load((builds.ROOT / CHART / "Chart.yaml").read_text())["version"]
NEXT = "99.0.0"
GPU_UNITS = 80


@pytest.fixture(scope="module")
def release(able_machine: None) -> Iterator[Release]:
    """Two nodes with the images of two versions, which are of the same sources, and the older one installed."""
    try:
        built = {"plugin": builds.plugin(), "extender": builds.extender()}
        scheduler = builds.kube_scheduler(assets.provide())
    except assets.MissingAsset as missing:
        if assets.in_ci():
            raise
        pytest.skip(str(missing))
    repositories = {part: one.name.rsplit(":", 1)[0] for part, one in built.items()}
    repository, tag = scheduler.name.rsplit(":", 1)
    values = {
        "fake": {"profile": "dgx-a100-80g"},
        "extender": {"image": {"repository": repositories["extender"]}},
        "plugin": {"image": {"repository": repositories["plugin"]}},
        "scheduler": {"kubeScheduler": {"image": {"repository": repository, "tag": tag}}},
    }
    minor = assets.provide().minor
    with Cluster.up(nodes=2, in_cluster=True, apiserver_args=beta_policies(minor)) as running:
        for node in running.nodes.values():
            node.import_image(scheduler.archive)
            for part, one in built.items():
                node.import_image(one.archive)
                for version in (OLD, NEXT):
                    node.tag_image(one.name, f"{repositories[part]}:{version}")
        made = Release(running, assets.helm(), values)
        made.words["gangshare-VERSION.tgz"] = str(packaged(made, running.dir))
        made.install()
        yield made


def packaged(release: Release, folder: Path) -> Path:
    """The chart of the next version."""
    release.run(f"helm package {CHART} --version {NEXT} --app-version {NEXT} --destination {folder}")
    return folder / f"gangshare-{NEXT}.tgz"


class Seen(NamedTuple):
    """What was there while pods were replaced."""

    versions: set[frozenset[str]]
    """Of extenders that were ready at once."""
    leaders: set[str]
    pods: list[str]
    """Pods that were created meanwhile, by name."""


def replaced(release: Release, version: str, prefix: str) -> Seen:
    """Create a pod every now and then until all pods of the release are of a version, and ready."""
    cluster, seen = release.cluster, Seen(set(), set(), [])
    end = time.monotonic() + 180
    while time.monotonic() < end:
        pods = {part: release.pods(part) for part in ("extender", "plugin")}
        running = [images_of(pod)["extender"].rpartition(":")[2] for pod in pods["extender"] if ready(pod)]
        seen.versions.add(frozenset(running))
        seen.leaders.add(str(cluster.api.get(LEASE)["spec"].get("holderIdentity")))
        if all(done(found, part, version) for part, found in pods.items()):
            return seen
        seen.pods.append(f"{prefix}-{len(seen.pods)}")
        cluster.create_pod(a_gpu_pod(seen.pods[-1], mem=1))
        time.sleep(1)
    raise AssertionError(f"not of version {version} after 180 s: {pods}")


def done(pods: list[Json], part: str, version: str) -> bool:
    return len(pods) == 2 and all(ready(pod) and images_of(pod)[part].endswith(f":{version}") for pod in pods)


def all_run(cluster: Cluster, pods: list[str]) -> None:
    """The pods run, but for those that the kubelet refused because its plugin had just gone, as the page says."""
    refused = 0
    for name in pods:
        pod = wait_for(lambda name=name: started(cluster.pod(name)), 60, f"started {name}")  # type: ignore[misc]
        if pod["status"]["phase"] == "Failed":
            assert pod["status"]["reason"] == "UnexpectedAdmissionError", pod["status"]
            refused += 1
    print(f"{len(pods)} pods were created during the rollout, {refused} of them were refused by the kubelet")
    assert len(pods) > refused


def started(pod: Json) -> Json | None:
    return pod if pod["status"]["phase"] in ("Running", "Failed") else None


def never_twice(cluster: Cluster) -> None:
    """No GPU has more than it has, by the allocations of all pods that run; no container has started a second time."""
    memory: Counter[str] = Counter()
    for pod in cluster.pods("default"):
        if pod["status"]["phase"] == "Running":
            assert not any(one["restartCount"] for one in pod["status"]["containerStatuses"]), pod["metadata"]["name"]
            for shares in given(pod).values():
                for share in shares:
                    memory[str(share["uuid"])] += int(str(share.get("mem", GPU_UNITS)))
    assert memory
    assert max(memory.values()) <= GPU_UNITS


def gang(cluster: Cluster, name: str, members: range, *, whole: int) -> list[str]:
    """Create members of a gang that needs three."""
    made = [f"{name}-{number}" for number in members]
    for pod in made:
        cluster.create_pod(a_gpu_pod(pod, whole=whole, annotations={names.GROUP: name, names.MIN_MEMBER: "3"}))
    return made


def pending(cluster: Cluster, pods: list[str]) -> bool:
    found = [cluster.pod(name) for name in pods]
    return all(pod["status"]["phase"] == "Pending" and "nodeName" not in pod["spec"] for pod in found)


def remove(cluster: Cluster, pods: list[str]) -> None:
    for name in pods:
        cluster.api.delete(f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds="0")


def test_an_upgrade_with_pods_that_run_and_a_gang_that_waits(release: Release) -> None:
    cluster = release.cluster
    cluster.create_pod(a_gpu_pod("stays", whole=1))
    before = cluster.wait_phase("stays", "Running")
    waiting = gang(cluster, "train", range(2), whole=3)
    upgrade, *rollouts = steps(PAGE, "Upgrade")

    release.run(upgrade)
    seen = replaced(release, NEXT, "meanwhile")

    for rollout in rollouts:
        release.run(rollout)
    assert {OLD, NEXT} in seen.versions
    assert len(seen.leaders) > 1
    assert unchanged(cluster, before)
    assert pending(cluster, waiting)
    all_run(cluster, seen.pods)
    for name in [*waiting, *gang(cluster, "train", range(2, 3), whole=3)]:
        cluster.wait_phase(name, "Running")
    never_twice(cluster)
    remove(cluster, seen.pods)


def test_a_rollback_with_a_gang_that_runs_and_one_that_waits(release: Release) -> None:
    cluster = release.cluster
    before = [cluster.pod(name) for name in ("stays", "train-0", "train-1", "train-2")]
    waiting = gang(cluster, "next", range(2), whole=1)
    rollback, *rollouts = steps(PAGE, "Roll back")

    release.run(rollback)
    seen = replaced(release, OLD, "back")

    for rollout in rollouts:
        release.run(rollout)
    assert {OLD, NEXT} in seen.versions
    assert all(unchanged(cluster, pod) for pod in before)
    assert pending(cluster, waiting)
    all_run(cluster, seen.pods)
    never_twice(cluster)
    remove(cluster, seen.pods)

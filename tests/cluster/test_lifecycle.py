"""An upgrade, a rollback, a restore and an uninstallation on a real cluster, by the commands of the pages."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from protos.contract import names
from tests.cluster import assets, builds, needed
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import a_gpu_pod, beta_policies
from tests.cluster.process import wait_for
from tests.cluster.release import CHART, Release, given, images_of, left_over, ready, unchanged
from tests.cluster.test_chart import LEASE
from tests.unit.docs.typed import steps

pytestmark = pytest.mark.timeout(1800)  # a first run makes a base image and two images on it, and helm
PAGE, UNINSTALL, RESTORE = "docs/upgrade.md", "docs/uninstall.md", "docs/restore.md"
OLD: str = yaml.safe_load((builds.ROOT / CHART / "Chart.yaml").read_text())["version"]
NEXT = "99.0.0"
GPU_UNITS = 80


@pytest.fixture(scope="module")
def release(able_machine: None) -> Iterator[Release]:
    """Two nodes with the images of two versions, which are of the same sources, and the older one installed."""
    with needed.or_skip():
        built = {"plugin": builds.plugin(), "extender": builds.extender()}
        scheduler = builds.kube_scheduler(assets.provide())
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
        for file in ("objects.yaml", "gangshare-values.yaml", "etcd-backup.db", "/var/lib/etcd-restored"):
            made.words[file] = str(running.dir / Path(file).name)
        made.env["ETCDCTL_ENDPOINTS"] = running.plane.etcd_url
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


def test_queues_and_classes_that_were_saved_are_applied_again(release: Release) -> None:
    cluster = release.cluster
    for sample in ("09-gpu-class", "10-queues"):
        release.run(f"kubectl apply --filename manifests/samples/{sample}.yaml")
    before = objects(cluster)
    assert {kind for kind, _, _ in before} == {"Queue", "GpuClass"}

    release.follow(RESTORE, "Save the objects")
    release.run("kubectl delete queues.gangshare.io,gpuclasses.gangshare.io --all")
    release.follow(RESTORE, "Restore the objects")

    assert objects(cluster) == before
    assert yaml.safe_load(Path(release.words["gangshare-values.yaml"]).read_text())["fake"]
    release.run("kubectl delete queues.gangshare.io,gpuclasses.gangshare.io --all")
    remove(cluster, ["of-a-class", "in-a-queue"])


def objects(cluster: Cluster) -> list[tuple[str, str, Json]]:
    """Kind, name and spec of each Queue and GpuClass."""
    listed = cluster.kubectl("get", "queues.gangshare.io,gpuclasses.gangshare.io", "--output=json")
    return [(one["kind"], one["metadata"]["name"], one["spec"]) for one in json.loads(listed)["items"]]


def test_after_a_restore_of_etcd_the_books_are_those_of_the_backup(release: Release) -> None:
    cluster = release.cluster
    stays = [cluster.pod(name) for name in ("stays", "train-0", "train-1", "train-2")]
    for name in ("deleted-later", "runs"):
        cluster.create_pod(a_gpu_pod(name, whole=1, restartPolicy="Always"))
        cluster.wait_phase(name, "Running")
    waiting = gang(cluster, "third", range(2), whole=1)

    release.follow(RESTORE, "Save etcd")
    remove(cluster, ["deleted-later"])
    late = [a_gpu_pod(name, whole=1) for name in ("late-0", "late-1")]
    uids = {cluster.create_pod(pod)["metadata"]["uid"] for pod in late}
    for pod in late:
        cluster.wait_phase(pod["metadata"]["name"], "Running")
    cluster.plane.stop()
    restore, *restarts = steps(RESTORE, "Restore etcd")
    release.run(restore)
    cluster.plane.restored(Path(release.words["/var/lib/etcd-restored"]))
    for node in cluster.nodes.values():
        node.kubelet.restart()
    for restart in restarts:
        release.run(restart)

    assert {pod["metadata"]["name"] for pod in cluster.pods("default")}.isdisjoint({"late-0", "late-1"})
    folders = [node.kubelet_dir / "pods" / uid for node in cluster.nodes.values() for uid in uids]
    wait_for(lambda: not any(folder.exists() for folder in folders), 60, "end of the pods that nobody knows")
    assert all(unchanged(cluster, pod) for pod in [*stays, cluster.pod("runs")])
    wait_for(lambda: started(cluster.pod("deleted-later")), 60, "the pod that is back")
    assert pending(cluster, waiting)
    for name in [*waiting, *gang(cluster, "third", range(2, 3), whole=1)]:
        cluster.wait_phase(name, "Running")
    never_twice(cluster)
    remove(cluster, ["deleted-later", "runs", *(f"third-{number}" for number in range(3))])


def marks(cluster: Cluster) -> set[str]:
    """Keys of ours on nodes: annotations, labels and taints."""
    nodes = cluster.api.items("/api/v1/nodes")
    taints = {taint["key"] for node in nodes for taint in node["spec"].get("taints", [])}
    keys = {key for node in nodes for field in ("annotations", "labels") for key in node["metadata"].get(field, {})}
    return {key for key in taints | keys if "gangshare" in key}


def offered(cluster: Cluster) -> set[str]:
    """Amounts of GPU memory that pods may request, of all nodes."""
    nodes = cluster.api.items("/api/v1/nodes")
    return {node["status"]["allocatable"].get(names.GPU_MEM, "none") for node in nodes}


def test_an_uninstallation_leaves_running_pods_and_then_nothing_of_ours(release: Release) -> None:
    cluster = release.cluster
    release.upgrade("visibility.enabled=true", "gate=webhook", "usage.enabled=true", "autoscaler.startupTaint=true")
    for rollout in steps(PAGE, "Upgrade")[1:]:
        release.run(rollout)
    release.run(f"kubectl annotate nodes --all {names.CORDONED_GPUS}=none")
    release.run(f"kubectl label nodes --all {names.MPS}=false")
    before = [cluster.pod(name) for name in ("stays", "train-0", "train-1", "train-2")]
    (look,), (uninstall,) = steps(UNINSTALL, "Before"), steps(UNINSTALL, "Remove the release")
    assert {"next-0", "next-1"} == {line.split()[1] for line in release.run(look).splitlines()[1:]}

    release.run(uninstall)

    wait_for(lambda: not cluster.pods(names.NAMESPACE), 60, "namespace without our pods")
    wait_for(lambda: offered(cluster) == {"0"}, 60, "no GPU memory on any node")
    release.follow(UNINSTALL, "Remove what is left")
    assert left_over(cluster) == set()
    assert marks(cluster) == set()
    assert [str(path) for node in cluster.nodes.values() for path in node.kubelet_dir.rglob("*gangshare*")] == []
    assert all(unchanged(cluster, pod) for pod in before)

"""What changes under pods on a real cluster: the layout, and the versions of the definitions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from protos.contract import names
from tests.cluster import builds
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, a_gpu_pod
from tests.cluster.process import HarnessError, wait_for
from tests.cluster.release import Terminal, unchanged

PAGE, NODE = "docs/layouts.md", "node-1"
LEASE, OWN = "kube-scheduler", "kube-system/gangshare-scheduler"
NAMES = f"--scheduler-names=default-scheduler,{names.PROFILE}"


class Changing:
    """A cluster whose layout changes: the kube-schedulers and extenders do, the plugin stays."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.terminal = Terminal(cluster, gangshare=Path(sys.executable).with_name("gangshare"))
        self.terminal.words["shared.yaml"] = str(cluster.dir / "shared.yaml")
        self.own = Gangshare(cluster, {NODE: "t4x4"}).start()

    def to_shared(self) -> Gangshare:
        """As the page says it, with the profile for the pods that wait."""
        self.terminal.follow(PAGE, "From own to shared")
        printed = yaml.safe_load(Path(self.terminal.words["shared.yaml"]).read_text())
        assert [profile["schedulerName"] for profile in printed["profiles"]] == ["default-scheduler"]
        args = [f"--lease-name={LEASE}", NAMES, f"--conflicting-leases={OWN}", "--bind-timeout=30"]
        return self._begin(
            "shared", "two", args, [{"schedulerName": name} for name in ("default-scheduler", "gangshare")]
        )

    def to_own(self) -> Gangshare:
        return self._begin("own", "three", [], None)

    def _begin(self, layout: str, host: str, args: list[str], profiles: list[Json] | None) -> Gangshare:
        made = Gangshare(self.cluster, {NODE: "t4x4"}, layout=layout, pairs=[host], extender_args=args)  # type: ignore[arg-type]
        made.plugins = self.own.plugins
        pair = made.pair
        pair.start_extender()
        config = made.scheduler_config(pair) | ({"profiles": profiles} if profiles else {})
        pair.scheduler = self.cluster.scheduler(f"{host}-scheduler", config, hostname=host)
        return made


def end(sharing: Gangshare, *, extender: bool = True) -> None:
    """The kube-scheduler of a layout ends, then its extender."""
    assert sharing.pair.scheduler is not None
    sharing.pair.scheduler.process.stop()
    if extender:
        sharing.pair.extender.stop()


@pytest.fixture(scope="module")
def changing(able_machine: None) -> Iterator[Changing]:
    with Cluster.up(nodes=1, scheduler=False) as cluster:
        yield Changing(cluster)


def gang(name: str, number: int) -> Json:
    return a_gpu_pod(f"{name}-{number}", mem=4, annotations={names.GROUP: name, names.MIN_MEMBER: "3"})


def waiting(sharing: Gangshare, *pods: str) -> None:
    wait_for(lambda: {each["name"] for each in sharing.pair.inspect()["waiting"]} == set(pods), 30, f"{pods} wait")
    assert all("nodeName" not in sharing.cluster.pod(name)["spec"] for name in pods)


def test_pods_run_on_and_gangs_wait_on_when_the_layout_changes(changing: Changing) -> None:
    cluster, own = changing.cluster, changing.own
    stays = own.run(a_gpu_pod("stays", mem=10))
    for number in range(2):
        cluster.create_pod(gang("first", number))
        cluster.create_pod(gang("second", number))
    members = [f"{name}-{number}" for name in ("first", "second") for number in range(2)]
    waiting(own, *members)

    end(own)
    shared = changing.to_shared()
    waiting(shared, *members)
    cluster.create_pod(gang("first", 2))
    shared.run(a_gpu_pod("new", mem=4, schedulerName="default-scheduler"))
    for number in range(3):
        cluster.wait_phase(f"first-{number}", "Running")
    waiting(shared, "second-0", "second-1")
    shared.check_books()

    end(shared)
    back = changing.to_own()
    cluster.create_pod(gang("second", 2))
    for number in range(3):
        cluster.wait_phase(f"second-{number}", "Running")
    assert unchanged(cluster, stays)
    assert not any(one["restartCount"] for pod in cluster.pods("default") for one in pod["status"]["containerStatuses"])
    back.check_books()


DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.gangshare.io"
OLD, NEXT = "v1alpha1", "v1beta1"


def versions(changing: Changing, **stored: bool) -> None:
    """Apply a definition with these versions, each with our schema; `stored` says which one is."""
    made = yaml.safe_load((builds.ROOT / "manifests/base/extender/queue.yaml").read_text())
    (ours,) = made["spec"]["versions"]
    made["spec"]["versions"] = [{**ours, "name": name, "storage": storage} for name, storage in stored.items()]
    changing.cluster.apply([made])


def test_a_later_version_of_a_definition_keeps_what_is_stored(changing: Changing) -> None:
    cluster, api = changing.cluster, changing.cluster.api
    queue = {"apiVersion": f"gangshare.io/{OLD}", "kind": "Queue", "metadata": {"name": "team"}, "spec": {"weight": 2}}
    api.post(f"/apis/gangshare.io/{OLD}/queues", queue)

    versions(changing, v1alpha1=False, v1beta1=True)

    later = f"/apis/gangshare.io/{NEXT}/queues/team"
    assert wait_for(lambda: api.get(later)["spec"], 30, f"the queue in {NEXT}") == {"weight": 2}
    api.patch(later, {"spec": {"weight": 3}})
    cluster.create_pod(a_gpu_pod("of-a-team", mem=1, annotations={names.QUEUE: "team"}))
    cluster.wait_phase("of-a-team", "Running")
    running = wait_for(lambda: api.get(f"/apis/gangshare.io/{OLD}/queues/team")["status"]["running"], 30, "status")
    assert running == 1
    with pytest.raises(HarnessError, match="storedVersions"):
        versions(changing, v1beta1=True)
    changing.terminal.follow("docs/upgrade.md", "Versions of the definitions")
    versions(changing, v1beta1=True)
    assert api.get(DEFINITION)["status"]["storedVersions"] == [NEXT]
    assert api.get(later)["spec"] == {"weight": 3}

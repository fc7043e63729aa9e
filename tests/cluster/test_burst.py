"""Many equal pods at once, with parts of the cluster killed in the middle: nobody gets another pod's GPU."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from protos.kubelet.podresources.v1 import podresources_v1_pb2 as pod_resources
from protos.kubelet.podresources.v1 import podresources_v1_pb2_grpc as pod_resources_grpc
from tests.cluster.api import Json
from tests.cluster.beside import Beside
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, a_gpu_container, a_gpu_pod
from tests.cluster.process import wait_for

MACHINE: dict[str, Any] = {"defaults": {"model": "Tesla T4", "memMiB": 16384, "cc": "7.5"}, "gpus": [{}, {}]}
"""Two GPUs of 16 units: 60 containers of one unit nearly fill two such nodes."""


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    running = Gangshare(cluster, {"node-1": MACHINE, "node-2": MACHINE}).start()
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.kubectl("delete", "jobs", "--all", "--cascade=background")
    cluster.delete_pods(timeout=180)


class Refusals(Beside):
    """Watches pods that a kubelet refused, and for how long each is still in the books."""

    def __init__(self, sharing: Gangshare) -> None:
        self.seconds: dict[str, float] = {}
        """By UID: how long after we saw it refused its booking was last seen."""
        self._sharing = sharing
        self._since: dict[str, float] = {}

    @property
    def kept_s(self) -> float:
        return max(self.seconds.values(), default=0.0)

    def _turn(self) -> None:
        for pod in self._sharing.cluster.pods("default"):
            if pod["status"].get("reason") == "UnexpectedAdmissionError":
                self._since.setdefault(pod["metadata"]["uid"], time.monotonic())
        asked = time.monotonic()
        booked = {pod["uid"] for pod in self._sharing.pair.inspect()["pods"]}
        for uid, began in self._since.items():
            kept = asked - began if uid in booked else 0.0
            self.seconds[uid] = max(self.seconds.get(uid, 0.0), kept)


@pytest.fixture
def polling(cluster: Cluster) -> Iterator[None]:
    """Another client asks both kubelets for their PodResources, 50 times a second."""
    over = threading.Event()

    def poll(socket: str) -> None:
        options = [("grpc.default_authority", "localhost"), ("grpc.max_receive_message_length", -1)]
        with grpc.insecure_channel(f"unix://{socket}", options) as channel:
            lister = pod_resources_grpc.PodResourcesListerStub(channel)
            while not over.wait(0.02):
                try:
                    lister.List(pod_resources.ListPodResourcesRequest(), timeout=2)
                except grpc.RpcError:
                    time.sleep(0.1)  # a kubelet that restarts, or its rate limit

    sockets = [str(node.kubelet_dir / "pod-resources" / "kubelet.sock") for node in cluster.nodes.values()]
    threads = [threading.Thread(target=poll, args=(socket,), daemon=True) for socket in sockets]
    for thread in threads:
        thread.start()
    yield
    over.set()
    for thread in threads:
        thread.join()


def forty_pods(prefix: str) -> list[Json]:
    """Every second one has two containers of the same size."""
    pods = []
    for i in range(40):
        containers = [a_gpu_container("main", mem=1), a_gpu_container("twin", mem=1)]
        pods.append(a_gpu_pod(f"{prefix}-{i}", *containers[: 1 + i % 2]))
    return pods


def all_run(cluster: Cluster, count: int) -> None:
    def running() -> bool:
        phases = Counter(pod["status"]["phase"] for pod in cluster.pods("default"))
        assert phases["Running"] == count, phases
        return True

    wait_for(running, 120, f"{count} running pods", every=0.5)


def failed_attempts(cluster: Cluster) -> list[str]:
    """What went wrong while the pods that are there were scheduled, by Events and conditions."""
    pods = {pod["metadata"]["uid"]: pod for pod in cluster.pods("default")}
    told = cluster.api.items("/api/v1/namespaces/default/events", fieldSelector="reason=FailedScheduling")
    events = [event for event in told if event["involvedObject"].get("uid") in pods]
    conditions = [
        condition.get("message", "")
        for pod in pods.values()
        for condition in pod["status"].get("conditions", [])
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulerError"
    ]
    return [event.get("message") or event.get("note", "") for event in events] + conditions


def test_forty_equal_pods_at_once_each_see_their_own_gpu(sharing: Gangshare, polling: None) -> None:
    cluster = sharing.cluster
    for pod in forty_pods("burst"):
        cluster.create_pod(pod)
    all_run(cluster, 40)
    sharing.check_books()
    assert failed_attempts(cluster) == []
    assert sharing.pair.metric("gangshare_conflicts_total") == 0


def kill_extender(sharing: Gangshare) -> None:
    sharing.pair.extender.kill()
    sharing.pair.start_extender()


def restart_scheduler(sharing: Gangshare) -> None:
    assert sharing.pair.scheduler is not None
    sharing.pair.scheduler.process.restart()


@pytest.mark.parametrize("accident", [kill_extender, restart_scheduler])
def test_a_burst_survives_the_loss_of_a_scheduling_process(
    sharing: Gangshare, polling: None, accident: Callable[[Gangshare], None]
) -> None:
    cluster = sharing.cluster
    for i, pod in enumerate(forty_pods("kill")):
        cluster.create_pod(pod)
        if i == 20:
            accident(sharing)
    all_run(cluster, 40)
    sharing.check_books()


def start_jobs(cluster: Cluster, pods: list[Json]) -> None:
    """Each pod from a Job of its own: a Job waits 10 s after its first failed pod, and ever longer after more."""
    for pod in pods:
        template = {**pod["spec"], "restartPolicy": "OnFailure"}  # a kubelet that is killed may break a start
        spec = {"backoffLimit": 20, "template": {"spec": template}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": pod["metadata"]["name"]}, "spec": spec}
        cluster.api.post("/apis/batch/v1/namespaces/default/jobs", job)


def kill_plugins(sharing: Gangshare) -> None:
    for plugin in sharing.plugins.values():
        plugin.kill()
    time.sleep(0.5)
    for plugin in sharing.plugins.values():
        plugin.start()


def restart_kubelets(sharing: Gangshare) -> None:
    for node in sharing.cluster.nodes.values():
        node.kubelet.kill()
        node.kubelet.start()


def kill_both(sharing: Gangshare) -> None:
    for name, node in sharing.cluster.nodes.items():
        sharing.plugins[name].kill()
        node.kubelet.kill()
        node.kubelet.start()
        sharing.plugins[name].start()


@pytest.mark.parametrize("accident", [restart_kubelets, kill_plugins, kill_both])
def test_jobs_survive_the_loss_of_node_processes(
    sharing: Gangshare, polling: None, accident: Callable[[Gangshare], None]
) -> None:
    cluster = sharing.cluster
    before = sharing.run(a_gpu_pod("before", mem=1))
    restarts = before["status"]["containerStatuses"][0]["containerID"]
    start_jobs(cluster, forty_pods(accident.__name__.replace("_", "-")))
    wait_for(lambda: len(cluster.pods("default")) >= 20, 30, "pods of the jobs")
    with Refusals(sharing) as refusals:
        accident(sharing)
        all_run(cluster, 41)
    assert refusals.kept_s < 1, f"{len(refusals.seconds)} refusals, their bookings kept up to {refusals.kept_s:.1f} s"
    sharing.check_books()
    after = cluster.pod("before")
    assert after["status"]["containerStatuses"][0]["containerID"] == restarts, "running containers are untouched"


def test_a_plugin_that_is_told_to_stop_and_comes_back_refuses_nobody(sharing: Gangshare, polling: None) -> None:
    cluster = sharing.cluster
    start_jobs(cluster, forty_pods("calm"))
    wait_for(lambda: len(cluster.pods("default")) >= 10, 30, "pods of the job")
    for plugin in sharing.plugins.values():
        plugin.restart()
    all_run(cluster, 40)
    assert [pod["metadata"]["name"] for pod in cluster.pods("default") if pod["status"]["phase"] == "Failed"] == []
    sharing.check_books()

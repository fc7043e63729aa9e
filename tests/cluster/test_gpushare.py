"""Gpushare's resource, annotations, answers and files on a real cluster whose own scheduler asks our extender.

Source of what is expected: AliyunContainerService/gpushare-scheduler-extender and gpushare-device-plugin.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from extender.server import gpushare
from protos.contract import names
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import ROOT, Gangshare, a_gpu_container, a_gpu_pod, get
from tests.cluster.process import Process, wait_for

OURS, THEIRS = "node-1", "node-2"
T4: dict[str, Any] = {"model": "Tesla T4", "memMiB": 16384}
MACHINES: dict[str, dict[str, Any]] = {
    OURS: {"defaults": T4, "gpus": [{"minor": 1}, {"minor": 0}]},
    THEIRS: {"defaults": T4, "gpus": [{"uuid": "GPU-zero"}, {"uuid": "GPU-one"}]},
}
MINORS = ["1", "0"]


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    """A cluster without a scheduler: its one scheduler is that of the pair."""
    with Cluster.up(nodes=2, scheduler=False) as running:
        yield running


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Gangshare:
    """Our plugin on the one node; the other has none yet."""
    extender = ["--gpushare", "--lease-name=kube-scheduler"]
    made = Gangshare(cluster, MACHINES, layout="gpushare", extender_args=extender, plugin_args=["--gpushare"])
    made.plugins[OURS].start()
    made.pair.start()
    wait_for(lambda: made.offers(OURS, names.ALIYUN_MEM) == 32, 60, f"{names.ALIYUN_MEM} on {OURS}")
    return made


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.delete_pods()


def a_pod(name: str, mem: int, node: str = OURS, **more: Any) -> Json:
    """A pod as users of gpushare write it: for the default scheduler."""
    container = a_gpu_container("main", resources={"limits": {names.ALIYUN_MEM: str(mem)}})
    where = {"schedulerName": "default-scheduler", "nodeSelector": {"kubernetes.io/hostname": node}}
    return a_gpu_pod(name, container, **{**where, **more})


def environment(cluster: Cluster, pod: str) -> dict[str, str]:
    """gpushare's and NVIDIA's variables, as the container printed them."""

    def printed() -> dict[str, str]:
        return dict(line.split("=", 1) for line in cluster.pod_log(pod).splitlines())

    return wait_for(printed, 30, f"environment of {pod}")


def marks(cluster: Cluster, pod: str) -> dict[str, str]:
    """gpushare's annotations of a pod."""
    annotations: dict[str, str] = cluster.pod(pod)["metadata"].get("annotations", {})
    return {key: value for key, value in annotations.items() if key.startswith("ALIYUN_COM_GPU_MEM_")}


def index(cluster: Cluster, pod: str) -> str:
    return marks(cluster, pod)[names.ALIYUN_IDX]


def inspect(sharing: Gangshare, node: str) -> Json:
    (found,) = json.loads(get(sharing.pair.verbs, f"{gpushare.PREFIX}/inspect/{node}"))["nodes"]
    told: Json = found
    return told


def used(sharing: Gangshare, node: str) -> dict[int, tuple[int, list[str]]]:
    """Units used and the pods of each GPU by its number, as gpushare's inspect tells it."""
    devices = inspect(sharing, node)["devs"]
    return {gpu["id"]: (gpu["usedGPU"], [pod["name"] for pod in gpu["pods"]]) for gpu in devices}


def refusal(cluster: Cluster, pod: str) -> str:
    """What kube-scheduler wrote into the pod's condition."""

    def told() -> str:
        conditions = cluster.pod(pod)["status"].get("conditions", [])
        return "".join(c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False")

    return wait_for(told, 30, f"refusal of {pod}")


def test_the_node_shows_units_and_the_number_of_gpus(sharing: Gangshare) -> None:
    def shown() -> bool:
        status = sharing.cluster.api.get(f"/api/v1/nodes/{OURS}")["status"]
        told = [[status[kind].get(key) for key in (names.ALIYUN_MEM, names.ALIYUN_COUNT)] for kind in kinds]
        assert told == [["32", "2"], ["32", "2"]]
        return True

    kinds = ("capacity", "allocatable")
    wait_for(shown, 30, "amounts in the node's status")
    sharing.cluster.nodes[OURS].kubelet.restart()
    sharing.cluster.nodes[OURS].wait_ready()
    wait_for(shown, 60, "amounts in the node's status after the kubelet's restart")


def test_a_pod_gets_gpushares_annotations_and_environment(sharing: Gangshare) -> None:
    cluster, before = sharing.cluster, time.time_ns()
    sharing.run(a_pod("three", 3))

    wait_for(lambda: marks(cluster, "three")[names.ALIYUN_ASSIGNED] == "true", 20, "word that the GPU is assigned")
    found = marks(cluster, "three")
    assumed = int(found.pop(names.ALIYUN_ASSUME_TIME))
    assert before < assumed < time.time_ns()
    assert found.pop(names.ALIYUN_IDX) in MINORS
    assert found == {names.ALIYUN_POD: "3", names.ALIYUN_DEV: "16", names.ALIYUN_ASSIGNED: "true"}
    env = environment(cluster, "three")
    assert {key: value for key, value in env.items() if key.startswith("ALIYUN")} == {
        names.ALIYUN_IDX: index(cluster, "three"),
        names.ALIYUN_POD: "3",
        names.ALIYUN_CONTAINER: "3",
        names.ALIYUN_DEV: "16",
    }
    gpus = sharing.pair.inspect()["nodes"][0]["gpus"]
    assert env[names.VISIBLE_DEVICES] == gpus[MINORS.index(index(cluster, "three"))]["uuid"]
    sharing.check_books()


def test_inspect_tells_the_books_in_gpushares_form(sharing: Gangshare) -> None:
    sharing.run(a_pod("three", 3))
    sharing.run(a_pod("four", 4))
    first = int(index(sharing.cluster, "three"))

    pods = [{"name": name, "namespace": "default", "usedGPU": mem} for name, mem in (("three", 3), ("four", 4))]
    full = {"id": first, "totalGPU": 16, "usedGPU": 7, "pods": pods}
    empty = {"id": 1 - first, "totalGPU": 16, "usedGPU": 0, "pods": []}
    devices = sorted([full, empty], key=lambda gpu: MINORS.index(str(gpu["id"])))
    assert inspect(sharing, OURS) == {"name": OURS, "totalGPU": 32, "usedGPU": 7, "devs": devices}
    everything = json.loads(get(sharing.pair.verbs, f"{gpushare.PREFIX}/inspect"))
    assert everything == {"nodes": [inspect(sharing, OURS)]}


def test_refusals_are_gpushares_words(sharing: Gangshare) -> None:
    cluster = sharing.cluster
    cluster.create_pod(a_pod("large", 17))
    assert "1 Insufficient GPU Memory in one device" in refusal(cluster, "large")

    asked = {"Pod": cluster.pod("large"), "NodeNames": [OURS, THEIRS]}
    assert post(sharing, "filter", asked)["FailedNodes"] == {
        OURS: "Insufficient GPU Memory in one device",
        THEIRS: f"The node {THEIRS} is not for GPU share, need skip",
    }


def post(sharing: Gangshare, verb: str, body: Json) -> Json:
    url = f"http://127.0.0.1:{sharing.pair.verbs}{gpushare.PREFIX}/{verb}"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        answer: Json = json.load(response)
    return answer


def test_a_gpu_that_the_config_map_calls_unhealthy_gets_no_pods_until_it_is_well(sharing: Gangshare) -> None:
    cluster = sharing.cluster
    maps = f"/api/v1/namespaces/{names.UNHEALTHY_CONFIGMAP_NAMESPACE}/configmaps"
    name = f"{names.UNHEALTHY_CONFIGMAP_PREFIX}{OURS}"
    cluster.api.post(maps, {"metadata": {"name": name}, "data": {names.UNHEALTHY_CONFIGMAP_KEY: "1"}})
    try:
        wait_for(lambda: sharing.pair.inspect()["nodes"][0]["gpus"][0]["cordoned"], 20, "GPU that is left alone")
        sharing.run(a_pod("three", 3))
        assert index(cluster, "three") == "0"
        cluster.create_pod(a_pod("sixteen", 16))
        assert gpushare.NO_ROOM in refusal(cluster, "sixteen")
    finally:
        cluster.api.delete(f"{maps}/{name}")
    cluster.wait_phase("sixteen", "Running")
    assert index(cluster, "sixteen") == "1"


@pytest.fixture
def theirs(cluster: Cluster, sharing: Gangshare) -> Iterator[Process]:
    """A stand-in for gpushare's plugin on the other node, with a running pod that gpushare put on its GPU 1."""
    ids = [f"{gpu['uuid']}-_-{j}" for gpu in MACHINES[THEIRS]["gpus"] for j in range(16)]
    argv = [sys.executable, "-m", "tests.cluster.standins.device_plugin", f"--resource={names.ALIYUN_MEM}"]
    argv += [f"--devices={','.join(ids)}", f"--env={names.VISIBLE_DEVICES}=1", f"--env={names.ALIYUN_IDX}=1"]
    plugin = cluster.process("gpushare-plugin", argv, node=THEIRS, cwd=ROOT)
    plugin.start()
    plugin.wait_until(lambda: "followed" in plugin.text(), 60, "kubelet that follows it")
    count = {names.ALIYUN_COUNT: "2"}
    cluster.api.patch(f"/api/v1/nodes/{THEIRS}/status", {"status": {"capacity": count, "allocatable": count}})
    placed = {names.ALIYUN_IDX: "1", names.ALIYUN_POD: "10", names.ALIYUN_DEV: "16", names.ALIYUN_ASSIGNED: "true"}
    pod = a_pod("old", 10, THEIRS, nodeName=THEIRS)
    pod["metadata"]["annotations"] = {**placed, names.ALIYUN_ASSUME_TIME: "1700000000000000000"}
    sharing.run(pod)
    yield plugin
    plugin.stop()


def test_a_pod_that_gpushare_placed_is_in_the_books_before_and_after_the_switch(
    sharing: Gangshare, theirs: Process
) -> None:
    cluster = sharing.cluster
    was = {0: (0, []), 1: (10, ["old"])}
    sharing.pair.extender.kill()
    sharing.pair.start_extender()
    wait_for(lambda: used(sharing, THEIRS) == was, 20, "books made of gpushare's annotations")

    sharing.plugins[THEIRS].start()
    wait_for(lambda: names.GPUS in of_node(cluster, THEIRS), 30, "inventory of the other node")
    wait_for(lambda: names.ALLOCATION in cluster.pod("old")["metadata"]["annotations"], 30, "allocation of the old pod")
    assert sharing.annotated(cluster.pod("old")) == {"main": ["GPU-one"]}
    wait_for(lambda: used(sharing, THEIRS) == was, 20, "the same books with the plugin's inventory")
    theirs.stop()
    wait_for(lambda: nobody_serves(cluster), 40, "word that we serve the memory now")

    sharing.run(a_pod("new", 8, THEIRS))
    assert environment(cluster, "new")[names.VISIBLE_DEVICES] == "GPU-zero"
    cluster.create_pod(a_pod("next", 10, THEIRS))
    assert gpushare.NO_ROOM in refusal(cluster, "next")
    assert used(sharing, THEIRS) == {0: (8, ["new"]), 1: (10, ["old"])}
    cluster.api.delete("/api/v1/namespaces/default/pods/old")
    cluster.wait_phase("next", "Running")
    assert index(cluster, "next") == "1"


def of_node(cluster: Cluster, node: str) -> dict[str, str]:
    found: dict[str, str] = cluster.api.get(f"/api/v1/nodes/{node}")["metadata"].get("annotations", {})
    return found


def nobody_serves(cluster: Cluster) -> bool:
    sentence = f"no other device plugin serves {names.ALIYUN_MEM} any more: Gangshare's plugin serves it from now on"
    return sentence in [event["message"] for event in cluster.events(THEIRS)]

"""What containers really get of their GPUs, by each way of telling the container runtime, without a GPU.

The GPUs are fake; a CDI specification brings /dev/null under a name for each, which shows what NVIDIA's would bring.
Nothing is refused here (no admission policies), so that one sees what the kubelet and containerd make of forgeries.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.fake import FakeSource
from protos.contract import names
from tests.cluster import assets, images, needed
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, a_gpu_container, a_gpu_pod, beta_policies, kustomization, void_policy
from tests.cluster.node import Node
from tests.cluster.process import wait_for

SPEC = "/var/run/cdi/fake-gpus.json"
CUDA = "localhost/cuda:1"
LOOK = "ls -1 /dev /var/run/nvidia-container-devices 2>/dev/null; echo end; sleep infinity"
ALL = "all"
MACHINE = "t4x4"


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    """One node whose containerd knows CDI, with an image that sets NVIDIA_VISIBLE_DEVICES as NVIDIA's do."""
    with needed.or_skip():
        containerd = assets.containerd_with_cdi()
    flags = beta_policies(assets.provide().minor)
    with Cluster.up(nodes=1, scheduler=False, containerd=containerd, apiserver_args=flags) as running:
        archive = images.with_environment(running.dir / "cuda.tar", CUDA, **{names.VISIBLE_DEVICES: ALL})
        running.nodes["node-1"].import_image(archive)
        data = {names.VISIBLE_DEVICES: ALL}
        running.api.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "forged"}, "data": data})
        yield running


@pytest.fixture(scope="module", params=["envvar", "volume-mounts", "cdi-cri", "cdi-annotations"])
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def sharing(cluster: Cluster, strategy: str) -> Iterator[Gangshare]:
    args = [f"--device-list-strategy={strategy}"]
    running = Gangshare(cluster, {"node-1": MACHINE}, policies=False, plugin_args=args)
    write_specification(cluster.nodes["node-1"])
    yield running.start()
    running.stop()


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.delete_pods()


def gpus() -> list[str]:
    """The UUIDs of the node's GPUs, in order."""
    return [gpu.uuid for gpu in FakeSource(MACHINE, "node-1").read().gpus]


def write_specification(node: Node) -> None:
    devices = [
        {
            "name": uuid,
            "containerEdits": {
                "env": [f"NVIDIA_INJECTED_{i}={uuid}"],
                "deviceNodes": [{"path": f"/dev/nvidia{i}", "hostPath": "/dev/null", "type": "c"}],
            },
        }
        for i, uuid in enumerate(gpus())
    ]
    spec = json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices})
    text = base64.b64encode(spec.encode()).decode()
    node.command("sh", "-c", f"mkdir -p {Path(SPEC).parent} && echo {text} | base64 -d > {SPEC}")


class Seen:
    """What one container found around itself."""

    def __init__(self, cluster: Cluster, pod: str, container: str) -> None:
        def whole() -> str:
            text = cluster.pod_log(pod, container=container)
            return text if "end" in text.splitlines() else ""

        lines = wait_for(whole, 30, f"log of {pod}/{container}").splitlines()
        self.env = dict(line.split("=", 1) for line in lines if "=" in line)
        self.mounted = {line for line in lines if line.startswith("GPU-")}
        self.nodes = {line for line in lines if line.startswith("nvidia")}

    def shown(self, strategy: str) -> set[str]:
        """The GPUs that NVIDIA's runtime or CDI brings into such a container, UUIDs and `all`."""
        if strategy.startswith("cdi-"):
            injected = {value for key, value in self.env.items() if key.startswith("NVIDIA_INJECTED_")}
            assert len(self.nodes) == len(injected)
            return injected
        if strategy == "volume-mounts":
            return self.mounted
        return set(filter(None, self.env.get(names.VISIBLE_DEVICES, "").split(","))) - {"void", "none"}


def a_pod(name: str, *containers: Json, **spec: Any) -> Json:
    return a_gpu_pod(name, *containers, **spec)


def a_container(name: str = "main", **fields: Any) -> Json:
    return a_gpu_container(name, script=LOOK, **fields)


def look(sharing: Gangshare, pod: Json, *containers: str) -> tuple[list[str], list[Seen]]:
    """The GPUs of `main`, and what the containers saw."""
    running = sharing.run(pod)
    name = pod["metadata"]["name"]
    return sharing.annotated(running)["main"], [Seen(sharing.cluster, name, one) for one in containers]


def test_a_container_gets_its_gpus_and_its_neighbour_in_the_pod_gets_none(sharing: Gangshare, strategy: str) -> None:
    side = {**a_container("side"), "restartPolicy": "Always"}
    pod = a_pod("p", a_container(whole=2), a_container("cpu"), initContainers=[side])
    own, (main, cpu, sidecar) = look(sharing, pod, "main", "cpu", "side")
    assert main.shown(strategy) == set(own)
    assert len(own) == 2
    assert main.env[names.ENV_UUIDS].split(",") == own
    told = {"envvar": ",".join(own), "volume-mounts": names.DEVICE_MOUNTS}
    assert main.env[names.VISIBLE_DEVICES] == told.get(strategy, "void")
    for other in (cpu, sidecar):
        assert other.shown(strategy) == set()
        assert names.VISIBLE_DEVICES not in other.env


def test_a_container_with_memory_and_slices_gets_its_gpu_once(sharing: Gangshare, strategy: str) -> None:
    own, (main,) = look(sharing, a_pod("both", a_container(mem=4, slices=20)), "main")
    assert main.shown(strategy) == set(own)
    assert len(own) == 1


@pytest.mark.parametrize("asks", [True, False], ids=["asks a GPU", "asks nothing"])
@pytest.mark.parametrize("way", ["envFrom", "image"])
def test_what_a_variable_of_the_pod_or_of_its_image_shows(
    sharing: Gangshare, strategy: str, way: str, asks: bool
) -> None:
    forged = {"envFrom": [{"configMapRef": {"name": "forged"}}]} if way == "envFrom" else {"image": CUDA}
    asking = a_container(mem=4, **(forged if asks else {}))
    own, (main, cpu) = look(
        sharing, a_pod("forged", asking, a_container("cpu", **({} if asks else forged))), "main", "cpu"
    )
    seen = main if asks else cpu
    wins = way == "envFrom" or not asks
    if wins:
        assert seen.env[names.VISIBLE_DEVICES] == ALL, "so NVIDIA's runtime would read it, if it reads variables"
    if strategy == "envvar":
        assert seen.shown(strategy) == ({ALL} if wins else set(own))
    else:
        assert seen.shown(strategy) == (set(own) if asks else set())


def test_an_annotation_of_the_pod_brings_no_device(sharing: Gangshare, strategy: str, cluster: Cluster) -> None:
    annotations = {"cdi.k8s.io/mine": ",".join(f"nvidia.com/gpu={uuid}" for uuid in gpus())}
    pod = a_gpu_pod("annotated", a_container("cpu"), annotations=annotations, nodeName="node-1")
    sharing.run(pod)
    assert Seen(cluster, "annotated", "cpu").shown(strategy) == set()


def test_told_void_a_container_that_asks_nothing_has_that_before_what_its_image_says(
    sharing: Gangshare, strategy: str, cluster: Cluster
) -> None:
    component = void_policy(cluster.plane.assets.minor)
    if not component:
        pytest.skip("MutatingAdmissionPolicies need Kubernetes 1.34")
    built = cluster.kubectl("kustomize", str(kustomization(cluster, "base/common", component)))
    void = [one for one in built.split("\n---\n") if "name: gangshare-void" in one]
    assert len(void) == 2
    cluster.apply("\n---\n".join(void))
    try:
        pods = "/api/v1/namespaces/default/pods?dryRun=All"
        wait_for(lambda: "void" in json.dumps(cluster.api.post(pods, a_pod("try", a_container()))), 30, "void")
        own, (main, cpu) = look(
            sharing,
            a_pod(
                "told",
                a_container(mem=4, image=CUDA),
                a_container("cpu", image=CUDA, envFrom=[{"configMapRef": {"name": "forged"}}]),
            ),
            "main",
            "cpu",
        )
        assert main.shown(strategy) == set(own)
        assert cpu.env[names.VISIBLE_DEVICES] == "void"
        assert cpu.shown(strategy) == set()
    finally:
        cluster.kubectl("delete", "--filename", "-", stdin="\n---\n".join(void))

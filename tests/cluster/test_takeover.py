"""A node where NVIDIA's plugin serves whole GPUs: ours comes beside it, and takes its place later."""

from __future__ import annotations

import contextlib
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protos.contract import inventory, names
from tests.cluster import host
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import ROOT, Gangshare, a_gpu_pod
from tests.cluster.process import Process, wait_for

NODE = "node-1"
UUIDS = [f"GPU-{i}0000000-0000-4000-8000-00000000000{i}" for i in range(4)]
MACHINE: dict[str, Any] = {"defaults": {"model": "Tesla T4", "memMiB": 16384}, "gpus": [{"uuid": u} for u in UUIDS]}
METRICS = host.free_port()
ON_NODE: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": NODE}}


@pytest.fixture
def nvidia(cluster: Cluster) -> Iterator[Process]:
    """A stand-in for NVIDIA's plugin, and two running pods that it gave three of the four GPUs."""
    # only the node's: to delete all, thousands of earlier tests', takes longer than a request may
    cluster.api.delete("/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={NODE}")
    argv = [sys.executable, "-m", "tests.cluster.standins.device_plugin", f"--resource={names.WHOLE_GPU}"]
    plugin = cluster.process("nvidia-plugin", [*argv, f"--devices={','.join(UUIDS)}"], node=NODE, cwd=ROOT)
    already = plugin.text()
    plugin.start()
    plugin.wait_until(lambda: "followed" in plugin.text().removeprefix(already), 60, "kubelet that follows it")
    wait_for(lambda: allocatable(cluster, names.WHOLE_GPU) == 4, 60, "GPUs of the other plugin")
    for name, gpus in (("before-one", 1), ("before-two", 2)):
        cluster.create_pod(a_gpu_pod(name, whole=gpus, schedulerName="default-scheduler", **ON_NODE))
        cluster.wait_phase(name, "Running")
    yield plugin
    cluster.delete_pods()
    plugin.stop()


@pytest.fixture
def sharing(cluster: Cluster, nvidia: Process) -> Iterator[Gangshare]:
    """Ours, started while the other plugin runs."""
    with ours(cluster) as running:
        yield running


@contextlib.contextmanager
def ours(cluster: Cluster) -> Iterator[Gangshare]:
    running = Gangshare(cluster, {NODE: MACHINE}, plugin_args=[f"--metrics-port={METRICS}"])
    try:
        yield running.start()
    finally:
        running.stop()


def allocatable(cluster: Cluster, resource: str) -> int:
    return int(cluster.api.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"].get(resource, 0))


def registered(resource: str) -> bool:
    """Whether our plugin serves the resource, by its metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{METRICS}/metrics", timeout=10) as response:
        lines: list[str] = response.read().decode().splitlines()
    return f'gangshare_plugin_registered{{resource="{resource}"}} 1.0' in lines


def told(cluster: Cluster) -> list[str]:
    """Our Events about the node."""
    ours = ("GpuResourceElsewhere", "GpuResourceServed")
    return [event["message"] for event in cluster.events(NODE) if event["reason"] in ours]


def taken(sharing: Gangshare) -> dict[str, list[str]]:
    """The GPUs that each running pod really sees."""
    return {pod: sorted(sharing.visible(pod)) for pod in ("before-one", "before-two")}


def booked(sharing: Gangshare) -> dict[str, list[str]]:
    """The GPUs of each pod by the books."""
    found: dict[str, list[str]] = {}
    for node in sharing.pair.inspect()["nodes"]:
        assert not node["unplaced"], node["unplaced"]
        for gpu in node["gpus"]:
            for pod in gpu["pods"]:
                assert pod["whole"] == gpu["whole"]
                found.setdefault(pod["name"], []).append(gpu["uuid"])
    return {name: sorted(uuids) for name, uuids in found.items()}


def wait_booked(sharing: Gangshare, wanted: dict[str, list[str]]) -> None:
    def so() -> bool:
        assert booked(sharing) == wanted
        return True

    wait_for(so, 40, f"books that say {wanted}")


def waits(cluster: Cluster, name: str) -> bool:
    """Whether the scheduler has refused the pod."""
    conditions = cluster.pod(name)["status"].get("conditions", [])
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)


def test_what_another_plugin_serves_is_left_to_it(sharing: Gangshare) -> None:
    cluster = sharing.cluster
    (sentence,) = wait_for(lambda: told(cluster), 30, "Event about the other plugin")
    assert f"another device plugin serves {names.WHOLE_GPU} on this node, and goes on to serve it." in sentence
    assert not registered(names.WHOLE_GPU)
    assert registered(names.GPU_MEM)
    assert registered(names.GPU_SLICE)
    assert [allocatable(cluster, r) for r in (names.WHOLE_GPU, names.GPU_MEM, names.GPU_SLICE)] == [4, 64, 400]
    shown = inventory.decode(cluster.api.get(f"/api/v1/nodes/{NODE}")["metadata"]["annotations"][names.GPUS])
    assert shown
    assert (shown.state, [gpu.uuid for gpu in shown.gpus]) == ("ready", UUIDS)


def test_gpus_that_another_plugin_gave_are_in_our_books_and_given_to_nobody(sharing: Gangshare) -> None:
    cluster, before = sharing.cluster, taken(sharing)
    wait_booked(sharing, before)
    (free,) = set(UUIDS) - {uuid for uuids in before.values() for uuid in uuids}

    sharing.run(a_gpu_pod("part", mem=10, slices=50, **ON_NODE))
    cluster.create_pod(a_gpu_pod("more", mem=10, **ON_NODE))

    wait_for(lambda: waits(cluster, "more"), 30, "refusal of what has no room")
    assert sharing.visible("part") == [free]
    sharing.check_books()


def by_waiting(sharing: Gangshare, nvidia: Process) -> None:
    """The other plugin goes; ours runs on, and serves its resource some seconds later."""
    nvidia.stop()
    sentence = f"no other device plugin serves {names.WHOLE_GPU} any more: Gangshare's plugin serves it from now on"
    wait_for(lambda: sentence in told(sharing.cluster), 40, f"word that {sentence}")


def by_restart(sharing: Gangshare, nvidia: Process) -> None:
    """The other plugin goes, and ours is started anew."""
    nvidia.stop()
    sharing.plugins[NODE].restart()


@pytest.mark.parametrize("switch", [by_waiting, by_restart])
def test_after_the_switch_running_pods_keep_their_gpus_and_whole_ones_are_ours(
    sharing: Gangshare, nvidia: Process, switch: Callable[[Gangshare, Process], None]
) -> None:
    cluster, before = sharing.cluster, taken(sharing)
    wait_for(lambda: told(cluster), 30, "Event about the other plugin")
    containers = [cluster.pod(name)["status"]["containerStatuses"][0]["containerID"] for name in before]

    switch(sharing, nvidia)

    wait_for(lambda: registered(names.WHOLE_GPU), 60, "whole GPUs served by us")
    wait_booked(sharing, before)
    (free,) = set(UUIDS) - {uuid for uuids in before.values() for uuid in uuids}
    sharing.run(a_gpu_pod("whole", whole=1, **ON_NODE))
    assert sharing.visible("whole") == [free]
    cluster.create_pod(a_gpu_pod("next", whole=2, **ON_NODE))
    wait_for(lambda: waits(cluster, "next"), 30, "refusal of what has no room")
    sharing.pair.extender.kill()
    sharing.pair.start_extender()
    sharing.check_books()
    assert containers == [cluster.pod(name)["status"]["containerStatuses"][0]["containerID"] for name in before]

    cluster.api.delete("/api/v1/namespaces/default/pods/before-two")

    cluster.wait_phase("next", "Running")
    assert sorted(sharing.visible("next")) == before["before-two"]


def test_pods_of_a_plugin_that_is_gone_when_ours_comes_are_taken_over(cluster: Cluster, nvidia: Process) -> None:
    nvidia.stop()
    with ours(cluster) as sharing:
        before = taken(sharing)
        wait_booked(sharing, before)
        assert not told(cluster)
        for name in before:
            assert [event for event in cluster.events(name) if event["reason"] == "GpuTakenOver"]
        sharing.check_books()

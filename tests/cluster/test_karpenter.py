"""Karpenter itself on the real API server, with the NodeOverlay that `gangshare autoscaler-tags` prints.

Its provider makes nodes that are objects. The test is their kubelet and their plugin; pods are bound and never run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protos.contract import names
from tests.cluster import assets, bare, host, needed
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, a_gpu_pod
from tests.cluster.process import wait_for
from tests.cluster.release import Terminal

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]  # it builds Karpenter
POOL, TYPE, PROFILE = "gpu", "g8", "dgx-a100-80g"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
TAINT = {"key": names.STARTUP_TAINT, "effect": "NoSchedule"}
OFFERING = [
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]},
]
INSTANCE = {
    "name": TYPE,
    "offerings": [{"Price": 32.77, "Available": True, "Requirements": OFFERING}],
    "architecture": "amd64",
    "operatingSystems": ["linux"],
    "resources": {"cpu": "96", "memory": "1152Gi", "ephemeral-storage": "100Gi"},
}
"""An instance type of which Karpenter does not know that it has GPUs."""
CLASS: Json = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}
NODE_POOL: Json = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": POOL},
    "spec": {
        "template": {
            "spec": {
                "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [TYPE]}],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "startupTaints": [TAINT],
            }
        },
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10s"},
    },
}


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    """A cluster without a node, with Gangshare and Karpenter, and no overlay yet."""
    with needed.or_skip():
        program, definitions = assets.karpenter()
    with bare.up([]) as running:
        running.kubectl("apply", "--server-side", "--filename", str(definitions))
        running.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
        running.apply([CLASS, NODE_POOL])
        sharing = Gangshare(running, {}, components=["autoscaler"]).start()
        types = running.dir / "types.json"
        types.write_text(json.dumps([INSTANCE]))
        settings = {
            "KUBECONFIG": str(running.kubeconfig),
            "FEATURE_GATES": "NodeOverlay=true",
            "INSTANCE_TYPES_FILE_PATH": str(types),
            "METRICS_PORT": str(host.free_port()),
            "HEALTH_PROBE_PORT": str(host.free_port()),
            "DISABLE_LEADER_ELECTION": "true",
            "SYSTEM_NAMESPACE": "kube-system",
        }
        karpenter = running.process("karpenter", [str(program)], env={**os.environ, **settings}).start()
        yield running
        karpenter.stop()
        sharing.stop()


def claims(cluster: Cluster) -> list[Json]:
    return cluster.api.items(CLAIMS)


def nodes(cluster: Cluster) -> list[Json]:
    return cluster.api.items(bare.NODES)


def told_unschedulable(cluster: Cluster, pod: str) -> bool:
    conditions = cluster.pod(pod)["status"].get("conditions", [])
    return any(one.get("reason") == "Unschedulable" for one in conditions)


def bound_to(cluster: Cluster, pod: str, node: str) -> None:
    wait_for(lambda: cluster.pod(pod)["spec"].get("nodeName") == node, 60, f"{pod} on {node}")


def becomes_ready(cluster: Cluster, name: str) -> None:
    """The node's kubelet says that it is ready, without GPUs."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    cluster.api.patch(f"{bare.NODES}/{name}/status", {"status": {"conditions": [ready]}})


def offers(cluster: Cluster, name: str) -> None:
    """The node's plugin publishes its GPUs, the kubelet offers them, and the plugin removes the startup taint."""
    made = bare.a_node(name)
    annotations = {"annotations": made["metadata"]["annotations"]}
    bare.change(cluster, {"metadata": {"name": name, **annotations}, "status": made["status"]})

    def registered() -> list[Json] | None:
        taints: list[Json] = cluster.api.get(f"{bare.NODES}/{name}")["spec"].get("taints", [])
        return taints if names.STARTUP_TAINT in {taint["key"] for taint in taints} else None

    taints = wait_for(registered, 30, "a node with its startup taint")
    left = [taint for taint in taints if taint["key"] != names.STARTUP_TAINT]
    cluster.api.patch(f"{bare.NODES}/{name}", {"spec": {"taints": left}})


def test_without_the_overlay_it_adds_no_node(cluster: Cluster) -> None:
    cluster.create_pod(a_gpu_pod("first", mem=60))
    wait_for(lambda: told_unschedulable(cluster, "first"), 30, "an unschedulable pod")
    time.sleep(5)
    assert claims(cluster) == []


def test_with_the_overlay_it_adds_one_node_and_waits_for_the_plugin(cluster: Cluster) -> None:
    terminal = Terminal(cluster, gangshare=Path(sys.executable).with_name("gangshare"))
    terminal.run(
        f"gangshare autoscaler-tags --profile {PROFILE} --for karpenter --pool {POOL} --instance-type {TYPE} "
        "| kubectl apply --filename -"
    )

    wait_for(lambda: len(nodes(cluster)) == 1, 60, "a node")
    (node,) = nodes(cluster)
    name = node["metadata"]["name"]
    becomes_ready(cluster, name)
    time.sleep(15)  # longer than Karpenter gathers pods for
    assert len(claims(cluster)) == 1
    assert told_unschedulable(cluster, "first")
    offers(cluster, name)

    bound_to(cluster, "first", name)
    cluster.create_pod(a_gpu_pod("second", mem=60))
    bound_to(cluster, "second", name)
    assert len(claims(cluster)) == 1


def test_pods_beyond_a_node_get_another_and_an_empty_one_is_removed(cluster: Cluster) -> None:
    """It counts units per node: six of these pods fit beside the two, and it takes it for seven."""
    (first,) = (one["metadata"]["name"] for one in nodes(cluster))
    more = [f"more-{number}" for number in range(8)]
    for pod in more:
        cluster.create_pod(a_gpu_pod(pod, mem=70))
    wait_for(lambda: len(nodes(cluster)) == 2, 60, "a second node")
    (second,) = {one["metadata"]["name"] for one in nodes(cluster)} - {first}
    becomes_ready(cluster, second)
    offers(cluster, second)

    def places() -> list[str]:
        return sorted(cluster.pod(pod)["spec"].get("nodeName", "") for pod in more)

    wait_for(lambda: places() == sorted([first] * 6 + [second] * 2), 60, "all pods on nodes")
    assert len(claims(cluster)) == 2

    for pod in more:
        cluster.api.delete(f"/api/v1/namespaces/default/pods/{pod}", **bare.NOW)

    wait_for(lambda: len(claims(cluster)) == 1, 120, "one claim")
    for pod in ("first", "second"):
        assert cluster.pod(pod)["spec"]["nodeName"] == first


def test_whole_gpus_and_parts_are_two_resources_to_it(cluster: Cluster) -> None:
    """docs/autoscalers.md warns of this: it takes the GPUs of the two pods for free."""
    cluster.create_pod(a_gpu_pod("whole", whole=8))
    wait_for(lambda: told_unschedulable(cluster, "whole"), 30, "an unschedulable pod")
    time.sleep(15)
    assert len(claims(cluster)) == 1

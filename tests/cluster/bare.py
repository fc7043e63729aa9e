"""A control plane whose nodes are objects with GPUs: pods are bound there and never run, and go at once when deleted.

Its controllers make lost pods anew, and leave nodes alone that no kubelet renews.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from protos.contract import inventory, names
from tests.bench import bodies
from tests.cluster import images
from tests.cluster.api import ApiError, Json
from tests.cluster.cluster import Cluster
from tests.cluster.process import wait_for

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
NOW = {"gracePeriodSeconds": "0"}
PORT = 30_123


def up(nodes: Sequence[str]) -> Cluster:
    """A cluster without schedulers, with so many nodes of eight GPUs each."""
    made = Cluster.up(
        nodes=0,
        scheduler=False,
        controller_manager_args=["--controllers=*,-node-lifecycle-controller"],
        apiserver_args=["--disable-admission-plugins=TaintNodesByCondition"],
    )
    for name in nodes:
        made.api.post(NODES, a_node(name))
    return made


def a_node(name: str, gpus: int = bodies.GPUS) -> Json:
    """A node with so many GPUs."""
    told = bodies.gpus_of(name)
    made = bodies.node(name)
    told = msgspec.structs.replace(
        told, gpus=told.gpus[:gpus], links=[link for link in told.links if max(link[:2]) < gpus]
    )
    made["metadata"]["annotations"][names.GPUS] = inventory.encode(told)
    offered = {names.GPU_MEM: gpus * bodies.UNITS, names.GPU_SLICE: gpus * 100, names.WHOLE_GPU: gpus}
    for amounts in ("capacity", "allocatable"):
        made["status"][amounts] = {**made["status"][amounts], **{key: str(n) for key, n in offered.items()}}
    return made


def a_node_of(name: str, *models: str) -> Json:
    """A node with a GPU of each of these models; they have as much memory as the others."""
    made = a_node(name, len(models))
    told = inventory.decode(made["metadata"]["annotations"][names.GPUS])
    assert told is not None
    gpus = tuple(msgspec.structs.replace(gpu, model=model) for gpu, model in zip(told.gpus, models, strict=True))
    made["metadata"]["annotations"][names.GPUS] = inventory.encode(msgspec.structs.replace(told, gpus=gpus))
    return made


def change(cluster: Cluster, node: Json) -> None:
    """The node is this now."""
    path = f"{NODES}/{node['metadata']['name']}"
    cluster.api.patch(f"{path}/status", {"status": node["status"]})
    cluster.api.patch(path, {"metadata": node["metadata"]})


def members(gang: str, role: str, count: int, least: int, limits: Mapping[str, int], **spec: Any) -> Json:
    """A ReplicaSet that keeps so many members of a gang there."""
    labels = {"gang": gang, "role": role}
    asked = {"limits": {key: str(amount) for key, amount in limits.items()}}
    main = {"name": "main", "image": images.BUSYBOX, "resources": asked, **spec.pop("container", {})}
    body = {"schedulerName": names.PROFILE, "terminationGracePeriodSeconds": 0, "containers": [main], **spec}
    annotations = {names.GROUP: gang, names.MIN_MEMBER: str(least), names.ROLE: role}
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": body}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": f"{gang}-{role}"},
        "spec": {"replicas": count, "selector": {"matchLabels": labels}, "template": template},
    }


def taken_port(node: str) -> Json:
    """A pod on that node that has PORT: nobody else with `wanting_port` can be there."""
    main = {"name": "main", "image": images.BUSYBOX, **wanting_port()}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [main]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"port-{node}"}, "spec": spec}


def wanting_port() -> Json:
    """Fields of a container that wants a port of its node, which no planner of ours knows."""
    return {"ports": [{"containerPort": PORT, "hostPort": PORT}]}


def bound(cluster: Cluster, gang: str) -> list[str]:
    """The members that have a node."""
    return [pod["metadata"]["name"] for pod in cluster.pods("default", f"gang={gang}") if "nodeName" in pod["spec"]]


def tidy(cluster: Cluster) -> None:
    """Delete every pod, and whatever would make it anew."""
    for made in cluster.api.items(SETS):
        cluster.api.delete(f"{SETS}/{made['metadata']['name']}", propagationPolicy="Background")

    def gone() -> bool:
        try:
            cluster.api.delete(PODS, **NOW)
        except ApiError as error:
            if error.status != 404:
                raise
        return not cluster.pods("default")

    wait_for(gone, 60, "namespace without pods", every=0.5)

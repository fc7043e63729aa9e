"""Policy `gangshare`: the extender's own engine, called as kube-scheduler and the watches call it.

GPU milli are time slices, 1000 to a GPU. Models are in the inventories and in the pods' annotation. CPU and memory are
kube-scheduler's part: the engine only sees nodes that have enough. The pod goes to the first node of the engine's
answer. A pod that fits no node is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.engine.cycle.engine import Engine
from extender.engine.types.effects import PodRef, PostBinding
from extender.engine.types.events import BindDone, NodeSeen, PodGone, PodSeen, Tick
from extender.engine.types.settings import Settings
from extender.sim.openb import trace
from extender.sim.openb.cluster import Assignment, Cluster, PlacementError
from extender.sim.openb.trace import MILLI, Spec
from protos.contract import codec, inventory, names, objects
from protos.contract.inventory import Gpu, Inventory

GPU_MEM = 1000
"""Memory units of a GPU; no pod requests memory."""
ARRIVAL_S, TICKS = 1.0, 5
"""Seconds between two pods, and ticks in them."""
CONTAINER = "main"


class Gangshare:
    """The engine with the nodes of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._number = dict(sorted((node.name, i) for i, node in enumerate(cluster.nodes)))
        self._engine = Engine(Settings(slices_per_gpu=MILLI, backfill_delay_s=0.0))
        self._enough: dict[tuple[int, int], tuple[dict[str, int], int]] = {}
        """(CPU, memory) → the nodes with that much free, and the number of cluster changes included."""
        self._arrived = 0
        for node in cluster.nodes:
            self._engine.step(NodeSeen(as_node(node)), 0.0)

    def choose(self, pod: trace.Pod) -> Assignment | None:
        """The assignment that the engine binds the pod to, None if it fits no node."""
        self._arrived += 1
        now = self._arrived * ARRIVAL_S
        seen = as_pod(f"{pod.name}.{self._arrived}", pod.spec)
        uid = seen.metadata.uid
        self._engine.step(PodSeen(seen), now)
        assignment = self._bind(seen, self._nodes_with(pod.spec.cpu_milli, pod.spec.memory_mib), now)
        self._engine.step(BindDone(uid, "bound") if assignment else PodGone(uid), now)
        for _ in range(TICKS):
            self._engine.step(Tick(), now)
        return assignment

    def _bind(self, pod: objects.Pod, nodes: Sequence[str], now: float) -> Assignment | None:
        offered = self._engine.filter(pod, nodes, now).nodes
        if not offered:
            return None
        ref = PodRef(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        answer = self._engine.bind(ref, offered[0], now)
        if not isinstance(answer, PostBinding):
            raise PlacementError(f"the engine offered {offered[0]} to {ref} but did not bind it there: {answer}")
        shares = answer.allocation.containers[CONTAINER] if answer.allocation else ()
        return Assignment(self._number[answer.node], tuple(share.index for share in shares))

    def _nodes_with(self, cpu: int, memory: int) -> list[str]:
        """The nodes that kube-scheduler's own filters leave: with enough CPU and memory, in order of names.

        A node with too little never has enough again, because pods never leave.
        """
        enough, read = self._enough.get((cpu, memory), (self._number, 0))
        changed = set(self._cluster.changes[read:]) if read else range(len(self._cluster.rooms))
        short = {i for i in changed if self._cluster.rooms[i].cpu < cpu or self._cluster.rooms[i].memory < memory}
        if short:
            enough = {name: i for name, i in enough.items() if i not in short}
        self._enough[cpu, memory] = enough, len(self._cluster.changes)
        return list(enough)


def as_node(node: trace.Node) -> objects.Node:
    """The node as the kubelet and our plugin would publish it."""
    allocatable: objects.Quantities = {"cpu": f"{node.cpu_milli}m", "memory": f"{node.memory_mib}Mi", "pods": 10**6}
    annotations = {names.GPUS: inventory.encode(_inventory(node))} if node.gpus else {}
    return objects.Node(
        objects.ObjectMeta(name=node.name, uid=f"node-{node.name}", annotations=annotations),
        status=objects.NodeStatus(capacity=allocatable, allocatable=allocatable),
    )


def _inventory(node: trace.Node) -> Inventory:
    unit = names.DEFAULT_UNIT_MIB
    gpus = tuple(
        Gpu(index=i, minor=i, uuid=f"GPU-{node.name}-{i}", mem=GPU_MEM, mem_mib=GPU_MEM * unit, model=node.model)
        for i in range(node.gpus)
    )
    return Inventory(v=codec.VERSION, unit_mib=unit, slices_per_gpu=MILLI, gpus=gpus)


def as_pod(name: str, spec: Spec) -> objects.Pod:
    """The pod as its owner would create it."""
    limits: objects.Quantities = {}
    if spec.milli == MILLI:
        limits[names.WHOLE_GPU] = spec.gpus
    elif spec.gpus:
        limits[names.GPU_SLICE] = spec.milli
    requests = {"cpu": f"{spec.cpu_milli}m", "memory": f"{spec.memory_mib}Mi", **limits}
    annotations = {names.GPU_MODEL: ",".join(spec.models)} if spec.models else {}
    container = objects.Container(CONTAINER, objects.Resources(limits=limits, requests=requests))
    return objects.Pod(
        objects.ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", annotations=annotations),
        objects.PodSpec(containers=(container,)),
    )

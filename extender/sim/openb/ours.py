"""Policy `gangshare`: the extender's own engine, fed and asked as kube-scheduler and the watches do it.

GPU milli are time slices of which a GPU has a thousand, whole GPUs are whole GPUs, models stand in the inventories and
in the pods' annotation. CPU and memory are kube-scheduler's part: the engine is asked about those nodes only that have
enough. The pod goes to the first node offered; one that is refused is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.engine.cycle.engine import Engine
from extender.engine.types.effects import PodRef, PostBinding
from extender.engine.types.events import BindDone, NodeSeen, PodGone, PodSeen, Tick
from extender.engine.types.settings import Settings
from extender.sim.openb import trace
from extender.sim.openb.cluster import Cluster, PlacementError, Spot
from extender.sim.openb.trace import MILLI, Spec
from protos.contract import codec, inventory, names, objects
from protos.contract.inventory import Gpu, Inventory

UNITS = 1000
"""Memory of a GPU, of which nobody asks here."""
ARRIVAL_S, TICKS = 1.0, 5
"""Between two pods."""
CONTAINER = "main"


class Gangshare:
    """The engine with a cluster's nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._number = dict(sorted((node.name, i) for i, node in enumerate(cluster.nodes)))
        self._engine = Engine(Settings(slices_per_gpu=MILLI, backfill_delay_s=0.0))
        self._left: dict[tuple[int, int], tuple[dict[str, int], int]] = {}
        """(CPU, memory) → the nodes that had so much, and how many of the cluster's changes that takes in."""
        self._arrived = 0
        for node in cluster.nodes:
            self._engine.step(NodeSeen(as_node(node)), 0.0)

    def choose(self, pod: trace.Pod) -> Spot | None:
        """Where the engine puts the pod, bound there; None if it fits nowhere."""
        self._arrived += 1
        now = self._arrived * ARRIVAL_S
        seen = as_pod(f"{pod.name}.{self._arrived}", pod.spec)
        uid = seen.metadata.uid
        self._engine.step(PodSeen(seen), now)
        spot = self._ask(seen, self._with_room(pod.spec.cpu_milli, pod.spec.memory_mib), now)
        self._engine.step(BindDone(uid, "bound") if spot else PodGone(uid), now)
        for _ in range(TICKS):
            self._engine.step(Tick(), now)
        return spot

    def _ask(self, pod: objects.Pod, nodes: Sequence[str], now: float) -> Spot | None:
        offered = self._engine.filter(pod, nodes, now).nodes
        if not offered:
            return None
        ref = PodRef(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        answer = self._engine.bind(ref, offered[0], now)
        if not isinstance(answer, PostBinding):
            raise PlacementError(f"the engine offers {ref} the node {offered[0]} and then says {answer}")
        shares = answer.allocation.containers[CONTAINER] if answer.allocation else ()
        return Spot(self._number[answer.node], tuple(share.index for share in shares))

    def _with_room(self, cpu: int, memory: int) -> list[str]:
        """The nodes that kube-scheduler's own filters leave, those with enough CPU and memory, in order of names.

        A node that has too little never has enough again, since pods never leave.
        """
        left, read = self._left.get((cpu, memory), (self._number, 0))
        changed = set(self._cluster.changes[read:]) if read else range(len(self._cluster.rooms))
        short = {i for i in changed if self._cluster.rooms[i].cpu < cpu or self._cluster.rooms[i].memory < memory}
        if short:
            left = {name: i for name, i in left.items() if i not in short}
        self._left[cpu, memory] = left, len(self._cluster.changes)
        return list(left)


def as_node(node: trace.Node) -> objects.Node:
    """As the kubelet and our plugin would tell it."""
    allocatable: objects.Quantities = {"cpu": f"{node.cpu_milli}m", "memory": f"{node.memory_mib}Mi", "pods": 10**6}
    annotations = {names.GPUS: inventory.encode(_inventory(node))} if node.gpus else {}
    return objects.Node(
        objects.ObjectMeta(name=node.name, uid=f"node-{node.name}", annotations=annotations),
        status=objects.NodeStatus(capacity=allocatable, allocatable=allocatable),
    )


def _inventory(node: trace.Node) -> Inventory:
    unit = names.DEFAULT_UNIT_MIB
    gpus = tuple(
        Gpu(index=i, minor=i, uuid=f"GPU-{node.name}-{i}", mem=UNITS, mem_mib=UNITS * unit, model=node.model)
        for i in range(node.gpus)
    )
    return Inventory(v=codec.VERSION, unit_mib=unit, slices_per_gpu=MILLI, gpus=gpus)


def as_pod(name: str, spec: Spec) -> objects.Pod:
    """As its owner would have made it."""
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

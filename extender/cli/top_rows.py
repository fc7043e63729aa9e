"""`gangshare top`: what the user selects of the cluster, summed up by node, model, namespace or queue. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

import msgspec

from extender.cli import gpu_table
from extender.wire.answers import Gpu, Holder, Inspection, Node
from protos.contract.inventory import IN_MIG_MODE

By = Literal["gpu", "node", "model", "namespace", "queue"]
Sort = Literal["name", "free", "used", "pods"]


class Filters(NamedTuple):
    """Globs, which ignore case; "" selects everything."""

    node: str = ""
    model: str = ""
    namespace: str = ""
    queue: str = ""


class Row(msgspec.Struct):
    """The sums over some GPUs, or over the pods of one namespace or queue. Memory is in MiB."""

    name: str
    models: dict[str, None] = msgspec.field(default_factory=dict)
    gpus: int = 0
    free: int = 0
    """GPUs that are wholly free for new pods."""
    instances: int = 0
    """MIG instances; GPUs in MIG mode have no memory of their own here."""
    instances_free: int = 0
    mem: int = 0
    mem_used: int = 0
    mem_free: int = 0
    """Memory that new pods may get."""
    shares: float = 0.0
    """GPUs in use, parts counted as such."""
    pods: set[str] = msgspec.field(default_factory=set)
    waiting: int = 0
    state: str = ""
    isolation: str = ""
    """Of a node: how it isolates parts of GPUs, "" if it publishes nothing."""


def selected(books: Inspection, filters: Filters) -> Inspection:
    """The nodes, GPUs, pods and gangs that match. Pending pods are on no node, so filters of these leave them out."""
    queue_of = queues(books)

    def matches(namespace: str, uid: str) -> bool:
        return like(namespace, filters.namespace) and like(queue_of.get(uid, ""), filters.queue)

    of_pods, of_nodes = bool(filters.namespace or filters.queue), bool(filters.node or filters.model)
    nodes = [_narrowed(node, filters.model, matches, of_pods) for node in books.nodes if like(node.name, filters.node)]
    kept = tuple(node for node in nodes if node.gpus or node.unplaced or not (of_pods or filters.model))
    there = {node.name for node in kept}
    waiting = () if of_nodes else tuple(pod for pod in books.waiting if matches(pod.namespace, pod.uid))
    gangs = {pod.group for pod in waiting}
    return msgspec.structs.replace(
        books,
        nodes=kept,
        pods=tuple(pod for pod in books.pods if pod.node in there and matches(pod.namespace, pod.uid)),
        waiting=waiting,
        groups=tuple(gang for gang in books.groups if f"{gang.namespace}/{gang.name}" in gangs),
    )


def _narrowed(node: Node, model: str, matches: Callable[[str, str], bool], of_pods: bool) -> Node:
    """The node with the GPUs of the model; with `of_pods`, those on which pods match, and these pods."""
    gpus = (gpu for gpu in node.gpus if like(gpu.model, model))
    if not of_pods:
        return msgspec.structs.replace(node, gpus=tuple(gpus))
    narrowed = (
        msgspec.structs.replace(gpu, pods=tuple(pod for pod in gpu.pods if matches(pod.namespace, pod.uid)))
        for gpu in gpus
    )
    unplaced = tuple(pod for pod in node.unplaced if matches(pod.namespace, pod.uid))
    return msgspec.structs.replace(node, gpus=tuple(gpu for gpu in narrowed if gpu.pods), unplaced=unplaced)


def like(text: str, glob: str) -> bool:
    """Whether the glob matches, whatever the case."""
    return not glob or fnmatchcase(text.lower(), glob.lower())


def queues(books: Inspection) -> dict[str, str]:
    """The queue of each pod, by UID."""
    return {pod.uid: pod.queue for pods in (books.pods, books.waiting) for pod in pods}


def is_offered(node: Node, gpu: Gpu) -> bool:
    """Whether new pods may get the GPU."""
    return not gpu_table.state(node) and gpu_table.health(gpu) == "ok"


def rows(books: Inspection, by: By, sort: Sort = "name") -> list[Row]:
    """The sums, in order."""
    found: dict[str, Row] = {}
    if by in ("namespace", "queue"):
        _of_pods(books, by, found)
    else:
        for node in books.nodes:
            _of_gpus(node, by, found)
    return in_order(found.values(), sort)


def in_order(rows: Iterable[Row], sort: Sort) -> list[Row]:
    """The rows by name, or those with most of something first."""
    keys: dict[Sort, Callable[[Row], float]] = {
        "name": lambda _: 0,
        "free": lambda row: -row.mem_free,
        "used": lambda row: -row.mem_used,
        "pods": lambda row: -len(row.pods),
    }
    return sorted(rows, key=lambda row: (keys[sort](row), row.name))


def _of_gpus(node: Node, by: By, found: dict[str, Row]) -> None:
    """Add the GPUs of a node to its row, or to those of their models."""
    if by != "model":
        row = found.setdefault(node.name, Row(node.name, state=gpu_table.state(node), isolation=node.isolation))
        row.pods.update(ref.uid for ref in node.unplaced)
    for gpu in node.gpus:
        name = (gpu.model or "unknown") if by == "model" else node.name
        row = found.setdefault(name, Row(name))
        used = gpu_table.used(gpu)
        row.models[gpu.model or "unknown"] = None
        row.gpus += not gpu.profile
        row.instances += bool(gpu.profile)
        row.mem += gpu.mem * node.unit_mib * (gpu.health != IN_MIG_MODE)
        row.mem_used += used * node.unit_mib
        row.pods.update(pod.uid for pod in gpu.pods)
        if is_offered(node, gpu):
            idle = not used and not gpu.pods
            row.free += idle and not gpu.profile
            row.instances_free += idle and bool(gpu.profile)
            row.mem_free += max(0, gpu.mem - used) * node.unit_mib


def _of_pods(books: Inspection, by: By, found: dict[str, Row]) -> None:
    """Add the pods to the rows of their namespaces or queues."""
    queue_of = queues(books)

    def row(namespace: str, uid: str) -> Row:
        name = namespace if by == "namespace" else queue_of.get(uid, "") or "-"
        return found.setdefault(name, Row(name))

    for node, gpu, pod in _holders(books):
        each = row(pod.namespace, pod.uid)
        each.shares += _share(node, gpu, pod)
        each.mem_used += pod.mem * node.unit_mib
        each.pods.add(pod.uid)
    for waiter in books.waiting:
        row(waiter.namespace, waiter.uid).waiting += 1


def _holders(books: Inspection) -> Iterator[tuple[Node, Gpu, Holder]]:
    return ((node, gpu, pod) for node in books.nodes for gpu in node.gpus for pod in gpu.pods)


def _share(node: Node, gpu: Gpu, pod: Holder) -> float:
    """What part of a GPU the pod has: the larger of its parts of memory and slices, or that of a MIG instance."""
    if gpu.profile:
        return gpu.slices / max(1, node.slices_per_gpu)
    return 1.0 if pod.whole else max(pod.mem / max(1, gpu.mem), pod.slices / max(1, node.slices_per_gpu))

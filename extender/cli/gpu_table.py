"""A table of GPUs, one row for each, and the pods on them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from extender.cli import console
from extender.wire.answers import Gpu, Holder, Node
from protos.contract import mig

BRANCH = "└ "


def gpus(nodes: Sequence[Node], pods: bool) -> RenderableType:
    """One row for each GPU; with `pods`, followed by one for each pod on it, with the pod's amounts."""
    table = console.columns("NODE", "GPU", "MODEL", "HEALTH", "MEMORY", "", "SLICES", *(() if pods else ("PODS",)))
    for node in nodes:
        label, model = _node_label(node), ""
        if not node.gpus:
            table.add_row(label, "-")
        for gpu, alike in alike_instances(node.gpus):
            count = () if pods else (str(len(gpu.pods) + gpu.other_pods),)
            table.add_row(label, *_gpu_row(node, gpu, _model(gpu, alike, model)), *count)
            label, model = "", gpu.model
            if gpu.makes:
                table.add_row("", "", f"{BRANCH}can make {gpu.makes}")
            for pod in gpu.pods if pods else ():
                slices = "whole" if pod.whole else str(pod.slices)
                table.add_row("", "", _pod_label(pod), "", "", f"{pod.mem} {console.unit(node.unit_mib)}", slices)
            if pods and gpu.other_pods:
                table.add_row("", "", _others(gpu.other_pods))
        for ref in node.unplaced:
            table.add_row("", "?", f"{BRANCH}{ref.namespace}/{ref.name}", "", "", "on some GPU")
        if node.other_unplaced:
            table.add_row("", "?", _others(node.other_unplaced), "", "", "on some GPU")
    return table


def alike_instances(gpus: Sequence[Gpu]) -> Iterator[tuple[Gpu, int]]:
    """The GPUs, each before its MIG instances; of idle instances that are alike the first, with their number."""
    counts: dict[object, int] = {}

    def kind(gpu: Gpu) -> object:
        idle = gpu.profile and not (gpu.pods or gpu.other_pods or gpu.mem_used)
        return (mig.gpu_of(gpu.index), gpu.profile, health(gpu), gpu.mem) if idle else gpu.index

    def place(gpu: Gpu) -> tuple[int, int]:
        parent = mig.gpu_of(gpu.index) if gpu.profile else None
        return (gpu.index, -1) if parent is None else (parent, gpu.index)

    for gpu in gpus:
        counts[kind(gpu)] = counts.get(kind(gpu), 0) + 1
    for gpu in sorted(gpus, key=place):
        if count := counts.pop(kind(gpu), 0):
            yield gpu, count


def _model(gpu: Gpu, alike: int, before: str) -> str:
    """What the table says of the model, if the row before has `before`."""
    if gpu.profile:
        return f"{gpu.profile} ×{alike}" if alike > 1 else gpu.profile
    return gpu.model if gpu.model != before else ""


def state(node: Node) -> str:
    """What keeps new pods with GPUs off the node, "" if nothing does."""
    cordoned = "cordoned" if node.unschedulable else ""
    return ": ".join(note for note in (node.state if node.state != "ready" else "", cordoned, node.problem) if note)


def health(gpu: Gpu) -> str:
    """The health of a GPU; a healthy one may be cordoned."""
    return "cordoned" if gpu.health == "ok" and gpu.cordoned else gpu.health


def used(gpu: Gpu) -> int:
    """The units of a GPU that pods use."""
    return max(gpu.mem, gpu.mem_used) if gpu.whole else gpu.mem_used


def _node_label(node: Node) -> str:
    notes = state(node)
    return f"{node.name} ({notes})" if notes else node.name


def _gpu_row(node: Node, gpu: Gpu, model: str) -> Iterator[RenderableType]:
    yield mig.shown(gpu.index)
    yield model
    yield Text(health(gpu), style="" if health(gpu) == "ok" else "red", no_wrap=True, overflow="ellipsis")
    yield console.bar(used(gpu) / gpu.mem if gpu.mem else 0)
    yield f"{used(gpu)}/{gpu.mem} {console.unit(node.unit_mib)}"
    yield "whole" if gpu.whole else f"{gpu.slices_used}/{gpu.slices if gpu.profile else node.slices_per_gpu}"


def _others(pods: int) -> str:
    """Pods that the user may not see."""
    return f"{BRANCH}{console.count(pods, 'pod')} of other namespaces"


def _pod_label(pod: Holder) -> str:
    note = " (lost, held)" if pod.kept else " (pending, reserved)" if pod.reserved else ""
    return f"{BRANCH}{pod.namespace}/{pod.name}{note}"

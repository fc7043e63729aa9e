"""`gangshare top`: nodes, GPUs, pods, and pending gangs and pods as tables. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from rich.console import RenderableType
from rich.text import Text

from extender.cli import console
from extender.wire.answers import Gang, Gpu, Holder, Inspection, Node, WaitingPod

MIB_PER_GIB = 1024
BRANCH = "└ "


def render(books: Inspection, pods: bool = False) -> list[RenderableType]:
    """The whole page; with `pods`, it lists the pods on each GPU."""
    parts: list[RenderableType] = [gpus(books.nodes, pods), "", totals(books)]
    if books.groups:
        parts += ["", _gangs(books.groups)]
    if singly := waiting(books):
        parts += ["", *singly]
    return parts


def _gangs(gangs: Sequence[Gang]) -> RenderableType:
    table = console.columns("GANG", "PHASE", "FOR", "BOUND", "WHY")
    for gang in sorted(gangs, key=lambda gang: (gang.namespace, gang.name)):
        bound = f"{gang.bound + gang.succeeded}/{gang.present}"
        table.add_row(f"{gang.namespace}/{gang.name}", gang.phase, console.duration(gang.since), bound, _why(gang))
    return table


def waiting(books: Inspection) -> list[RenderableType]:
    """A table of the pending pods without a gang; nothing if there are none."""
    pods = [pod for pod in books.waiting if not pod.group]
    table = console.columns("WAITING", "FOR", "WHY")
    for pod in pods:
        table.add_row(f"{pod.namespace}/{pod.name}", console.duration(pod.since), _why(pod))
    return [table] if pods else []


def _why(pending: Gang | WaitingPod) -> str:
    return f"{pending.sentence}: {pending.numbers}" if pending.numbers else pending.sentence


def gpus(nodes: Sequence[Node], pods: bool) -> RenderableType:
    """One row for each GPU; with `pods`, followed by one for each pod on it, with the pod's amounts."""
    table = console.columns("NODE", "GPU", "MODEL", "HEALTH", "MEMORY", "", "SLICES", *(() if pods else ("PODS",)))
    for node in nodes:
        label, model = _node_label(node), ""
        if not node.gpus:
            table.add_row(label, "-")
        for gpu in node.gpus:
            count = () if pods else (str(len(gpu.pods)),)
            table.add_row(label, *_gpu_row(node, gpu, gpu.model if gpu.model != model else ""), *count)
            label, model = "", gpu.model
            for pod in gpu.pods if pods else ():
                slices = "whole" if pod.whole else str(pod.slices)
                table.add_row("", "", _pod_label(pod), "", "", f"{pod.mem} {console.unit(node.unit_mib)}", slices)
        for ref in node.unplaced:
            table.add_row("", "?", f"{BRANCH}{ref.namespace}/{ref.name}", "", "", "on some GPU")
    return table


def _node_label(node: Node) -> str:
    notes = [note for note in (node.state if node.state != "ready" else "", node.problem) if note]
    return f"{node.name} ({': '.join(notes)})" if notes else node.name


def _gpu_row(node: Node, gpu: Gpu, model: str) -> Iterator[RenderableType]:
    yield str(gpu.index)
    yield model
    yield Text(_health(gpu), style="" if _health(gpu) == "ok" else "red")
    yield console.bar(_used(gpu) / gpu.mem if gpu.mem else 0)
    yield f"{_used(gpu)}/{gpu.mem} {console.unit(node.unit_mib)}"
    yield "whole" if gpu.whole else f"{gpu.slices_used}/{node.slices_per_gpu}"


def _pod_label(pod: Holder) -> str:
    note = " (lost, held)" if pod.kept else " (pending, reserved)" if pod.reserved else ""
    return f"{BRANCH}{pod.namespace}/{pod.name}{note}"


def _health(gpu: Gpu) -> str:
    return "cordoned" if gpu.health == "ok" and gpu.cordoned else gpu.health


def _used(gpu: Gpu) -> int:
    return max(gpu.mem, gpu.mem_used) if gpu.whole else gpu.mem_used


def totals(books: Inspection) -> RenderableType:
    """The sums in two lines, and the problems in a third."""
    every = [(node, gpu) for node in books.nodes for gpu in node.gpus]
    used = sum(_used(gpu) * node.unit_mib for node, gpu in every) // MIB_PER_GIB
    mem = sum(gpu.mem * node.unit_mib for node, gpu in every) // MIB_PER_GIB
    whole = sum(gpu.whole for _, gpu in every)
    shared = sum(not gpu.whole and bool(gpu.pods) for _, gpu in every)
    unhealthy = sum(_health(gpu) != "ok" for _, gpu in every)
    percent = f" ({100 * used // mem} %)" if mem else ""
    lines = [
        f"{console.count(len(books.nodes), 'node')}, {console.count(len(every), 'GPU')}:"
        f" {whole} whole, {shared} shared,"
        f" {len(every) - whole - shared} empty, {unhealthy} not offered; memory {used}/{mem} GiB{percent}",
        f"{console.count(sum(pod.state == 'bound' for pod in books.pods), 'pod')} bound with GPUs,"
        f" {len(books.waiting)} waiting",
    ]
    problems = {name: count for name, count in msgspec.structs.asdict(books.problems).items() if count}
    if problems:
        lines.append("problems: " + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in problems.items()))
    return "\n".join(lines)

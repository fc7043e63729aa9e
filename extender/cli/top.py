"""`gangshare top`: nodes and their GPUs, the pods on them, what waits. Pure: the extender's books in, tables out."""

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
    """The whole page; `pods` also names who is on each GPU."""
    parts: list[RenderableType] = [gpus(books.nodes, pods), "", totals(books)]
    if books.groups:
        parts += ["", groups(books.groups)]
    if singly := waiters(books):
        parts += ["", *singly]
    return parts


def waiters(books: Inspection) -> list[RenderableType]:
    """The single pods that wait, nothing if none does."""
    singly = [pod for pod in books.waiting if not pod.group]
    return [waiting(singly)] if singly else []


def groups(gangs: Sequence[Gang]) -> RenderableType:
    """How far each gang is, and why it waits."""
    table = console.columns("GANG", "PHASE", "FOR", "BOUND", "WHY")
    for gang in sorted(gangs, key=lambda gang: (gang.namespace, gang.name)):
        why = f"{gang.sentence}: {gang.numbers}" if gang.numbers else gang.sentence
        bound = f"{gang.bound + gang.succeeded}/{gang.present}"
        table.add_row(f"{gang.namespace}/{gang.name}", gang.phase, console.duration(gang.since), bound, why)
    return table


def gpus(nodes: Sequence[Node], pods: bool) -> RenderableType:
    """One row for each GPU; below it, if wished, one for each pod on it, with what it takes in the same columns."""
    counted = () if pods else ("PODS",)
    table = console.columns("NODE", "GPU", "MODEL", "HEALTH", "MEMORY", "", "SLICES", *counted)
    for node in nodes:
        label, model = _node_label(node), ""
        if not node.gpus:
            table.add_row(label, "-")
        for gpu in node.gpus:
            number = () if pods else (str(len(gpu.pods)),)
            table.add_row(label, *_row(node, gpu, gpu.model if gpu.model != model else ""), *number)
            label, model = "", gpu.model
            for pod in gpu.pods if pods else ():
                table.add_row("", "", *_holder(node, pod))
        for ref in node.unplaced:
            table.add_row("", "?", f"{BRANCH}{ref.namespace}/{ref.name}", "", "", "on some GPU")
    return table


def _node_label(node: Node) -> str:
    said = [word for word in (node.state if node.state != "ready" else "", node.problem) if word]
    return f"{node.name} ({': '.join(said)})" if said else node.name


def _row(node: Node, gpu: Gpu, model: str) -> Iterator[RenderableType]:
    yield str(gpu.index)
    yield model
    yield Text(_health(gpu), style="" if _health(gpu) == "ok" else "red")
    yield console.bar(_used(gpu) / gpu.mem if gpu.mem else 0)
    yield f"{_used(gpu)}/{gpu.mem} {console.unit(node.unit_mib)}"
    yield "whole" if gpu.whole else f"{gpu.slices_used}/{node.slices_per_gpu}"


def _kept(pod: Holder) -> str:
    return " (lost, held)" if pod.kept else " (pending, reserved)" if pod.reserved else ""


def _holder(node: Node, pod: Holder) -> Iterator[RenderableType]:
    yield f"{BRANCH}{pod.namespace}/{pod.name}{_kept(pod)}"
    yield ""
    yield ""
    yield f"{pod.mem} {console.unit(node.unit_mib)}"
    yield "whole" if pod.whole else str(pod.slices)


def _health(gpu: Gpu) -> str:
    return "cordoned" if gpu.health == "ok" and gpu.cordoned else gpu.health


def _used(gpu: Gpu) -> int:
    return max(gpu.mem, gpu.mem_used) if gpu.whole else gpu.mem_used


def amount(unit_mib: int, slices_per_gpu: int, mem: int, slices: int, whole: bool) -> str:
    """What somebody takes of a GPU, in words."""
    if whole:
        return "whole"
    held = [f"{mem} {console.unit(unit_mib)}"] if mem else []
    return ", ".join([*held, f"{slices}/{slices_per_gpu} slices"] if slices else held) or "nothing"


def totals(books: Inspection) -> RenderableType:
    """The sums in two lines."""
    every = [(node, gpu) for node in books.nodes for gpu in node.gpus]
    used = sum(_used(gpu) * node.unit_mib for node, gpu in every) // MIB_PER_GIB
    mem = sum(gpu.mem * node.unit_mib for node, gpu in every) // MIB_PER_GIB
    whole = sum(gpu.whole for _, gpu in every)
    shared = sum(not gpu.whole and bool(gpu.pods) for _, gpu in every)
    ill = sum(_health(gpu) != "ok" for _, gpu in every)
    percent = f" ({100 * used // mem} %)" if mem else ""
    lines = [
        f"{_count(len(books.nodes), 'node')}, {_count(len(every), 'GPU')}: {whole} whole, {shared} shared,"
        f" {len(every) - whole - shared} empty, {ill} not offered; memory {used}/{mem} GiB{percent}",
        f"{_count(sum(pod.state == 'bound' for pod in books.pods), 'pod')} bound with GPUs,"
        f" {len(books.waiting)} waiting",
    ]
    wrong = {name: count for name, count in msgspec.structs.asdict(books.problems).items() if count}
    if wrong:
        lines.append("problems: " + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in wrong.items()))
    return "\n".join(lines)


def waiting(pods: Sequence[WaitingPod]) -> RenderableType:
    """Who waits, for how long and why."""
    table = console.columns("WAITING", "FOR", "WHY")
    for pod in pods:
        why = f"{pod.sentence}: {pod.numbers}" if pod.numbers else pod.sentence
        table.add_row(f"{pod.namespace}/{pod.name}", console.duration(pod.since), why)
    return table


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

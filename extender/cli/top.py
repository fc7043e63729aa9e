"""`gangshare top`: a summary, then GPUs by node or otherwise, and who waits. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from rich.console import RenderableType

from extender.cli import console, gpu_table, top_rows
from extender.cli.top_rows import By, Row, Sort
from extender.wire.answers import Gang, Inspection, WaitingPod
from protos.contract.isolation import PROMISED

MIB_PER_GIB = 1024
MOST = 10
"""Waiting pods, and gangs, that are shown unless all are wanted."""
DONE = ("Running", "Completed")
"""Phases of gangs that wait for nothing."""


class View(NamedTuple):
    """What the user wants to see."""

    by: By = "node"
    sort: Sort = "name"
    pods: bool = False
    """By GPU, with the pods on each."""
    everything: bool = False
    """All gangs and all pending pods."""


BY_NODE = View()


def render(books: Inspection, view: View = BY_NODE) -> list[RenderableType]:
    """The whole page."""
    parts: list[RenderableType] = [summary(books), "", _table(books, view)]
    gangs = [gang for gang in books.groups if view.everything or gang.phase not in DONE]
    if gangs:
        parts += ["", *_gangs(gangs, view.everything)]
    if singly := waiting(books, everything=view.everything):
        parts += ["", *singly]
    return parts


def summary(books: Inspection) -> str:
    """GPUs and their memory, running pods, who waits for what, and problems: a line for each."""
    every = [(node, gpu) for node in books.nodes for gpu in node.gpus if not gpu.profile]
    total = Row("")
    for row in top_rows.rows(books, "node"):
        for field in ("free", "mem", "mem_free", "instances", "instances_free"):
            setattr(total, field, getattr(total, field) + getattr(row, field))
    whole = sum(gpu.whole for _, gpu in every)
    shared = sum(not gpu.whole and bool(gpu.pods or gpu.mem_used) for _, gpu in every)
    made_of = sum(gpu.on_demand for _, gpu in every)
    not_offered = f"{len(every) - total.free - whole - shared - made_of} not offered"
    if made_of:
        not_offered += f", {made_of} of which MIG instances are made"
    if total.instances and not made_of:
        not_offered += f"; {total.instances_free} of {total.instances} MIG instances free"
    memory = ""
    if total.mem:
        percent = 100 * total.mem_free // total.mem
        memory = f"memory: {_gib(total.mem_free)} of {_gib(total.mem)} GiB free ({percent} %)"
    lines = [
        f"{console.count(len(books.nodes), 'node')}, {console.count(len(every), 'GPU')}: {total.free} wholly free,"
        f" {whole} in use as a whole, {shared} shared, {not_offered}",
        *([memory] if memory else []),
        f"{console.count(sum(pod.state == 'bound' for pod in books.pods), 'pod')} bound with GPUs; {_waiters(books)}",
    ]
    problems = {name: count for name, count in msgspec.structs.asdict(books.problems).items() if count}
    if problems:
        lines.append("problems: " + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in problems.items()))
    return "\n".join(lines)


def _waiters(books: Inspection) -> str:
    """The number of pending pods, and how many wait for each reason."""
    codes = Counter(pod.code for pod in books.waiting).most_common()
    reasons = f": {', '.join(f'{count} {code}' for code, count in codes)}" if codes else ""
    return f"{console.count(len(books.waiting), 'pod')} pending{reasons}"


def _gib(mib: int) -> int:
    return mib // MIB_PER_GIB


def _table(books: Inspection, view: View) -> RenderableType:
    if view.by == "gpu" or view.pods:
        nodes = {node.name: node for node in books.nodes}
        return gpu_table.gpus([nodes[row.name] for row in top_rows.rows(books, "node", view.sort)], view.pods)
    rows = top_rows.rows(books, view.by, view.sort)
    return _of_pods(rows, view.by) if view.by in ("namespace", "queue") else _of_gpus(rows, view.by)


def _of_gpus(rows: Sequence[Row], by: By) -> RenderableType:
    """Nodes or models: a row for each."""
    of_node, proved, cut = by == "node", any(row.isolation for row in rows), any(row.instances for row in rows)
    model, state = (("MODEL",), ("STATE",)) if of_node else ((), ())
    isolation = ("ISOLATION",) if proved else ()
    instances = ("MIG FREE",) if cut else ()
    table = console.columns(by.upper(), *model, "GPUS", "FREE", *instances, "MEMORY", "", "PODS", *state, *isolation)
    for row in rows:
        memory = (console.bar(row.mem_used / row.mem if row.mem else 0), f"{_gib(row.mem_used)}/{_gib(row.mem)} GiB")
        models = (", ".join(row.models) or "-",) if of_node else ()
        states = (row.state or "ready",) if of_node else ()
        level = (row.isolation or str(PROMISED),) if proved else ()
        of_mig = (f"{row.instances_free}/{row.instances}" if row.instances else "-",) if cut else ()
        gpus = str(row.gpus), str(row.free), *of_mig
        table.add_row(row.name, *models, *gpus, *memory, str(len(row.pods)), *states, *level)
    return table


def _of_pods(rows: Sequence[Row], by: By) -> RenderableType:
    """Namespaces or queues: a row for each."""
    table = console.columns(by.upper(), "GPUS IN USE", "MEMORY", "PODS", "PENDING")
    for row in rows:
        memory = f"{_gib(row.mem_used)} GiB"
        table.add_row(row.name, f"{row.shares:.2f}", memory, str(len(row.pods)), str(row.waiting))
    return table


def _gangs(gangs: Sequence[Gang], everything: bool) -> list[RenderableType]:
    table = console.columns("GANG", "PHASE", "FOR", "BOUND", "WHY")
    ordered = sorted(gangs, key=lambda gang: (gang.namespace, gang.name))
    for gang in ordered if everything else ordered[:MOST]:
        bound = f"{gang.bound + gang.succeeded}/{gang.present}"
        table.add_row(f"{gang.namespace}/{gang.name}", gang.phase, console.duration(gang.since), bound, _why(gang))
    return [table, *_rest(len(gangs), everything)]


def waiting(books: Inspection, *, everything: bool = True) -> list[RenderableType]:
    """A table of the pending pods without a gang; nothing if there are none."""
    pods = [pod for pod in books.waiting if not pod.group]
    table = console.columns("WAITING", "FOR", "WHY")
    for pod in pods if everything else pods[:MOST]:
        table.add_row(f"{pod.namespace}/{pod.name}", console.duration(pod.since), _why(pod))
    return [table, *_rest(len(pods), everything)] if pods else []


def _rest(count: int, everything: bool) -> list[RenderableType]:
    """A line that counts those that are not shown."""
    return [] if everything or count <= MOST else [f"and {count - MOST} more: -o wide shows all"]


def _why(pending: Gang | WaitingPod) -> str:
    return f"{pending.sentence}: {pending.numbers}" if pending.numbers else pending.sentence

"""`gangshare top --used` and `gangshare idle`: what containers use of GPUs, beside what they were promised. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
from rich.console import RenderableType
from rich.text import Text

from extender.cli import console, top_rows
from extender.cli.measured import Measured, NodeUse
from extender.cli.top_rows import By, Filters, Sort
from extender.wire.answers import Inspection
from protos.contract import mig
from protos.contract.measured import OUTSIDE

GIB = 2**30
UNKNOWN = "-"
MOST = 10
"""Problems that are shown."""


class View(NamedTuple):
    """What the user wants to see."""

    by: By = "node"
    sort: Sort = "name"


def with_books(measured: Measured, books: Inspection) -> Measured:
    """With the queue of each pod as the extender knows it, and with the nodes that nobody measures."""
    queue_of = top_rows.queues(books)
    uses = (msgspec.structs.replace(use, queue=queue_of.get(use.uid, "") or use.queue) for use in measured.uses)
    without = sorted({node.name for node in books.nodes if node.gpus} - set(measured.nodes))
    told = " ".join(measured.problems)
    missing = [f"node {name} was not measured: no pod gangshare-usage runs there" for name in without]
    more = tuple(each for each in missing if f"{each.partition(':')[0]}:" not in told)
    return msgspec.structs.replace(measured, uses=tuple(uses), problems=(*measured.problems, *more))


def selected(measured: Measured, filters: Filters) -> Measured:
    """The containers that match. What is in no container belongs to no namespace and no queue."""
    like = top_rows.like
    kept = (
        use
        for use in measured.uses
        if like(use.node, filters.node)
        and like(use.model, filters.model)
        and like(use.namespace, filters.namespace)
        and like(use.queue, filters.queue)
    )
    return msgspec.structs.replace(measured, uses=tuple(kept))


def render(measured: Measured, view: View) -> list[RenderableType]:
    """The whole page of `gangshare top --used`."""
    of_pods = view.by in ("namespace", "queue")
    table = _sums(measured.uses, view) if of_pods else _containers(_ordered(measured.uses, view.sort))
    return [summary(measured.uses), "", table, *_problems(measured.problems)]


def summary(uses: Sequence[NodeUse]) -> str:
    """One line about all."""
    holders = [use for use in uses if use.promised]
    over = sum(bool(use.overuse) for use in uses)
    unknown = sum(use.used is None for use in holders)
    used, promised = sum(use.used or 0 for use in holders), sum(use.promised for use in holders)
    return (
        f"{console.count(len(holders), 'container')} with GPUs: {_gib(used)} used of {_gib(promised)} promised; "
        f"{over} over promise" + (f", {unknown} not known" if unknown else "")
    )


def _ordered(uses: Iterable[NodeUse], sort: Sort) -> list[NodeUse]:
    keys: dict[Sort, Callable[[NodeUse], float]] = {
        "name": lambda _: 0,
        "pods": lambda _: 0,
        "free": lambda use: (use.used or 0) - use.promised,
        "used": lambda use: -(use.used or 0),
    }
    return sorted(uses, key=lambda use: (keys[sort](use), use.node, use.gpu, _pod(use), use.container))


def _containers(uses: Iterable[NodeUse]) -> RenderableType:
    table = console.columns("NODE", "GPU", "POD", "CONTAINER", "QUEUE", "USED", "PROMISED", "SM", "IDLE", "LEVEL")
    for use in uses:
        used = Text(_used(use), style="red" if use.overuse else "", no_wrap=True, overflow="ellipsis")
        idle = UNKNOWN if use.idle is None else console.duration(use.idle)
        promised = UNKNOWN if use.container == OUTSIDE else _gib(use.promised)
        row = (use.container, use.queue or UNKNOWN, used, promised, _percent(use.sm), idle, use.level or UNKNOWN)
        table.add_row(use.node, mig.shown(use.gpu), _pod(use), *row)
    return table


def _sums(uses: Iterable[NodeUse], view: View) -> RenderableType:
    """Namespaces or queues: a row for each."""
    found: dict[str, list[NodeUse]] = {}
    for use in uses:
        name = use.namespace if view.by == "namespace" else use.queue
        found.setdefault(name or UNKNOWN, []).append(use)
    table = console.columns(view.by.upper(), "USED", "PROMISED", "SM", "PODS", "OVER")
    for name, own in sorted(found.items()):
        used, promised = sum(use.used or 0 for use in own), sum(use.promised for use in own)
        told = [use.sm for use in own if use.sm is not None]
        sm, pods = _percent(sum(told) if told else None), len({use.uid for use in own if use.uid})
        table.add_row(name, _gib(used), _gib(promised), sm, str(pods), str(sum(bool(use.overuse) for use in own)))
    return table


def idle(measured: Measured, least: float) -> Measured:
    """The containers that hold GPUs and did nothing on them for so many seconds."""
    kept = (use for use in measured.uses if use.promised and use.idle is not None and use.idle >= least)
    return msgspec.structs.replace(measured, uses=tuple(sorted(kept, key=lambda use: -(use.idle or 0))))


def render_idle(measured: Measured, least: float) -> list[RenderableType]:
    """The whole page of `gangshare idle`."""
    uses = measured.uses
    held = _gib(sum(use.promised for use in uses))
    first = f"{console.count(len(uses), 'container')} idle for {console.duration(least)} or longer, holding {held}"
    table = console.columns("POD", "CONTAINER", "NODE", "GPU", "IDLE", "USED", "PROMISED", "QUEUE", "OWNER")
    for use in uses:
        place = (use.node, mig.shown(use.gpu), console.duration(use.idle or 0), _used(use), _gib(use.promised))
        table.add_row(_pod(use), use.container, *place, use.queue or UNKNOWN, use.owner or UNKNOWN)
    shown: list[RenderableType] = ["", table] if uses else []
    return [first, *shown, *_problems(measured.problems)]


def _problems(problems: Sequence[str]) -> list[RenderableType]:
    more = [f"and {len(problems) - MOST} more"] if len(problems) > MOST else []
    return ["", "\n".join([*problems[:MOST], *more])] if problems else []


def _pod(use: NodeUse) -> str:
    return f"{use.namespace}/{use.pod}" if use.pod else UNKNOWN


def _used(use: NodeUse) -> str:
    return UNKNOWN if use.used is None else _gib(use.used)


def _gib(amount: int) -> str:
    return f"{amount / GIB:.1f} GiB"


def _percent(part: float | None) -> str:
    return UNKNOWN if part is None else f"{100 * part:.0f} %"

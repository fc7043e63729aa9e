"""`gangshare classes`: the GpuClasses and models of GPUs that there are. Pure: the extender's books in, tables out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from extender.cli import console
from extender.wire.listings import Classes, GpuClass, MissingClass, Model


def render(found: Classes) -> list[RenderableType]:
    """The whole page."""
    parts: list[RenderableType] = []
    if found.classes or found.missing:
        parts += [classes(found.classes, found.missing), ""]
    return [*parts, models(found.models) if found.models else "no GPUs"]


def classes(known: Sequence[GpuClass], missing: Sequence[MissingClass]) -> RenderableType:
    """One row for each class, those that pods wait for last."""
    table = console.columns("CLASS", "GPUS", "FREE", "NODES", "WAITING", "WHAT FOR")
    for each in known:
        counts = (each.gpus, each.free, each.nodes, each.waiting)
        table.add_row(each.name, *map(str, counts), each.problem or each.description)
    for lacking in missing:
        table.add_row(lacking.name, "-", "-", "-", str(lacking.waiting), "does not exist")
    return table


def models(kinds: Sequence[Model]) -> RenderableType:
    """One row for each kind of GPU."""
    table = console.columns("MODEL", "MEMORY", "CLOCK", "CAPABILITY", "GPUS", "FREE", "NODES")
    for each in kinds:
        memory = f"{each.mem_mib} MiB ({each.mem})" if each.mem_mib else str(each.mem)
        clock = f"{each.clock_mhz} MHz" if each.clock_mhz else "-"
        counts = (each.gpus, each.free, each.nodes)
        table.add_row(each.model or "unknown", memory, clock, each.compute_capability or "-", *map(str, counts))
    return table

"""`gangshare classes`: GpuClasses and GPU models as tables. Pure."""

from __future__ import annotations

from rich.console import RenderableType

from extender.cli import console
from extender.wire.listings import Classes


def render(found: Classes) -> list[RenderableType]:
    """One row for each class, missing classes last; then one row for each GPU model."""
    parts: list[RenderableType] = []
    if found.classes or found.missing:
        table = console.columns("CLASS", "GPUS", "FREE", "NODES", "WAITING", "WHAT FOR")
        for each in found.classes:
            numbers = map(str, (each.gpus, each.free, each.nodes, each.waiting))
            table.add_row(each.name, *numbers, each.problem or each.description)
        for missing in found.missing:
            table.add_row(missing.name, "-", "-", "-", str(missing.waiting), "does not exist")
        parts += [table, ""]
    if not found.models:
        return [*parts, "no GPUs"]
    table = console.columns("MODEL", "MEMORY", "CLOCK", "CAPABILITY", "GPUS", "FREE", "NODES")
    for model in found.models:
        memory = f"{model.mem_mib} MiB ({model.mem})" if model.mem_mib else str(model.mem)
        clock = f"{model.clock_mhz} MHz" if model.clock_mhz else "-"
        numbers = map(str, (model.gpus, model.free, model.nodes))
        name = f"{model.model or 'unknown'} {model.profile}".rstrip()
        table.add_row(name, memory, clock, model.compute_capability or "-", *numbers)
    return [*parts, table]

"""One row per figure: what was measured, the mark, and how far it is from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from rich.console import Console
from rich.table import Table


class Figure(msgspec.Struct, frozen=True):
    """A measured value; `mark` is the budget it is held against, None if it is only reported."""

    name: str
    value: float
    unit: str
    mark: float | None = None
    better: Literal["less", "more"] = "less"

    @property
    def ratio(self) -> float | None:
        """Value over mark."""
        return None if not self.mark else self.value / self.mark

    @property
    def holds(self) -> bool:
        if self.mark is None:
            return True
        return self.value <= self.mark if self.better == "less" else self.value >= self.mark


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share (0..1) of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def show(figures: Sequence[Figure]) -> bool:
    """Print the table; returns whether every mark holds."""
    table = Table(title="gangshare budgets")
    for column in ("figure", "measured", "mark", "ratio", ""):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for figure in figures:
        mark = "" if figure.mark is None else f"{'<' if figure.better == 'less' else '≥'} {figure.mark:g} {figure.unit}"
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        verdict = "" if figure.mark is None else ("holds" if figure.holds else "MISSED")
        table.add_row(figure.name, f"{figure.value:.4g} {figure.unit}", mark, ratio, verdict)
    Console(width=130).print(table)
    return all(figure.holds for figure in figures)

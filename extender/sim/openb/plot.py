"""The curve of a replay beside the published ones. Needs matplotlib, the optional extra `plot`."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from extender.sim.openb.replay import Row

PUBLISHED = resources.files("extender.sim.openb") / "published.csv"
FORMATS = (".png", ".svg")
FIRST_SHOWN = 85
"""Arrived %, below which all curves are much the same."""
INCHES = (9.0, 5.0)
DPI = 150


class PlotError(Exception):
    """The plot cannot be drawn; says what to do about it."""


def published() -> dict[str, list[Row]]:
    """The published curves of the default list by policy: means of ten seeds, one row per whole % of arrived demand."""
    curves: dict[str, list[Row]] = {}
    with PUBLISHED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            means = float(row["alloc_pct_mean"]), float(row["frag_pct_of_idle_mean"])
            curves.setdefault(row["policy"], []).append(Row(int(row["arrived_pct"]), *means))
    return curves


def check(path: Path) -> None:
    """Raise PlotError, before the replay, if no plot can be written to this file."""
    if path.suffix.lower() not in FORMATS:
        raise PlotError(f"the plot's file is {str(path)!r}: expected a name that ends in {' or '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise PlotError(f"the plot's file is {str(path)!r}: expected one in a folder that exists")
    try:
        import matplotlib  # noqa: F401  # only whether it is installed
    except ImportError as error:
        raise PlotError("a plot needs matplotlib: pip install 'gangshare[plot]'") from error


def draw(path: Path, label: str, rows: Sequence[Row]) -> None:
    """Draw this curve and the published ones into a PNG or SVG file; raises PlotError."""
    import matplotlib
    from matplotlib.figure import Figure

    curves = {label: rows, **{f"{name}, published": curve for name, curve in published().items()}}
    last = rows[-1].arrived
    first = FIRST_SHOWN if last > FIRST_SHOWN else 0
    shown = {name: [row for row in curve if first <= row.arrived <= last] for name, curve in curves.items()}
    with matplotlib.rc_context({"svg.hashsalt": "gangshare"}):
        figure = Figure(figsize=INCHES, layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        for i, (name, curve) in enumerate(sorted(shown.items(), key=lambda shown: -shown[1][-1].allocated)):
            style: dict[str, Any] = {"linestyle": "--", "linewidth": 1.2, "color": f"C{i}"}
            if name == label:
                style = {"linestyle": "-", "linewidth": 2.0, "color": "black"}
            arrived = [row.arrived for row in curve]
            above.plot(arrived, [row.allocated for row in curve], label=name, **style)
            below.plot(arrived, [row.fragments for row in curve], **style)
        above.set_ylabel("allocated GPU, % of capacity")
        below.set_ylabel("fragments,\n% of idle GPU")
        below.set_xlabel("arrived GPU demand, % of capacity")
        above.margins(x=0)
        figure.legend(loc="outside right upper", fontsize="small", frameon=False)
        try:
            figure.savefig(path, dpi=DPI, metadata={"Date": None} if path.suffix.lower() == ".svg" else {})
        except OSError as error:
            raise PlotError(f"cannot write {path}: {error.strerror}") from error

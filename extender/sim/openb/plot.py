"""The curve of a replay drawn against the published ones. Needs matplotlib, which is the optional extra `plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from extender.sim.openb.replay import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg")
FROM = 85
"""Arrived %, below which all curves are much the same."""
INCHES = (9.0, 5.0)
DPI = 150


class Style(NamedTuple):
    """Of a line."""

    dashes: str
    width: float
    colour: str


class PlotError(Exception):
    """The picture cannot be drawn, with what to do about it."""


def check(path: Path) -> None:
    """Raise PlotError if a picture could not be drawn into this file: said before the replay, not after it."""
    if path.suffix.lower() not in FORMATS:
        raise PlotError(f"the plot's file is {str(path)!r}: expected a name that ends in {' or '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise PlotError(f"the plot's file is {str(path)!r}: expected one in a folder that exists")
    try:
        import matplotlib  # noqa: F401  # whether it is there
    except ImportError as error:
        raise PlotError("a plot needs matplotlib: pip install 'gangshare[plot]'") from error


def draw(path: Path, label: str, rows: Sequence[Row], published: Mapping[str, Sequence[Row]]) -> None:
    """Write the picture, PNG or SVG by the file's name; raises PlotError."""
    import matplotlib
    from matplotlib.figure import Figure

    curves = {label: rows, **{f"{name}, published": curve for name, curve in published.items()}}
    last = rows[-1].arrived
    first = FROM if last > FROM else 0
    shown = {name: [row for row in curve if first <= row.arrived <= last] for name, curve in curves.items()}
    with matplotlib.rc_context({"svg.hashsalt": "gangshare"}):
        figure = Figure(figsize=INCHES, layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        for i, (name, curve) in enumerate(sorted(shown.items(), key=lambda shown: -shown[1][-1].allocated)):
            _lines(above, below, name, curve, Style("-", 2.0, "black") if name == label else Style("--", 1.2, f"C{i}"))
        above.set_ylabel("allocated GPU, % of capacity")
        below.set_ylabel("fragments,\n% of idle GPU")
        below.set_xlabel("arrived GPU demand, % of capacity")
        above.margins(x=0)
        figure.legend(loc="outside right upper", fontsize="small", frameon=False)
        try:
            figure.savefig(path, dpi=DPI, metadata={"Date": None} if path.suffix.lower() == ".svg" else {})
        except OSError as error:
            raise PlotError(f"cannot write {path}: {error.strerror}") from error


def _lines(above: Axes, below: Axes, label: str, rows: Sequence[Row], style: Style) -> None:
    arrived = [row.arrived for row in rows]
    dashes, width, colour = style
    allocated = [row.allocated for row in rows]
    above.plot(arrived, allocated, label=label, linestyle=dashes, linewidth=width, color=colour)
    below.plot(arrived, [row.fragments for row in rows], linestyle=dashes, linewidth=width, color=colour)

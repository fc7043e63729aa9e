"""Prints with colours on a terminal, and plain text elsewhere."""

from __future__ import annotations

import io
import sys

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

WIDTH = 240
"""Columns of the widest table. Narrower terminals wrap its lines themselves, as with kubectl."""
FULL, EMPTY = "█", "░"


def show(*parts: RenderableType) -> None:
    """Print to standard output, with colours if it is a terminal."""
    sys.stdout.write(page(*parts, colours=sys.stdout.isatty()))
    sys.stdout.flush()


def page(*parts: RenderableType, colours: bool = False) -> str:
    """The text that `show` prints. Strings stay as they are, without blanks at the ends of lines."""
    written = io.StringIO()
    console = Console(file=written, width=WIDTH, force_terminal=colours, highlight=False, markup=False, emoji=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))
    return "".join(f"{line.rstrip()}\n" for line in written.getvalue().splitlines())


def columns(*headings: str) -> Table:
    """A table without lines, as kubectl prints it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for heading in headings:
        table.add_column(heading, no_wrap=heading != "WHY")
    return table


def bar(part: float, width: int = 6) -> Text:
    """A share from 0 to 1 (more is overuse) as a bar. A cell that is half full is drawn as full."""
    filled = min(width, round(part * width)) or int(part > 0)
    style = "red" if part > 1 else "yellow" if part == 1 else "green"
    return Text(FULL * filled, style=style) + Text(EMPTY * (width - filled), style="dim")


def duration(seconds: float) -> str:
    """Seconds as kubectl prints ages: 12s, 3m5s, 2h10m, 4d2h."""
    whole = int(max(0.0, seconds))
    for large, small, size, rest in (("d", "h", 86400, 3600), ("h", "m", 3600, 60), ("m", "s", 60, 1)):
        if whole >= size:
            return f"{whole // size}{large}" + (f"{whole % size // rest}{small}" if whole % size // rest else "")
    return f"{whole}s"


def count(number: int, noun: str) -> str:
    """A number of things: `1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def unit(mib: int) -> str:
    """The name of a memory unit of this number of MiB."""
    return {1: "MiB", 1024: "GiB"}.get(mib, f"×{mib}MiB")

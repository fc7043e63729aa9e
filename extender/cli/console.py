"""Printing: rich on a terminal; plain text without colours, wrapping or trailing blanks elsewhere."""

from __future__ import annotations

import io
import sys

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 240
FULL, EMPTY = "█", "░"


def show(*parts: RenderableType) -> None:
    """Print to standard output."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(*parts, sep="\n")
    else:
        sys.stdout.write(plain(*parts))
        sys.stdout.flush()


def plain(*parts: RenderableType) -> str:
    """What `show` prints where standard output is no terminal."""
    page = io.StringIO()
    Console(file=page, width=PLAIN_WIDTH, highlight=False).print(*parts, sep="\n")
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def columns(*headings: str) -> Table:
    """A table without lines, as kubectl prints them."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=heading != "WHY")
    return table


def bar(part: float, width: int = 10) -> Text:
    """A share from 0 to 1 (more is over-use) as a bar; a cell is filled as soon as it is half full."""
    filled = min(width, round(part * width)) or int(part > 0)
    style = "red" if part > 1 else "yellow" if part == 1 else "green"
    return Text(FULL * filled, style=style) + Text(EMPTY * (width - filled), style="dim")


def duration(seconds: float) -> str:
    """Seconds as kubectl writes ages: 12s, 3m5s, 2h10m, 4d2h."""
    whole = int(max(0.0, seconds))
    for large, small, size, rest in (("d", "h", 86400, 3600), ("h", "m", 3600, 60), ("m", "s", 60, 1)):
        if whole >= size:
            return f"{whole // size}{large}" + (f"{whole % size // rest}{small}" if whole % size // rest else "")
    return f"{whole}s"


def unit(mib: int) -> str:
    """The name of a memory unit of that many MiB."""
    return {1: "MiB", 1024: "GiB"}.get(mib, f"×{mib}MiB")

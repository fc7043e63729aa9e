"""Prints with colours on a terminal, and plain text elsewhere."""

from __future__ import annotations

import io
import shutil
import sys
from functools import lru_cache
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from protos.contract.printable import brief, printable

UNLIMITED = 100_000
"""Columns of a page that is not cut: in a pipe, a file, or on request."""
WARNING = 256
"""Characters of a warning that are shown."""
FULL, EMPTY = "█", "░"


class Columns(Table):
    """A table without lines, as kubectl prints it. If it is too wide, its widest columns are cut."""

    def __init__(self, *headings: str) -> None:
        super().__init__(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
        for heading in headings:
            self.add_column(Text(heading, no_wrap=True, overflow="ellipsis"))

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row. Only the last cell of a row may take several lines, if its column is called WHY."""
        last = len(self.columns) - 1 if str(self.columns[-1].header) == "WHY" else -1
        shown = [
            Text(cell, no_wrap=True, overflow="ellipsis") if isinstance(cell, str) and number != last else cell
            for number, cell in enumerate(cells)
        ]
        super().add_row(*shown, **options)


def show(*parts: RenderableType, wide: bool = False) -> None:
    """Print to standard output; on a terminal with colours, and as wide as that unless `wide`."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal and not wide else UNLIMITED
    sys.stdout.write(page(*parts, colours=terminal, width=width))
    sys.stdout.flush()


def page(*parts: RenderableType, colours: bool = False, width: int = UNLIMITED) -> str:
    """The text that `show` prints. Strings stay as they are, without blanks at the ends of lines."""
    written = io.StringIO()
    console = Console(file=written, width=width, force_terminal=colours, highlight=False, markup=False, emoji=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))
    return "".join(f"{line.rstrip()}\n" for line in written.getvalue().splitlines())


@lru_cache(maxsize=64)
def warn(text: str) -> None:
    """Print a warning of the API server to standard error, once."""
    sys.stderr.write(f"warning: {printable(brief(text, WARNING))}\n")


def columns(*headings: str) -> Columns:
    """An empty table with these headings."""
    return Columns(*headings)


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

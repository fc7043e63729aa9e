"""The demo's progress: one changing line on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from typing import NamedTuple

from rich.console import Console
from rich.live import Live
from rich.text import Text

INTERVAL_S = 3.0
"""Seconds between two lines if standard output is not a terminal."""


class Count(NamedTuple):
    """Numbers of pods, and of GPUs in use."""

    arrived: int
    of: int
    running: int
    waiting: int
    left: int
    gpus_held: int

    def line(self) -> str:
        return (
            f"arrived {self.arrived:3}/{self.of}   running {self.running:3}   waiting {self.waiting:3}"
            f"   left {self.left:3}   GPUs in use {self.gpus_held}"
        )


class Progress(Live):
    """Shows counts while it is entered."""

    def __init__(self) -> None:
        super().__init__(console=Console(highlight=False), auto_refresh=False, transient=True)
        self._last_line, self._next = "", 0.0

    def show(self, count: Count, last: bool = False) -> None:
        """Show the count; without a terminal only the last one and one in each interval."""
        line = count.line()
        if self.console.is_terminal and not last:
            self.update(Text(line), refresh=True)
        elif line != self._last_line and (last or time.monotonic() >= self._next):
            self.console.print(line, markup=False, soft_wrap=True)
            self._last_line, self._next = line, time.monotonic() + INTERVAL_S

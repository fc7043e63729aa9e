"""The progress of a long command: one changing line on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

INTERVAL_S = 3.0
"""Seconds between two lines where the output is not a terminal."""
REFRESH_S = 0.05
"""Seconds between two changes of the line on a terminal."""


class Progress:
    """Shows a line while it is entered. On a terminal the line is gone afterwards."""

    def __init__(self, stderr: bool = False, delay_s: float = 0.0) -> None:
        """Work that is done within the delay shows nothing."""
        self._console = Console(stderr=stderr, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._last_line, self._next = "", time.monotonic() + delay_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, line: str, last: bool = False) -> None:
        """Show the line: changing on a terminal; elsewhere, and if it is the last one, printed."""
        if line == self._last_line or (time.monotonic() < self._next and not last):
            return
        changing = self._console.is_terminal and not last
        self._last_line, self._next = line, time.monotonic() + (REFRESH_S if changing else INTERVAL_S)
        if changing:
            self._live.start()
            self._live.update(Text(line), refresh=True)
        else:
            self._console.print(line, markup=False, soft_wrap=True)

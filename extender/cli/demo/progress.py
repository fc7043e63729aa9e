"""How far the demo is: one line that changes on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import NamedTuple, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

PLAIN_S = 3.0
"""Seconds between two lines where standard output is no terminal."""


class Count(NamedTuple):
    """Pods by what became of them so far, and GPUs that somebody holds."""

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


class Progress:
    """Shows counts as they come; what is printed by `say` stays above."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._shown = ""
        self._next = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def show(self, count: Count, last: bool = False) -> None:
        """The count, now or, where lines stay, when one is due."""
        line = count.line()
        if self._console.is_terminal and not last:
            self._live.update(Text(line), refresh=True)
        elif line != self._shown and (last or time.monotonic() >= self._next):
            self.say(line)
            self._shown, self._next = line, time.monotonic() + PLAIN_S

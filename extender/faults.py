"""Errors of ours that the shell catches: each is counted, a few a second are logged with their traceback."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType

import structlog

from protos.logs import trace

MOST_TOLD = 5
"""Logged in a second; the others are only counted."""

log = structlog.get_logger(__name__)


class Over:
    """Catches what goes wrong inside."""

    def __init__(self, faults: Faults, place: str, about: str) -> None:
        self._faults, self._place, self._about = faults, place, about
        self.failed = False

    def __enter__(self) -> Over:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            return False
        self.failed = True
        self._faults.caught(self._place, self._about, error)
        return True


class Faults:
    """All of them. A MemoryError, and whatever is no Exception, goes through."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.counted: Counter[str] = Counter()
        """By place."""
        self._second, self._told = 0.0, 0

    def over(self, place: str, about: str = "") -> Over:
        """Work that ends nothing but itself; `about` names the object for the log."""
        return Over(self, place, about)

    def caught(self, place: str, about: str, error: Exception) -> None:
        """One happened."""
        self.counted[place] += 1
        now = self._clock()
        if now >= self._second + 1.0:
            self._second, self._told = now, 0
        self._told += 1
        if self._told <= MOST_TOLD:
            log.error("fault", place=place, about=about, traceback=trace(error))

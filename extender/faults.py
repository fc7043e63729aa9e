"""Catches internal errors in the shell: all are counted, a few a second are logged with their traceback."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType

import structlog

from protos.logs import trace

MOST_LOGGED = 5
"""Errors logged within a second; the others are only counted."""

log = structlog.get_logger(__name__)


class Over:
    """Catches an Exception of the work inside. A MemoryError, and whatever is no Exception, passes through."""

    def __init__(self, faults: Faults, place: str, about: str) -> None:
        self._faults, self._place, self._about = faults, place, about
        self.failed = False

    def __enter__(self) -> Over:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            return False
        self.failed = True
        self._faults.caught(self._place, self._about, error)
        return True


class Faults:
    """The internal errors of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.counted: Counter[str] = Counter()
        """By place."""
        self._second, self._logged = 0.0, 0

    def over(self, place: str, about: str = "") -> Over:
        """Guards one piece of work, so that its error ends nothing else; `about` names the object for the log."""
        return Over(self, place, about)

    def caught(self, place: str, about: str, error: Exception) -> None:
        self.counted[place] += 1
        now = self._clock()
        if now >= self._second + 1.0:
            self._second, self._logged = now, 0
        self._logged += 1
        if self._logged <= MOST_LOGGED:
            log.error("fault", place=place, about=about, traceback=trace(error))

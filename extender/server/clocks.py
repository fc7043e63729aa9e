"""Compares the wall clock with the monotonic one: it may be set, or the machine suspended."""

from __future__ import annotations

import time
from collections.abc import Callable

STEP_S = 1.0
"""The least difference in seconds that counts: the API's timestamps have whole seconds."""


class Clocks:
    """How far the wall clock (seconds since 1970) is ahead of the monotonic clock."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._monotonic, self._wall = monotonic, wall
        self.ahead = wall() - monotonic()
        """In seconds, without a change that does not count yet."""

    def moved(self) -> float:
        """By how many seconds `ahead` has changed since the last call; 0.0 below `STEP_S`."""
        now = self._wall() - self._monotonic()
        by = now - self.ahead
        if abs(by) < STEP_S:
            return 0.0
        self.ahead = now
        return by

"""The wall clock beside the monotonic one: whether it was set, or the machine was suspended."""

from __future__ import annotations

import time
from collections.abc import Callable

STEP_S = 1.0
"""Seconds by which they must have moved apart to be told: the API's timestamps have whole seconds."""


class Clocks:
    """Measures how far the wall clock is ahead."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        """`wall` in s since 1970."""
        self._monotonic, self._wall = monotonic, wall
        self.ahead = self._measured()
        """By so many seconds, as it was told last."""

    def moved(self) -> float:
        """By how much more it is ahead than was told last; 0.0 as long as that is less than `STEP_S`."""
        now = self._measured()
        by = now - self.ahead
        if abs(by) < STEP_S:
            return 0.0
        self.ahead = now
        return by

    def _measured(self) -> float:
        return self._wall() - self._monotonic()

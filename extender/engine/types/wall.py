"""Converts between the wall clock of the API's timestamps and the monotonic clock of the engine.

The shell measures their distance at the start and whenever it changes: the wall clock can be set, and the monotonic
clock stops while the machine is suspended.
"""

from __future__ import annotations

from protos.contract.timestamps import epoch_seconds, timestamp


class Wall:
    """Converts times of one clock to the other."""

    def __init__(self, ahead: float) -> None:
        """`ahead`: the wall clock (seconds since 1970) at zero of the monotonic clock."""
        self._ahead = ahead

    def move(self, by: float) -> None:
        """The wall clock has moved ahead by these seconds."""
        self._ahead += by

    def moment(self, text: str) -> float:
        """A timestamp of the API on the monotonic clock; raises ValueError if it is malformed."""
        return epoch_seconds(text) - self._ahead

    def clock(self, text: str | None, otherwise: float) -> float:
        """A timestamp of the API on the monotonic clock; `otherwise` if it is missing or malformed."""
        try:
            return self.moment(text) if text else otherwise
        except ValueError:
            return otherwise

    def of(self, epoch: float) -> float:
        """Seconds since 1970 on the monotonic clock."""
        return epoch - self._ahead

    def text(self, moment: float) -> str:
        """A moment of the monotonic clock as a timestamp of the API."""
        return timestamp(self._ahead + moment)

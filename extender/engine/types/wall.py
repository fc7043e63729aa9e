"""The wall clock, by which the API tells times, beside the monotonic clock, by which the engine counts.

The shell measures how far they are apart, at the start and whenever that changes: the wall clock may be set, and the
monotonic one stands still while the machine is suspended.
"""

from __future__ import annotations

from protos.contract.timestamps import epoch_seconds, timestamp


class Wall:
    """Translates times of the one to the other."""

    def __init__(self, ahead: float) -> None:
        """`ahead`: what the wall clock (s since 1970) showed when the monotonic clock showed zero."""
        self._ahead = ahead

    def move(self, by: float) -> None:
        """The wall clock shows so many seconds more than it did."""
        self._ahead += by

    def moment(self, told: str) -> float:
        """A timestamp of the API on the monotonic clock; raises ValueError if it is none."""
        return epoch_seconds(told) - self._ahead

    def clock(self, told: str | None, otherwise: float) -> float:
        """The same, be it a moment that is yet to come; `otherwise` if nothing is told, or nothing that can be read."""
        try:
            return self.moment(told) if told else otherwise
        except ValueError:
            return otherwise

    def of(self, epoch: float) -> float:
        """The same of seconds since 1970."""
        return epoch - self._ahead

    def text(self, moment: float) -> str:
        """A moment of the monotonic clock as the API writes it."""
        return timestamp(self._ahead + moment)

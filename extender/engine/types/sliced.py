"""Long work in short slices, so that it does not block other work."""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, TypeVar

T = TypeVar("T")

SLICE = 300
"""Work of one slice, in units of `attempt.LOOK`: about 0.5 ms."""


class Sliced(Generic[T]):
    """Runs a generator that yields the cost of each step and returns the result."""

    def __init__(self, work: Generator[int, None, T]) -> None:
        self._work = work
        self.done = False
        self.outcome: T | None = None
        """None until the work is done."""

    def advance(self, limit: int = SLICE) -> bool:
        """Do a slice of the work; returns whether the work is done."""
        try:
            while limit > 0 and not self.done:
                limit -= next(self._work)
        except StopIteration as ended:
            self.done, self.outcome = True, ended.value
        return self.done

    def drop(self) -> None:
        """Abandon the work. Closing the generator frees its memory at once despite reference cycles."""
        self._work.close()

    def whole(self) -> Generator[int, None, T]:
        """Do the whole work as a step of other work."""
        return (yield from self._work)

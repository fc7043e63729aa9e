"""Work that goes on between other things: in slices, none of which holds them up for long."""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, TypeVar

T = TypeVar("T")

SLICE = 300
"""Work of one slice, in `attempt.LOOK`s: together some 0.5 ms."""


class Sliced(Generic[T]):
    """A generator that yields what each part of the work took, and returns what came of all."""

    def __init__(self, work: Generator[int, None, T]) -> None:
        self._work = work
        self.done = False
        self.outcome: T | None = None
        """None while it is being worked on."""

    def advance(self, limit: int = SLICE) -> bool:
        """Do a slice of the work; returns whether all of it is done."""
        try:
            while limit > 0 and not self.done:
                limit -= next(self._work)
        except StopIteration as ended:
            self.done, self.outcome = True, ended.value
        return self.done

    def drop(self) -> None:
        """Give it up: what it holds is freed now, though the work and what it is done for name each other."""
        self._work.close()

    def whole(self) -> Generator[int, None, T]:
        """All of it, as a part of other work."""
        return (yield from self._work)

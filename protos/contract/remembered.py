"""What was worked out for values that others write, remembered within a bound on entries and on their weight.

Two generations: whatever is asked for moves to the young one. When that is full the old one is dropped, and the young
one takes its place. So a hit costs a look into a table, what is in use stays, and what is dropped at once is little.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Answers by what they were worked out for. No answer is None."""

    __slots__ = ("_most", "_most_weight", "_old", "_weigh", "_weight", "_young")

    def __init__(self, most: int, most_weight: int = 0, weigh: Callable[[K], int] = lambda _: 0) -> None:
        """At most `most` entries, and at most `most_weight` by `weigh` of their keys (0: whatever that is).

        A generation has half of each. What weighs more than that alone is worked out anew each time.
        """
        self._most, self._most_weight, self._weigh = most // 2, most_weight // 2, weigh
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._weight = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def limit(self, most: int) -> None:
        """Keep at most so many entries from now on; what is more goes as others come."""
        self._most = most // 2

    def get(self, key: K) -> V | None:
        """The answer, None if it is not known."""
        found = self._young.get(key)
        if found is None and self._old:
            found = self._old.pop(key, None)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: K, answer: V) -> V:
        """Remember the answer; returns it."""
        weight = self._weigh(key)
        if self._most_weight and weight > self._most_weight:
            return answer
        if len(self._young) >= self._most or (self._most_weight and self._weight + weight > self._most_weight):
            self._old, self._young, self._weight = self._young, {}, 0
        self._young[key] = answer
        self._weight += weight
        return answer

    def clear(self) -> None:
        """Forget all."""
        self._young, self._old, self._weight = {}, {}, 0

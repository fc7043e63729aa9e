"""A cache of results for values that users write, bounded by the number and the weight of its entries.

It has two generations. A hit moves its entry to the young generation. When the young generation is full it becomes the
old one, and the former old one is dropped. So a hit costs one lookup, and entries in use stay.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Results by their keys. No result is None."""

    __slots__ = ("_most", "_most_weight", "_old", "_weigh", "_weight", "_young")

    def __init__(self, most: int, most_weight: int = 0, weigh: Callable[[K], int] = lambda _: 0) -> None:
        """At most `most` entries, whose keys weigh at most `most_weight` by `weigh` (0: unlimited).

        Each generation has half of both. An entry that is heavier than one generation is never stored.
        """
        self._most, self._most_weight, self._weigh = most // 2, most_weight // 2, weigh
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._weight = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def limit(self, most: int) -> None:
        """Set the maximal number of entries; surplus entries go as new ones come."""
        self._most = most // 2

    def get(self, key: K) -> V | None:
        """The result, None if it is not stored."""
        result = self._young.get(key)
        if result is None and self._old:
            result = self._old.pop(key, None)
            if result is not None:
                self.put(key, result)
        return result

    def put(self, key: K, result: V) -> V:
        """Store the result, and return it."""
        weight = self._weigh(key)
        if self._most_weight and weight > self._most_weight:
            return result
        if len(self._young) >= self._most or (self._most_weight and self._weight + weight > self._most_weight):
            self._old, self._young, self._weight = self._young, {}, 0
        self._young[key] = result
        self._weight += weight
        return result

    def clear(self) -> None:
        self._young, self._old, self._weight = {}, {}, 0

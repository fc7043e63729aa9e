"""Sums of amounts by resource: the requests of a node's pods, the usage of a queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")


def add(held: dict[K, int], amounts: Iterable[tuple[K, int]], sign: int = 1) -> None:
    """Add amounts to `held`, or subtract them (`sign` -1). A resource whose sum is zero is removed."""
    for resource, amount in amounts:
        total = held.get(resource, 0) + sign * amount
        if total:
            held[resource] = total
        else:
            held.pop(resource, None)

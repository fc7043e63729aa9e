"""Amounts by resource that are added up: what a node's pods ask, what a queue has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")


def add(held: dict[K, int], amounts: Iterable[tuple[K, int]], sign: int = 1) -> None:
    """Add amounts by resource to others, or (-1) take them away. No resource is kept of which there is nothing."""
    for resource, amount in amounts:
        total = held.get(resource, 0) + sign * amount
        if total:
            held[resource] = total
        else:
            held.pop(resource, None)

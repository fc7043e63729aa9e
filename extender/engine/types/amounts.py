"""Amounts by resource, their sums and words: the requests of a node's pods, the usage of a queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from protos.contract.remembered import Remembered

K = TypeVar("K")
INTERNED, WEIGHT = 8192, 2**22
"""Tuples of amounts kept by `interned`, and the bytes of all of them."""
PAIR = 64
"""Bytes of a pair beside its name."""


def add(held: dict[K, int], amounts: Iterable[tuple[K, int]], sign: int = 1) -> None:
    """Add amounts to `held`, or subtract them (`sign` -1). A resource whose sum is zero is removed."""
    for resource, amount in amounts:
        total = held.get(resource, 0) + sign * amount
        if total:
            held[resource] = total
        else:
            held.pop(resource, None)


def interned(amounts: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """One object for equal amounts: pods come from few templates."""
    return _interned.get(amounts) or _interned.put(amounts, amounts)


def _bytes(amounts: tuple[tuple[str, int], ...]) -> int:
    return sum(PAIR + len(name) for name, _ in amounts)


_interned: Remembered[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]] = Remembered(INTERNED, WEIGHT, _bytes)


def in_words(amounts: Iterable[tuple[str, int]]) -> str:
    """Amounts in words, without the pod slot: `1.5 cpu and 8Gi memory`, `2 rdma/hca`."""
    return " and ".join(_amount(*each) for each in amounts if each[0] != "pods")


def _amount(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount / 1000:g} cpu"
    if "/" in resource:
        return f"{amount} {resource}"
    power, suffix = (30, "Gi") if amount >= 2**30 else (20, "Mi")
    return f"{round(amount / 2**power, 1):g}{suffix} {resource}"

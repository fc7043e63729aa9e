"""The shape of a pod: all that its placement depends on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from protos.contract.ask import PodAsk
from protos.contract.remembered import Remembered

REMEMBERED, WEIGHT = 8192, 2**21
"""Shapes kept, and the lengths of their selections and requests in all."""

Requests = tuple[tuple[str, int], ...]
"""Amounts by resource."""


class Shape(NamedTuple):
    """The requests of a pod, rounded: pods of equal shape share one ranking of nodes."""

    ask: PodAsk | None
    cpu: int
    """Thousandths of a core, rounded up by at most a sixteenth."""
    memory: int
    """Bytes, rounded in the same way."""


def shape(ask: PodAsk | None, requests: Sequence[tuple[str, int]]) -> Shape:
    """The shape of a pod with these GPU and in-tree requests: one object for equal ones."""
    asked = ask, tuple(requests)
    return _shapes.get(asked) or _shapes.put(asked, _made(*asked))


def _made(ask: PodAsk | None, requests: Requests) -> Shape:
    amounts = dict(requests)
    return Shape(ask, _rounded(amounts.get("cpu", 0)), _rounded(amounts.get("memory", 0)))


def _rounded(amount: int) -> int:
    step = 1 << max(0, amount.bit_length() - 5)
    return -(-amount // step) * step


@lru_cache(maxsize=1024)
def of_model(ask: PodAsk, model: str) -> PodAsk:
    """The ask, for GPUs of this model only."""
    return msgspec.structs.replace(ask, selection=msgspec.structs.replace(ask.selection, model=model))


def _length(asked: tuple[PodAsk | None, Requests]) -> int:
    return len(asked[1]) + (asked[0].selection.length if asked[0] is not None else 0)


_shapes: Remembered[tuple[PodAsk | None, Requests], Shape] = Remembered(REMEMBERED, WEIGHT, _length)

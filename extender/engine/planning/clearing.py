"""Which pods must leave a node so that one more pod fits there: minimal sets, smallest first.

If there are few sets, all are tried. If there are many, some are found by letting all pods leave and putting back, one
after the other, each pod that need not leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from math import comb

from extender.engine.planning.movable_pods import Movable
from extender.engine.planning.sketch import Sketch

ALL = 400
"""Most sets of one size for which all are tried."""
Leaving = tuple[Movable, ...]
Draw = Callable[[Iterable[Movable]], Sketch | None]
"""The node without these pods and with the new one, None if it does not fit."""


def clearings(movable: Sequence[Movable], most: int, draw: Draw) -> Iterator[tuple[Leaving, Sketch] | None]:
    """Sets of at most `most` pods, and the node without them; None for each try that finds nothing."""
    if not movable or draw(movable) is None:
        yield None
        return
    found: list[frozenset[str]] = []
    for size in range(1, min(most, len(movable)) + 1):
        if comb(len(movable), size) > ALL:
            yield from _by_putting_back(movable, most, draw, found)
            return
        for leaving in sorted(combinations(movable, size), key=cost):
            uids = _uids(leaving)
            if any(smaller <= uids for smaller in found):
                continue
            sketch = draw(leaving)
            if sketch is not None:
                found.append(uids)
            yield (leaving, sketch) if sketch is not None else None


def _by_putting_back(
    movable: Sequence[Movable], most: int, draw: Draw, found: list[frozenset[str]]
) -> Iterator[tuple[Leaving, Sketch] | None]:
    for order in _orders(movable):
        leaving = list(order)
        for pod in order:
            rest = [other for other in leaving if other is not pod]
            if draw(rest) is not None:
                leaving = rest
            yield None
        uids = _uids(leaving)
        sketch = draw(leaving) if len(leaving) <= most and not any(smaller <= uids for smaller in found) else None
        found.append(uids)
        yield (tuple(leaving), sketch) if sketch is not None else None


def _orders(movable: Sequence[Movable]) -> Iterator[list[Movable]]:
    """Orders in which pods are put back: pods on the most crowded GPUs first, smallest first, largest first."""
    crowd: dict[str, int] = {}
    for pod in movable:
        for uuid in pod.charges:
            crowd[uuid] = crowd.get(uuid, 0) + 1
    yield sorted(
        movable, key=lambda pod: (-max((crowd[uuid] for uuid in pod.charges), default=0), min(pod.charges, default=""))
    )
    yield sorted(movable, key=lambda pod: (pod.mem, pod.created))
    yield sorted(movable, key=lambda pod: (-pod.mem, pod.created))


def _uids(pods: Iterable[Movable]) -> frozenset[str]:
    return frozenset(pod.seat.uid for pod in pods)


def cost(pods: Iterable[Movable]) -> tuple[int, int, float]:
    """The cost of moving these pods: fewest pods, least GPU memory, youngest."""
    moved = tuple(pods)
    return len(moved), sum(pod.mem for pod in moved), -min((pod.created for pod in moved), default=0.0)

"""Which pods would have to leave a node for one more to fit there: sets none of which can be smaller, smallest first.

Where there are few sets all are looked at. Where there are many, some are found by letting all leave and putting back
one after the other, whoever need not go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from math import comb

from extender.engine.planning.movable_pods import Movable
from extender.engine.planning.sketch import Sketch

ALL = 400
"""Sets of one size that are all looked at."""
Leaving = tuple[Movable, ...]
Draw = Callable[[Iterable[Movable]], Sketch | None]
"""The node when these leave it, None if it is not enough."""


def clearings(movable: Sequence[Movable], most: int, draw: Draw) -> Iterator[tuple[Leaving, Sketch] | None]:
    """Sets of at most `most` pods and what the node is without them; None whenever one was looked at in vain."""
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
        for one in order:
            rest = [other for other in leaving if other is not one]
            if draw(rest) is not None:
                leaving = rest
            yield None
        uids = _uids(leaving)
        sketch = draw(leaving) if len(leaving) <= most and not any(smaller <= uids for smaller in found) else None
        found.append(uids)
        yield (tuple(leaving), sketch) if sketch is not None else None


def _orders(movable: Sequence[Movable]) -> Iterator[list[Movable]]:
    """In which order they are put back: those on the most crowded GPUs, the smallest, the largest and oldest first."""
    crowd: dict[str, int] = {}
    for one in movable:
        for uuid in one.charges:
            crowd[uuid] = crowd.get(uuid, 0) + 1
    yield sorted(
        movable, key=lambda one: (-max((crowd[uuid] for uuid in one.charges), default=0), min(one.charges, default=""))
    )
    yield sorted(movable, key=lambda one: (one.mem, one.created))
    yield sorted(movable, key=lambda one: (-one.mem, one.created))


def _uids(pods: Iterable[Movable]) -> frozenset[str]:
    return frozenset(one.seat.uid for one in pods)


def cost(pods: Iterable[Movable]) -> tuple[int, int, float]:
    """What it costs to move these, cheapest first: fewest pods, least GPU memory, youngest."""
    moved = tuple(pods)
    return len(moved), sum(one.mem for one in moved), -min((one.created for one in moved), default=0.0)

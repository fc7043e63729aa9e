"""Whether those who wait fit once some pods are gone, and where: by the real placement on copies of the nodes."""

from __future__ import annotations

from collections.abc import Generator, Iterable

import msgspec

from extender.engine.placement.index import Indexes
from extender.engine.planning.attempt import PIECE, ClusterView
from extender.engine.planning.capacity_bound import CapacityBound
from extender.engine.planning.plan import Placement, Plan
from extender.engine.planning.what_if import Gone, WhatIfNodes
from extender.engine.state.intree import Amounts, short_of
from extender.engine.state.seats import Seat


class Wanted(msgspec.Struct, frozen=True):
    """What is looked for."""

    seats: tuple[Seat, ...]
    """Who needs a place."""
    free: Amounts = ()
    """How much has to be free for them beside that."""
    beside: tuple[str, ...] = ()
    """The nodes of those of their gang that have a place already."""


def opened(view: ClusterView, seats: Iterable[Seat]) -> tuple[Seat, ...]:
    """The same, kept only off nodes that they are refused for something else than want of what may come free."""
    known: dict[tuple[int, Amounts], int] = {}
    found = []
    for seat in seats:
        key = seat.excluded, seat.requests
        if key not in known:
            known[key] = _ruled_out(view, *key) if seat.excluded else 0
        found.append(msgspec.structs.replace(seat, excluded=known[key]))
    return tuple(found)


def _ruled_out(view: ClusterView, excluded: int, requests: Amounts) -> int:
    for node in view.nodes.values():
        if excluded >> node.number & 1 and short_of(node, requests, view.ignored):
            excluded &= ~(1 << node.number)
    return excluded


class Fitting:
    """Some who wait, held against one set of copies. Work is told in `attempt.LOOK`s."""

    def __init__(self, view: ClusterView, cleared: WhatIfNodes, wanted: Wanted) -> None:
        self._view, self._wanted = view, wanted
        self.census = CapacityBound(view, cleared, wanted.seats)

    def fits(self, gone: Gone) -> Generator[int, None, bool]:
        """Whether all have a place then."""
        if not (yield from self.census.suffices(gone)):
            return False
        if self.census.exact and not self._wanted.free:
            return True
        return (yield from self.place(gone)) is not None

    def place(self, gone: Gone) -> Generator[int, None, Placement | None]:
        """Places for all, as a plan would choose them."""
        nodes = yield from self.census.taking(gone)
        yield PIECE
        indexes = Indexes(nodes, self._view.indexes.scorer)
        view = msgspec.structs.replace(self._view, nodes=nodes, indexes=indexes)
        plan = Plan(view, self._wanted.seats, self._wanted.seats, self._wanted.free, self._wanted.beside)
        yield PIECE
        found = yield from plan.whole()
        return found if isinstance(found, Placement) else None

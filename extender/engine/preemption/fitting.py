"""Whether those who wait fit once some pods are gone, and where: by the real placement on copies of the nodes."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

import msgspec

from extender.engine.placement.index import Indexes
from extender.engine.planning.attempt import PIECE, Fleet
from extender.engine.planning.intree import Amounts, counted, lacking
from extender.engine.planning.plan import Placement, Plan
from extender.engine.planning.seats import Seat
from extender.engine.preemption.census import Census
from extender.engine.preemption.cleared import Cleared

Gone = Mapping[str, frozenset[str]]
"""Pods that are gone (UIDs), by node."""


class Wanted(msgspec.Struct, frozen=True):
    """What is looked for."""

    seats: tuple[Seat, ...]
    """Who needs a place."""
    free: Amounts = ()
    """How much has to be free for them beside that."""
    beside: tuple[str, ...] = ()
    """The nodes of those of their gang that have a place already."""


def opened(fleet: Fleet, seats: Iterable[Seat]) -> tuple[Seat, ...]:
    """The same, kept only off nodes that they are refused for something else than want of what may come free."""
    known: dict[tuple[int, Amounts], int] = {}
    found = []
    for seat in seats:
        key = seat.excluded, seat.requests
        if key not in known:
            known[key] = _ruled_out(fleet, *key) if seat.excluded else 0
        found.append(msgspec.structs.replace(seat, excluded=known[key]))
    return tuple(found)


def _ruled_out(fleet: Fleet, excluded: int, requests: Amounts) -> int:
    for node in fleet.nodes.values():
        ignored = fleet.ignored if node.books is not None else ()
        if excluded >> node.number & 1 and lacking(counted(requests, ignored), node.allocatable, node.used):
            excluded &= ~(1 << node.number)
    return excluded


class Fitting:
    """Some who wait, held against one set of copies. Work is told in `attempt.LOOK`s."""

    def __init__(self, fleet: Fleet, cleared: Cleared, wanted: Wanted) -> None:
        self._fleet, self._wanted = fleet, wanted
        self.census = Census(fleet, cleared, wanted.seats)

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
        indexes = Indexes(nodes, self._fleet.indexes.scorer)
        fleet = msgspec.structs.replace(self._fleet, nodes=nodes, indexes=indexes)
        plan = Plan(fleet, self._wanted.seats, self._wanted.seats, self._wanted.free, self._wanted.beside)
        yield PIECE
        found = yield from plan.whole()
        return found if isinstance(found, Placement) else None

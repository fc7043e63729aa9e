"""Who may go before the first in line without making it wait longer: EASY backfill with one reservation.

The first in line for whom there is no room has a reservation: the earliest time at which the real placement has room
for it as the running ones come to their expected ends, and the nodes it gets then. Others pass if they end by that
time, or keep off those nodes. It is worked out anew whenever anything has changed, so it only ever binds for a moment.
Source: Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 2001.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

Who = TypeVar("Who", contravariant=True)
Leaver = TypeVar("Leaver")


class Future(Protocol[Who]):
    """The room there will be, for the one who waits for it."""

    def leave(self, who: Who) -> None:
        """That one has ended and holds nothing any more."""

    def fit(self) -> int:
        """Where the one who waits goes then: bits by node number; 0 if there is no room yet."""


class Reservation(NamedTuple):
    """What is kept for the first in line."""

    start: float
    """When it starts at the earliest, as far as can be told."""
    nodes: int
    """Where: bits by node number."""

    def closed(self, end: float) -> int:
        """The nodes (bits by number) that are closed to one who would end then; infinity: nobody knows when."""
        return self.nodes if end > self.start else 0


OPEN = Reservation(math.inf, 0)
"""Nothing is kept for anybody."""


def reserve(future: Future[Leaver], ends: Iterable[tuple[float, Leaver]]) -> Reservation:
    """The reservation of one for whom there is no room now; `ends` tells who ends when, in order.

    `OPEN` if there is no room for it even when everybody has left: it must not hold up the others.
    """
    for end, who in ends:
        future.leave(who)
        nodes = future.fit()
        if nodes:
            return Reservation(end, nodes)
    return OPEN

"""Places a whole gang or nothing of it, on trial copies of the books and in slices.

It plans all members that exist, and where these do not fit together the smallest start: close together if they fit
there, else anywhere. Sizes in between are not tried: members beyond the minimum find their places singly afterwards.
Identical members that ask single GPUs or whole ones are placed whenever they fit; for a mixture of shapes that is bin
packing, and two ways of doing it are tried.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence, Set

import msgspec

from extender.engine.planning.attempt import PIECE, Attempt, ClusterView
from extender.engine.planning.nearby import nearby
from extender.engine.planning.scarcity import Reckoning, Scarcity
from extender.engine.planning.shortage import Shortage, shortage
from extender.engine.state.intree import Amounts
from extender.engine.state.seats import Assignment, Seat
from extender.engine.types.sliced import Sliced


class Placement(msgspec.Struct, frozen=True):
    """A place for every member of the gang, or of its smallest start."""

    assignments: Mapping[str, Assignment]
    """Where each of them goes, by UID."""


class Plan(Sliced[Placement | Shortage | Scarcity]):
    """One plan in the making.

    A placement is true of the moment in which `advance` returns: whoever takes it books it before anything else
    happens. A shortage or scarcity may be of a moment ago: if nodes got room since the plan began, it is worth another.
    """

    def __init__(
        self,
        view: ClusterView,
        seats: Sequence[Seat],
        minimum: Sequence[Seat],
        free: Amounts = (),
        beside: Sequence[str] = (),
    ) -> None:
        """A place for all `seats`, else for those of `minimum` (`seats.least` finds them), where so much is free.

        `beside`: the nodes of those members that have a place already.
        """
        self._view, self._beside = view, beside
        self._reckoning = Reckoning(view, free, minimum)
        self._sizes = [seats, minimum] if len(minimum) < len(seats) else [seats]
        super().__init__(self._plan())

    def _plan(self) -> Generator[int, None, Placement | Shortage | Scarcity]:
        yield from self._reckoning.run()
        if self._reckoning.outcome is not None:
            return self._reckoning.outcome
        best: Shortage | None = None
        for seats in self._sizes:
            last = seats is self._sizes[-1]
            close = yield from self._close(seats)
            if close is not None:
                return close
            for wide in (False, True):
                found, again = yield from self._try(seats, wide=wide, strict=not last)
                if isinstance(found, Placement):
                    return found
                yield PIECE
                if last and (best is None or found.short < best.short):
                    best = found
                if not again:
                    break
        assert best is not None
        return best

    def _close(self, seats: Sequence[Seat]) -> Generator[int, None, Placement | None]:
        """Places close together, None if there are none, or if any are as close as others."""
        levels = self._view.localities
        while levels:
            within = yield from nearby(self._view, levels, seats, self._beside)
            if within is None:
                return None
            found, _ = yield from self._try(seats, wide=False, strict=True, within=within)
            if isinstance(found, Placement):
                return found
            yield PIECE
            levels = levels[1:]
        return None

    def _try(
        self, seats: Sequence[Seat], *, wide: bool, strict: bool, within: Set[str] | None = None
    ) -> Generator[int, None, tuple[Placement | Shortage, bool]]:
        """One attempt: what it found, and whether the wide way is worth another."""
        attempt = Attempt(self._view, seats, wide=wide, strict=strict, within=within)
        yield from attempt.run()
        if attempt.complete:
            return Placement(attempt.assignments()), False
        yield PIECE
        found = shortage(attempt.eq_classes, attempt.placed())
        yield from attempt.dissolve()
        return found, attempt.worth_another

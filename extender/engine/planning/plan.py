"""Places a whole gang or nothing of it, on copies of nodes and in slices.

A plan tries all members, and if these do not fit together the smallest start. Each is placed close together if it fits
there, else anywhere. Sizes in between are not tried: members beyond the minimum are placed singly afterwards. Identical
members that ask single GPUs or whole ones are placed whenever they fit. A mixture of shapes is a bin packing problem;
two ways of solving it are tried.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence, Set

import msgspec

from extender.engine.planning.attempt import LOOK, PIECE, Attempt, ClusterView
from extender.engine.planning.nearby import nearby
from extender.engine.planning.one_model import Mixture, choices, mixes, of_choice, undecided
from extender.engine.planning.shortage import Scarcity, Shortage, scarcity, shortage
from extender.engine.state.intree import Amounts
from extender.engine.state.seats import Assignment, Seat
from extender.engine.types.sliced import Sliced


class Placement(msgspec.Struct, frozen=True):
    """A place for every member of the gang, or of its smallest start."""

    assignments: Mapping[str, Assignment]
    """By UID."""


Failure = Shortage | Scarcity | Mixture
"""Why there is no placement."""


class Plan(Sliced[Placement | Failure]):
    """One plan in the making.

    A placement is valid at the moment when `advance` returns: the caller books it before anything else happens. A
    shortage or scarcity may be outdated: if nodes got room since the plan began, another plan is worth it.
    """

    def __init__(
        self,
        view: ClusterView,
        seats: Sequence[Seat],
        minimum: Sequence[Seat],
        free: Amounts = (),
        beside: Sequence[str] = (),
    ) -> None:
        """Places for all `seats`, else for those of `minimum` (from `seats.least`), if `free` is free in all.

        `beside`: the nodes of members that have a place already.
        """
        self._view, self._beside, self._free, self._minimum = view, beside, free, minimum
        self._sizes = [seats, minimum] if len(minimum) < len(seats) else [seats]
        super().__init__(self._plan())

    def _plan(self) -> Generator[int, None, Placement | Failure]:
        scarce = yield from scarcity(self._view, self._free, self._minimum)
        if scarce is not None:
            return scarce
        outcome: Placement | Failure | None = None
        for seats in self._sizes:
            outcome = yield from self._place(seats, strict=seats is not self._sizes[-1])
            if isinstance(outcome, Placement):
                return outcome
        assert outcome is not None
        return outcome

    def _place(self, seats: Sequence[Seat], *, strict: bool) -> Generator[int, None, Placement | Shortage | Mixture]:
        """Places for these members, those that ask alike on GPUs of one model; or, if not `strict`, why there are none.

        Nodes whose models are unknown are tried last, by themselves.
        """
        asks = undecided(self._view, seats)
        if not asks:
            return (yield from self._anywhere(seats, strict=strict))
        yield PIECE
        for choice in (yield from choices(self._view, seats, asks)):
            chosen = yield from of_choice(seats, choice)
            outcome = yield from self._anywhere(chosen, strict=True)
            if isinstance(outcome, Placement):
                return outcome
        unknown = frozenset([node.name for node in self._view.nodes.values() if node.books is None])
        yield len(self._view.nodes) * LOOK
        if unknown:
            outcome, _ = yield from self._try(seats, wide=False, strict=True, within=unknown)
            if isinstance(outcome, Placement):
                return outcome
        outcome = yield from self._anywhere(seats, strict=strict)
        fits = isinstance(outcome, Placement) and mixes(asks, seats, outcome.assignments, self._view.nodes)
        return Mixture() if fits else outcome

    def _anywhere(self, seats: Sequence[Seat], *, strict: bool) -> Generator[int, None, Placement | Shortage]:
        """Places for these members on whatever GPUs suit them."""
        close = yield from self._close(seats)
        if close is not None:
            return close
        best: Shortage | None = None
        for wide in (False, True):
            outcome, again = yield from self._try(seats, wide=wide, strict=strict)
            if isinstance(outcome, Placement):
                return outcome
            yield PIECE
            best = outcome if best is None or outcome.short < best.short else best
            if not again:
                break
        assert best is not None
        return best

    def _close(self, seats: Sequence[Seat]) -> Generator[int, None, Placement | None]:
        """Places close together; None if there are none, or if any places are equally close."""
        levels = self._view.localities
        while levels:
            within = yield from nearby(self._view, levels, seats, self._beside)
            if within is None:
                return None
            outcome, _ = yield from self._try(seats, wide=False, strict=True, within=within)
            if isinstance(outcome, Placement):
                return outcome
            yield PIECE
            levels = levels[1:]
        return None

    def _try(
        self, seats: Sequence[Seat], *, wide: bool, strict: bool, within: Set[str] | None = None
    ) -> Generator[int, None, tuple[Placement | Shortage, bool]]:
        """The outcome of one attempt, and whether a wide attempt is worth it."""
        attempt = Attempt(self._view, seats, wide=wide, strict=strict, within=within)
        yield from attempt.run()
        if attempt.complete:
            return Placement(attempt.assignments()), False
        yield PIECE
        short = shortage(attempt.eq_classes, attempt.placed())
        yield from attempt.dissolve()
        return short, attempt.worth_another

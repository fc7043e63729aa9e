"""What all lives hold to."""

from collections.abc import Iterator

import pytest

from extender.engine.state.reservations import Reservations

LOOKS = 20
"""At most, until what reservations free is kept for others."""


@pytest.fixture(autouse=True, scope="package")
def no_reservation_is_missed() -> Iterator[None]:
    """After each tick, a look at all reservations finds nothing else than one at those to which something happened."""
    keep = Reservations.keep

    def checked(self: Reservations, now: float, *, tick: bool = False) -> object:
        found = keep(self, now, tick=tick)
        if tick and self:
            for _ in range(LOOKS):
                if not self._stale:
                    break
                keep(self, now)
            before = _kept(self)
            self._ticked = (-1, -1)
            keep(self, now, tick=True)
            assert self._stale or _kept(self) == before
        return found

    Reservations.keep = checked  # type: ignore[assignment,method-assign]
    yield
    Reservations.keep = keep  # type: ignore[method-assign]


def _kept(reservations: Reservations) -> dict[str, object]:
    return {
        uid: (kept.complete, kept.promised, kept.admitted, kept.assignment, reservations._ledger.charges(kept.keeper))
        for uid, kept in reservations._of.items()
    }

import math

import pytest

from extender.sim.jobtrace.easy import OPEN, Reservation, reserve


class Nodes:
    """Nodes that one after the other become free, and one who waits for so many of them."""

    def __init__(self, wanted: int) -> None:
        self._wanted, self._free = wanted, 0

    def leave(self, who: int) -> None:
        self._free |= who

    def fit(self) -> int:
        return self._free if self._free.bit_count() >= self._wanted else 0


def test_a_reservation_is_for_the_first_moment_at_which_there_is_room() -> None:
    assert reserve(Nodes(2), [(10, 0b001), (20, 0b100), (30, 0b010)]) == Reservation(20, 0b101)


def test_one_for_whom_there_is_never_room_keeps_nothing_from_the_others() -> None:
    assert reserve(Nodes(3), [(10, 0b001), (20, 0b100)]) is OPEN
    assert OPEN.closed(math.inf) == 0


@pytest.mark.parametrize(("end", "closed"), [(19, 0), (20, 0), (20.5, 0b101), (math.inf, 0b101)])
def test_its_nodes_are_closed_to_those_who_end_after_its_start(end: float, closed: int) -> None:
    assert Reservation(20, 0b101).closed(end) == closed

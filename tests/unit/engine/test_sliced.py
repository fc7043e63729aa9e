"""Work in slices: as much at a time as is allowed, and its outcome once, at the end."""

from collections.abc import Generator

from extender.engine.types.sliced import Sliced


def steps(*costs: int) -> Generator[int, None, str]:
    yield from costs
    return "done"


def test_a_slice_ends_with_the_part_that_uses_it_up() -> None:
    work = Sliced(steps(2, 2, 2))
    assert not work.advance(3)
    assert not work.advance(2)
    assert work.outcome is None
    assert work.advance(1)


def test_what_came_of_it_stays_when_it_is_asked_again() -> None:
    work = Sliced(steps(1))
    assert work.advance()
    assert work.advance()
    assert work.outcome == "done"


def test_all_of_it_can_be_a_part_of_other_work() -> None:
    def other() -> Generator[int, None, str]:
        return (yield from Sliced(steps(5, 5)).whole())

    work = Sliced(other())
    assert not work.advance(6)
    assert work.advance(1)
    assert work.outcome == "done"

"""Which asks come lately."""

from __future__ import annotations

import pytest

from extender.engine.placement.mix import EVERY, MOST_SHAPES, WINDOW, Mix
from extender.engine.types.shape import Shape, shape
from tests.unit.engine.fleets import an_ask, whole

PART, ONE, EIGHT = (shape(ask, (("cpu", 4000),)) for ask in (an_ask(mem=4), whole(), whole(8)))


def noted(*asks: Shape) -> Mix:
    mix = Mix()
    for ask in asks:
        told(mix, ask)
    return mix


def told(mix: Mix, ask: Shape) -> bool:
    """Whether the mix is another one since this ask."""
    mix.note(ask)
    return mix.due and mix.look()


@pytest.mark.parametrize("amount", [0, 1, 31, 33, 999, 11_908, 2**34 + 1])
def test_amounts_are_rounded_up_by_a_sixteenth_at_most(amount: int) -> None:
    found = shape(None, (("cpu", amount), ("memory", amount), ("pods", 1)))
    assert found.cpu == found.memory
    assert amount <= found.cpu <= amount + amount // 16


def test_pods_that_ask_about_the_same_are_of_one_shape() -> None:
    assert shape(whole(), (("cpu", 11_400),)) == shape(whole(), (("cpu", 11_700),))
    assert shape(whole(), (("cpu", 11_400),)) != shape(whole(), (("cpu", 16_500),))
    assert shape(whole(), (("cpu", 11_400),)) != shape(whole(2), (("cpu", 11_400),))


def test_the_first_ask_is_known_at_once() -> None:
    assert noted(ONE).adopted == {ONE: 1.0}


def test_the_same_mix_is_adopted_once() -> None:
    mix = noted(*[ONE, PART] * 50)
    before = mix.adopted
    assert before == pytest.approx({ONE: 0.5, PART: 0.5}, abs=0.1)
    assert not any(told(mix, ask) for ask in [ONE, PART] * EVERY * 4)
    assert mix.adopted is before


def test_another_mix_is_adopted_once_it_has_moved_by_a_tenth() -> None:
    mix = noted(*[ONE] * 100)
    assert 0 < sum(told(mix, PART) for _ in range(60)) < 4
    assert mix.adopted[PART] > 0.1


def test_old_asks_fade() -> None:
    mix = noted(*[ONE] * 500, *[PART] * 5 * WINDOW)
    mix.look()
    assert mix.adopted[PART] > 0.9


def test_typical_is_what_most_of_the_gpus_are_asked_by() -> None:
    mix = noted(*[*[PART] * 8, EIGHT, *[ONE] * 8] * 12)
    found = mix.typical()
    assert [of for of, _ in found] == [EIGHT, ONE, PART]
    assert sum(share for _, share in found) == pytest.approx(1.0)
    assert dict(found)[EIGHT] == pytest.approx(1 / 17, abs=0.02)
    rare = noted(*[*[EIGHT] * 9, PART] * 10)
    assert [of for of, _ in rare.typical()] == [EIGHT]


def test_no_more_shapes_are_remembered_than_can_matter() -> None:
    mix = noted(*(shape(an_ask(mem=i + 1), ()) for i in range(3 * MOST_SHAPES)))
    mix.look()
    assert len(mix.adopted) <= MOST_SHAPES


def test_nothing_is_typical_before_anybody_came() -> None:
    mix = Mix()
    assert not mix.look()
    assert mix.typical() == []

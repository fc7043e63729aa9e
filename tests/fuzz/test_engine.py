"""Engines live on mutated objects: nothing raises, nothing is stuck, and the books stay sound."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fuzz.harness import FRESH, SEED, live

WORLDS, LONG_WORLDS, PARTS = 30, 850, 3
Told = Callable[[str, object], None]
parts = pytest.mark.parametrize("part", range(PARTS))


@parts
def test_engines_live_on_whatever_others_write(part: int, record_property: Told) -> None:
    record_property("fuzz", live(range(part, WORLDS, PARTS), SEED)._asdict())


@pytest.mark.long
@pytest.mark.timeout(7200)
@parts
def test_many_engines_live_on_whatever_others_write(part: int, record_property: Told) -> None:
    record_property("fuzz", live(range(part, LONG_WORLDS, PARTS), FRESH)._asdict())

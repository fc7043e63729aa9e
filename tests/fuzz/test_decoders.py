"""Every decoder takes whatever others may write: only stated errors come out, soon and in little memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fuzz.decoders import TARGETS, Target
from tests.fuzz.harness import FRESH, SEED, Report, run, shares

SHORT, LONG = 8_000, 950_000
Told = Callable[[str, object], None]
each = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


def fuzz(target: Target, inputs: int, seed: int, tell: Told) -> None:
    report: Report = run(target, shares(inputs)[target.name], seed)
    tell("fuzz", report._asdict())
    assert 0 < report.refused < report.inputs, "some inputs are read, and some are not"


@each
def test_what_others_write_is_read_or_refused_in_time(target: Target, record_property: Told) -> None:
    fuzz(target, SHORT, SEED, record_property)


@pytest.mark.long
@pytest.mark.timeout(7200)
@each
def test_a_million_inputs_are_read_or_refused_in_time(target: Target, record_property: Told) -> None:
    fuzz(target, LONG, FRESH, record_property)

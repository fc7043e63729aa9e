"""The barrier's table: every phase is reached and left, and every trigger is used."""

from __future__ import annotations

import pytest

from gangfilter.table import TRANSITIONS, Phase, Trigger, after


def reachable(start: Phase) -> set[Phase]:
    found, new = set[Phase](), {start}
    while new:
        found |= new
        new = {to for (phase, _), to in TRANSITIONS.items() if phase in found} - found
    return found


def test_every_phase_is_reached_by_a_new_gang() -> None:
    assert reachable(Phase.ASSEMBLING) == set(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_a_gang_gets_from_every_phase_to_any_other(phase: Phase) -> None:
    assert reachable(phase) == set(Phase)


def test_every_fact_moves_a_gang_somewhere() -> None:
    assert {fact for _, fact in TRANSITIONS} == set(Trigger)


def test_no_fact_leads_where_the_gang_is() -> None:
    assert [(phase, fact) for (phase, fact), to in TRANSITIONS.items() if to is phase] == []


def test_what_is_not_in_the_table_moves_nobody() -> None:
    others = [(phase, fact) for phase in Phase for fact in Trigger if (phase, fact) not in TRANSITIONS]
    assert [(phase, fact) for phase, fact in others if after(phase, fact) is not phase] == []


def test_only_a_plan_leads_to_a_start_and_only_the_whole_minimum_through_it() -> None:
    into = {fact for (phase, fact), to in TRANSITIONS.items() if to is Phase.STARTING}
    out = {fact for (phase, fact), to in TRANSITIONS.items() if phase is Phase.STARTING and to is Phase.BINDING}
    assert into == {Trigger.PLANNED}
    assert out == {Trigger.ALL_IN_BIND, Trigger.FOUND}

"""A pod goes from state to state as its table says, and in no other way."""

from itertools import product
from typing import get_args

import pytest

from extender.engine.state import audit
from extender.engine.state.pod_state import TRANSITIONS, Change, PodState, State
from extender.engine.types.effects import PodRef
from tests.builders import a_node, a_pod
from tests.unit.engine.story import Story


@pytest.mark.parametrize(("state", "change"), list(product(get_args(State), Change)))
def test_a_pod_goes_on_as_the_table_says_and_stays_where_it_says_nothing(state: State, change: Change) -> None:
    pod = PodState(PodRef("default", "one", "uid-one"), 0.0)
    pod.state = state
    if (state, change) in TRANSITIONS:
        pod.move(change)
        assert pod.state == TRANSITIONS[state, change]
    else:
        with pytest.raises(KeyError):
            pod.move(change)
        assert pod.state == state


def test_only_a_written_binding_or_the_api_makes_a_pod_bound() -> None:
    assert {change for (_, change), to in TRANSITIONS.items() if to == "bound"} == {Change.WRITTEN, Change.FOUND}


def test_who_is_bound_is_booked_for_nobody_and_held_nowhere() -> None:
    assert {change for state, change in TRANSITIONS if state == "bound"} == {Change.FOUND, Change.RELEASED}


def test_a_change_that_the_table_does_not_know_leaves_the_books_as_they_are() -> None:
    story = Story(a_node("n1", 16, 16))
    assert story.run(a_pod("one", mem=16)) == "n1:0"
    pod, ledger = story.engine.pods["uid-one"], story.engine.ledger
    with pytest.raises(KeyError):
        ledger.hold(pod, "n1", {})
    with pytest.raises(KeyError):
        ledger.bind(pod, "n1", Change.BOOKED)
    assert (pod.state, pod.node) == ("bound", "n1")
    assert audit.wrong(ledger) == []

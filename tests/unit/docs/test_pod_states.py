"""The page about the architecture tells the states of pods as the code has them."""

from typing import get_args

from extender.engine.state import pod_state
from tests.unit.docs.pages import blocks, page, table

ARCHITECTURE = page("docs/architecture.md")


def test_the_diagram_is_the_table() -> None:
    (drawn,) = blocks(ARCHITECTURE, "mermaid")
    assert drawn.text.strip() == pod_state.diagram()


def test_every_state_is_explained() -> None:
    assert [state for state, _ in table(ARCHITECTURE, "state", "meaning")] == list(get_args(pod_state.State))

"""The page about gangs tells the table as it is."""

from gangfilter import table as barrier
from gangfilter.table import Phase
from tests.unit.docs.pages import blocks, page, table

GANGS = page("docs/gangs.md")


def test_the_diagram_is_the_table() -> None:
    (drawn,) = blocks(GANGS, "mermaid")
    assert drawn.text.strip() == barrier.diagram()


def test_every_phase_is_explained() -> None:
    assert [phase for phase, _ in table(GANGS, "phase", "meaning")] == list(Phase)

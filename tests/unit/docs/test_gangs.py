"""The page about gangs tells the table as it is."""

import re

from gangfilter.table import TRANSITIONS, Phase, Trigger
from tests.unit.docs.pages import blocks, page, table

GANGS = page("docs/gangs.md")


def test_the_diagram_has_one_arrow_for_each_row_of_the_table_and_names_that_mermaid_can_read() -> None:
    (drawn,) = blocks(GANGS, "mermaid")
    first, begin, *arrows = drawn.text.rstrip().splitlines()
    assert (first, begin) == ("stateDiagram-v2", "    [*] --> Assembling")
    read = [re.fullmatch(r"    (\w+) --> (\w+): ([^:;#]+)", arrow) for arrow in arrows]
    assert all(read)
    told = [(Phase(m[1]), Trigger(m[3]), Phase(m[2])) for m in read if m]
    assert told == [(phase, trigger, to) for (phase, trigger), to in TRANSITIONS.items()]


def test_every_phase_is_explained() -> None:
    assert [phase for phase, _ in table(GANGS, "phase", "meaning")] == list(Phase)

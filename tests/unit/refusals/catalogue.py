"""All sections of refusals, in the order of the page."""

from __future__ import annotations

from tests.unit.refusals import admission, asks, gangs, queues, rooms, starts, states, values
from tests.unit.refusals.case import Section

PENDING = Section(
    "Pending pods",
    "The pod's condition PodScheduled and its Events show these. The numbers that follow in an Event, and in "
    "`gangshare explain pod NAME`, name what is missing and what would fit.",
    [*rooms.ROOMS, *rooms.CLASSES, *queues.QUEUES, *states.STATES],
)
SECTIONS = (asks.SECTION, PENDING, gangs.SECTION, values.SECTION, admission.SECTION, starts.SECTION)
CASES = [case for section in SECTIONS for case in section.cases]

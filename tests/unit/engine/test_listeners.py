"""Every type of event has a listener."""

from collections.abc import Iterator

from extender.engine.cycle.components import Components
from extender.engine.cycle.lifecycle import Lifecycle
from extender.engine.cycle.listeners import listeners
from extender.engine.cycle.recovery import Recovery
from extender.engine.cycle.upkeep import Upkeep
from extender.engine.types.events import Event
from extender.engine.types.settings import Settings


def events(base: type[Event]) -> Iterator[type[Event]]:
    """The kinds of events: those of which there are no others."""
    for kind in base.__subclasses__():
        found = list(events(kind))
        yield from found or [kind]


def test_each_type_of_event_has_its_listeners() -> None:
    parts = Components(Settings(), wall=0.0)
    pods = Lifecycle(parts)
    table = listeners(parts, pods, Upkeep(parts, pods, Recovery(parts, pods))).of
    assert set(table) == set(events(Event))
    assert all(table.values())

"""Every event of the world is heard by some part of the engine."""

from typing import get_args

from extender.engine.effects import Event
from extender.engine.lifecycle import Lifecycle
from extender.engine.listeners import listeners
from extender.engine.parts import Parts
from extender.engine.recovery import Recovery
from extender.engine.settings import Settings
from extender.engine.upkeep import Upkeep


def test_each_type_of_event_has_its_listeners() -> None:
    parts = Parts(Settings(), wall=0.0)
    pods = Lifecycle(parts)
    table = listeners(parts, pods, Upkeep(parts, pods, Recovery(parts, pods))).of
    assert set(table) == set(get_args(Event))
    assert all(table.values())

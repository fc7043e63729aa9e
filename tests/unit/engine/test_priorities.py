"""The priority of a gang is that of the PriorityClass that its PodGroup names; without it, of its members."""

from __future__ import annotations

from typing import Any

from extender.engine.effects import Evict, GroupSeen, PodSeen, PriorityGone, PrioritySeen
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract import priority
from protos.contract.objects import ObjectMeta
from protos.contract.priority import PriorityClass
from tests.builders import a_node
from tests.unit.engine.gang_story import VOLCANO, a_declaration
from tests.unit.engine.preemption_story import PreemptionStory, a_single
from tests.unit.engine.test_preemption import a_gang


def a_class(name: str, value: int, never: str | None = None) -> PrioritySeen:
    return PrioritySeen(PriorityClass(ObjectMeta(name), value, never))


def of_class(name: str, gang: str, least: int = 2) -> GroupSeen:
    """The gang's PodGroup names this class."""
    return GroupSeen(VOLCANO, GroupKey("default", gang), a_declaration(min_member=least, priority_class=name))


def taken(**settings: Any) -> PreemptionStory:
    """Two gangs of two on four GPUs, of which the older is of a class `low` that its pods do not name."""
    world = PreemptionStory(a_node("n1", 16, 16), a_node("n2", 16, 16), **settings)
    world.tell(a_class("low", -5), a_class("high", 1000), a_class("patient", 1000, "Never"))
    world.tell(of_class("low", "old"))
    world.start(*a_gang("old", 2))
    world.later(60)
    world.start(*a_gang("young", 2))
    world.later(11)
    return world


def waits(world: PreemptionStory, name: str, priority_class: str, members: int = 2) -> None:
    world.tell(of_class(priority_class, name, members))
    world.create(*a_gang(name, members))
    world.come(*(f"{name}-{i}" for i in range(members)))


def test_a_gang_takes_the_room_of_others_by_its_class() -> None:
    world = taken()
    waits(world, "urgent", "high")
    assert world.preempt() == ["old-0", "old-1"], "that of the lower class, though it lost more"
    told = next(str(e.reason) for e in world.done if isinstance(e, Evict))
    assert "gang default/urgent of priority 1000" in told


def test_one_whose_class_is_lower_than_its_pods_gives_to_those_between() -> None:
    world = taken()
    world.waits(a_single("between", 16, -1))
    assert world.preempt() == ["old-0", "old-1"]


def test_nobody_goes_for_a_class_that_says_never_nor_for_one_that_does_not_exist() -> None:
    world = taken()
    world.tell(PriorityGone("low"))
    for name in ("patient", "missing"):
        waits(world, name, name)
    assert world.preempt(30) == []
    world.tell(a_class("missing", 7))
    assert world.preempt(30) == ["young-0", "young-1"], "by now there is one"


def test_among_gangs_that_wait_the_higher_class_goes_first_also_if_it_is_told_late() -> None:
    world = PreemptionStory(a_node("n1", 16, 16), preemption=False)
    world.start(*a_gang("runs", 2))
    waits(world, "first", "low")
    waits(world, "second", "high")
    world.tell(a_class("high", 1000), a_class("low", 10))
    world.delete("runs-0", "runs-1")
    world.later(1)
    assert world.phase("second") is Phase.STARTING
    assert world.phase("first") is Phase.WAITING


def test_one_that_is_in_line_moves_when_its_class_is_told() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    for name, priority_class in (("first", "low"), ("second", "high")):
        world.tell(of_class(priority_class, name), *map(PodSeen, a_gang(name, 2)))
    turns = world.engine.gangs.starts.turns
    assert turns.first() is world.gang("first")
    world.tell(a_class("high", 1000))
    assert turns.first() is world.gang("second")


def test_a_class_is_read_as_the_api_server_writes_it() -> None:
    raw = b"""{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "batch"},
               "value": -10, "globalDefault": false, "preemptionPolicy": "Never", "description": "nights"}"""
    found = priority.decode(raw)
    assert (found.metadata.name, found.value, found.never) == ("batch", -10, True)

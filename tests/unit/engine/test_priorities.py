"""The priority of a gang: of its PodGroup's class, as far as its members or a setting allow; else of its members."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.types.effects import Evict, Report
from extender.engine.types.events import GroupSeen, PodSeen, PriorityGone, PrioritySeen
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract import priority
from protos.contract.objects import ObjectMeta, SchedulingGate
from protos.contract.priority import PriorityClass
from tests.builders import a_node
from tests.unit.engine.gang_story import VOLCANO, a_declaration
from tests.unit.engine.preemption_story import PreemptionStory, a_single, urgent
from tests.unit.engine.test_preemption import a_gang


def a_class(name: str, value: int, never: str | None = None) -> PrioritySeen:
    return PrioritySeen(PriorityClass(ObjectMeta(name), value, never))


def of_class(name: str, gang: str, least: int = 2) -> GroupSeen:
    """The gang's PodGroup names this class."""
    return GroupSeen(VOLCANO, GroupKey("default", gang), a_declaration(min_member=least, priority_class=name))


ANY = priority.HIGHEST
"""What lifts the cap."""


def taken(group_priority: int = ANY, **settings: Any) -> PreemptionStory:
    """Two gangs of two on four GPUs, of which the older is of a class `low` that its pods do not name."""
    settings |= {"group_priority": group_priority}
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
    world = PreemptionStory(a_node("n1", 16, 16), preemption=False, group_priority=ANY)
    world.start(*a_gang("runs", 2))
    waits(world, "first", "low")
    waits(world, "second", "high")
    world.tell(a_class("high", 1000), a_class("low", 10))
    world.delete("runs-0", "runs-1")
    world.later(1)
    assert world.phase("second") is Phase.STARTING
    assert world.phase("first") is Phase.WAITING


def test_one_that_is_in_line_moves_when_its_class_is_told() -> None:
    world = PreemptionStory(a_node("n1", 16, 16), group_priority=ANY)
    for name, priority_class in (("first", "low"), ("second", "high")):
        world.tell(of_class(priority_class, name), *map(PodSeen, a_gang(name, 2)))
    turns = world.engine.gangs.planner.turns
    assert turns.first() is world.gang("first")
    world.tell(a_class("high", 1000))
    assert turns.first() is world.gang("second")


# -- how much a class may give


def capped(world: PreemptionStory, gang: str) -> list[str]:
    """What was told of the cap, in Events of the gang's first member."""
    told = [e for e in world.done if isinstance(e, Report) and e.pod.name == f"{gang}-0"]
    return [str(e.reason) for e in told if e.reason.code == "PriorityCapped"]


def test_a_class_gives_no_more_than_the_highest_of_the_members_has_and_that_is_told_once() -> None:
    world = taken(priority.LEAST)
    world.tell(PriorityGone("low"))
    waits(world, "urgent", "high")
    assert world.preempt(40) == [], "its members have priority 0, as those that run"
    assert capped(world, "urgent") == [
        "gang default/urgent gets less than the PriorityClass of its PodGroup gives: high gives 1000, it counts"
        " as 0, the highest of its members; --group-priority lets PodGroups give more"
    ]


def test_a_class_gives_what_one_of_the_members_has() -> None:
    world = taken(priority.LEAST)
    world.tell(of_class("high", "urgent"))
    world.create(*a_gang("urgent", 2, 7))
    world.come("urgent-0", "urgent-1")
    assert world.preempt() == ["old-0", "old-1"]
    told = next(str(e.reason) for e in world.done if isinstance(e, Evict))
    assert "gang default/urgent of priority 7" in told


def test_a_member_that_does_not_count_lifts_nothing() -> None:
    world = taken(priority.LEAST)
    world.tell(PriorityGone("low"))
    decoy = urgent(a_gang("urgent", 3)[2], 1000, scheduling_gates=(SchedulingGate("not/ours"),))
    world.create(decoy)
    waits(world, "urgent", "high")
    assert world.preempt(40) == []


def test_a_class_below_its_members_still_lowers_them() -> None:
    world = taken(priority.LEAST)
    world.waits(a_single("between", 16, -1))
    assert world.preempt() == ["old-0", "old-1"]
    assert capped(world, "old") == []


def test_a_class_gives_as_much_as_the_setting_allows() -> None:
    world = taken(5)
    waits(world, "urgent", "high")
    assert world.preempt() == ["old-0", "old-1"]
    assert "it counts as 5, the most that --group-priority allows" in capped(world, "urgent")[0]


@pytest.mark.parametrize(("name", "value"), [("system-node-critical", 2_000_001_000), ("system-of-mine", 7)])
@pytest.mark.parametrize("setting", [priority.LEAST, ANY])
def test_a_system_class_gives_a_gang_nothing(name: str, value: int, setting: int) -> None:
    world = taken(setting)
    world.tell(a_class(name, value))
    waits(world, "urgent", name)
    assert world.preempt() == ["old-0", "old-1"]
    assert "gang default/urgent of priority 0" in next(str(e.reason) for e in world.done if isinstance(e, Evict))
    assert f"{name} gives {value}, it counts as 0, system classes are not for PodGroups" in capped(world, "urgent")[0]


def test_a_class_is_read_as_the_api_server_writes_it() -> None:
    raw = b"""{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "batch"},
               "value": -10, "globalDefault": false, "preemptionPolicy": "Never", "description": "nights"}"""
    found = priority.decode(raw)
    assert (found.metadata.name, found.value, found.never) == ("batch", -10, True)

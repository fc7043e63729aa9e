"""A gang larger than the barrier can hold says so, and no member of it starts."""

from __future__ import annotations

import pytest

from extender.engine.types.effects import Report
from extender.engine.types.events import GroupSeen
from gangfilter.group import Declaration, GroupKey
from gangfilter.table import Phase
from protos.contract import names
from tests.builders import a_node
from tests.unit.engine.gang_story import GangStory, a_member, members

KEY = GroupKey("default", "g")
VOLCANO = "scheduling.volcano.sh/v1beta1"
TOLD = "gang default/g is too large to start as one: its minimum is 4 members, and at most 3 can start together here"


def a_world() -> GangStory:
    """Room for eight, and a limit of three."""
    return GangStory(a_node("n1", 16, 16, 16, 16), max_gang_size=3)


def test_a_gang_beyond_the_limit_holds_nothing_and_says_both_numbers() -> None:
    world = a_world()
    world.create(*members(4))
    assert world.come("m0", "m1", "m2", "m3") == ["GangTooLarge"] * 4
    assert world.phase() is Phase.WAITING
    assert world.booked() == []
    world.later(2)
    assert str(world.known().reason) == TOLD
    assert [(e.pod.name, str(e.reason)) for e in world.done if isinstance(e, Report)] == [
        (f"m{i}", TOLD) for i in range(4)
    ]
    assert world.come("m0") == ["GangTooLarge"]


def test_it_is_told_before_all_members_exist() -> None:
    world = a_world()
    world.create(*members(2, least=4))
    assert world.come("m0") == ["GangTooLarge"]
    assert world.phase() is Phase.ASSEMBLING


def test_its_podgroup_says_so_too() -> None:
    world = a_world()
    world.groups = [GroupSeen(VOLCANO, KEY, Declaration(source="PodGroup", min_member=4))]
    world.restart()
    world.create(*members(4, least=None))
    assert str(world.status().reason) == TOLD


def test_the_minimum_of_all_roles_counts() -> None:
    world = a_world()
    roles = {names.MIN_MEMBER_BY_ROLE: '{"ps": 2, "worker": 2}'}
    world.create(*(a_member(f"m{i}", least=1, mem=8, role="ps", annotations=roles) for i in range(2)))
    assert world.come("m0") == ["GangTooLarge"]


def test_a_gang_at_the_limit_starts() -> None:
    world = a_world()
    world.create(*members(3))
    assert world.come("m0", "m1", "m2") == ["held", "held", "flying"]


def test_members_beyond_a_minimum_within_the_limit_come_afterwards() -> None:
    world = a_world()
    world.create(*members(6, least=3))
    world.come("m0", "m1", "m2")
    world.land()
    assert world.phase() is Phase.RUNNING
    assert set(world.come("m3", "m4", "m5")) == {"flying"}


@pytest.mark.parametrize("least", [2, 3])
def test_it_starts_when_its_minimum_is_lowered(least: int) -> None:
    world = a_world()
    world.tell(GroupSeen(VOLCANO, KEY, Declaration(source="PodGroup", min_member=4)))
    world.create(*members(4, least=None))
    assert world.come("m0") == ["GangTooLarge"]
    world.tell(GroupSeen(VOLCANO, KEY, Declaration(source="PodGroup", min_member=least)))
    world.run_slice()
    assert world.phase() is Phase.STARTING

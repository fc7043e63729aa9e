"""What people are told of a gang that waits: soon, with numbers that are true, and not too often."""

from __future__ import annotations

from extender.engine.effects import Leading, Report
from tests.builders import a_node
from tests.unit.engine.gang_story import GangStory, a_member, members


def numbers(world: GangStory) -> list[str]:
    """The numbers of all Events so far."""
    return [effect.reason.numbers for effect in world.done if isinstance(effect, Report)]


def test_a_gang_whose_pods_come_one_after_the_other_is_told_once_with_the_numbers_of_a_moment_later() -> None:
    world = GangStory(a_node("n1", 16, 16))
    for name in ("m0", "m1", "m2"):
        world.create(a_member(name, least=4, mem=8))
        world.come(name)
        world.later(0.2)
    world.later(2)
    assert numbers(world) == ["3 of 4 members exist"]


def test_numbers_that_change_are_told_again_after_a_while() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.create(a_member("m0", least=4, mem=8))
    world.later(2)
    world.create(a_member("m1", least=4, mem=8))
    world.later(20)
    assert numbers(world) == ["1 of 4 members exist"]
    world.later(15)
    assert numbers(world) == ["1 of 4 members exist", "2 of 4 members exist"]
    world.later(100)
    assert len(numbers(world)) == 2


def test_that_a_gang_does_not_fit_is_told_at_once() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.create(*members(3, mem=16))
    world.later(0.3)
    assert numbers(world) == ["needs 3×16; 2 can be placed: n1 2; short by 1"]


def test_whoever_begins_to_lead_tells_it_once_more() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.create(a_member("m0", least=4, mem=8))
    world.later(2)
    world.tell(Leading(False))
    world.tell(Leading(True))
    world.later(2)
    assert numbers(world) == ["1 of 4 members exist"] * 2

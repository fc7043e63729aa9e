"""Reports on a pending gang: soon, with correct numbers, and not too often."""

from __future__ import annotations

from extender.engine.gangs.reporter import MOST_MEMBERS
from extender.engine.types.effects import Report, ReportOwner
from extender.engine.types.events import Leading
from tests.builders import a_node
from tests.unit.engine.gang_story import GangStory, a_member, members


def numbers(world: GangStory) -> list[str]:
    """The numbers of all Events of the first member so far."""
    return [effect.reason.numbers for effect in world.done if isinstance(effect, Report) and effect.pod.name == "m0"]


def test_the_first_members_are_told_and_who_made_them_once() -> None:
    """Whichever of a gang of usual size one describes, it says why it waits."""
    world = GangStory(a_node("n1", 16))
    world.create(*members(MOST_MEMBERS + 2, mem=16))
    world.later(0.3)
    names = [effect.pod.name for effect in world.done if isinstance(effect, Report)]
    assert sorted(names) == [f"m{number}" for number in range(MOST_MEMBERS)]
    assert sum(isinstance(effect, ReportOwner) for effect in world.done) == 1


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
    assert numbers(world) == ["needs 3×16 GiB; 2 can be placed: n1 2; short by 1"]


def test_whoever_begins_to_lead_tells_it_once_more() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.create(a_member("m0", least=4, mem=8))
    world.later(2)
    world.tell(Leading(False))
    world.tell(Leading(True))
    world.later(2)
    assert numbers(world) == ["1 of 4 members exist"] * 2

"""The wall clock is set, forwards and back: what objects say happens at the moment that they say."""

from __future__ import annotations

import pytest

from extender.engine.types.events import GroupSeen, PodSeen, Tick, WallMoved
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.bounds import GRACE
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import KEY, VOLCANO, a_declaration, a_member, at_wall, two_nodes
from tests.unit.engine.preemption_story import PreemptionStory, a_single
from tests.unit.engine.story import Story
from tests.unit.engine.test_preemption import deleted_until
from tests.unit.engine.test_reservations import a_town, kept, reserved, waits

HOUR = 3600.0


def stamp(epoch: float) -> str:
    """Seconds since 1970 as the API writes them."""
    return at_wall(epoch - 1_700_000_000.0)


def tick(story: Story, seconds: float = 0.0) -> None:
    story.now += seconds
    story.tell(Tick())


def test_room_whose_time_is_over_by_the_clock_that_was_set_is_kept_no_longer_until_that_is_set_back() -> None:
    story = a_town(reservation_ttl_s=1000.0)
    waits(story, a_pod("train", mem=9), **reserved("n1", 0, until=stamp(story.now + 600)))
    tick(story)
    assert kept(story) == [(4, 0), (0, 0)]
    story.tell(WallMoved(HOUR))
    assert kept(story) == [(0, 0), (0, 0)]
    story.tell(WallMoved(-HOUR))
    assert kept(story) == [(4, 0), (0, 0)]
    tick(story, 590.0)
    assert kept(story) == [(4, 0), (0, 0)]
    tick(story, 20.0)
    assert kept(story) == [(0, 0), (0, 0)]


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_room_asked_for_after_the_clock_was_set_ends_when_it_says(by: float) -> None:
    story = a_town(reservation_ttl_s=1000.0)
    story.now = 10_000.0
    story.tell(WallMoved(by))
    waits(story, a_pod("train", mem=9), **reserved("n1", 0, until=stamp(story.now + by + 60)))
    assert kept(story) == [(4, 0), (0, 0)]
    tick(story, 50.0)
    assert kept(story) == [(4, 0), (0, 0)]
    tick(story, 20.0)
    assert kept(story) == [(0, 0), (0, 0)]


def test_room_is_kept_no_longer_than_may_be_however_far_the_clock_is_set_back() -> None:
    story = a_town(reservation_ttl_s=300.0)
    waits(story, a_pod("train", mem=9), **reserved("n1", 0, until=stamp(story.now + 600)))
    story.tell(WallMoved(-HOUR))
    tick(story, 290.0)
    assert kept(story) == [(4, 0), (0, 0)]
    tick(story, 20.0)
    assert kept(story) == [(0, 0), (0, 0)]


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_the_limit_of_a_gang_counts_from_its_creation_whichever_clock_was_wrong(by: float) -> None:
    world = two_nodes()
    world.now = 10_000.0
    world.groups = [GroupSeen(VOLCANO, KEY, a_declaration(min_member=3, schedule_timeout_s=2 * HOUR))]
    world.tell(*world.groups)
    made = at_wall(world.now + by)  # by the right clock, which ours is to be set to
    pod = a_member("m0", least=None, mem=8, creationTimestamp=made)
    world.pods["m0"] = pod
    world.tell(PodSeen(pod))
    world.later(10)
    world.tell(WallMoved(by))
    world.now += 2 * HOUR - 20
    world.later(1)
    assert world.phase() is Phase.ASSEMBLING
    world.later(10)
    assert world.phase() is Phase.FAILED


def test_a_gang_has_waited_for_as_long_as_the_machine_was_suspended() -> None:
    world = two_nodes()
    world.groups = [GroupSeen(VOLCANO, KEY, a_declaration(min_member=3, schedule_timeout_s=HOUR))]
    world.tell(*world.groups)
    world.create(a_member("m0", least=None, mem=8))
    world.later(60)
    world.tell(WallMoved(HOUR))
    world.later(1)
    assert world.phase() is Phase.FAILED


def test_who_has_just_started_is_not_taken_for_one_that_has_run_for_an_hour() -> None:
    world = PreemptionStory(a_node("n1", 16), min_runtime_s=100.0)
    world.now += 2 * HOUR
    world.engine.step(WallMoved(-HOUR), world.now)  # the wall clock of this machine is wrong, and told so by its shell
    world.runs(a_single("low", 12))  # an hour from now, as it seems
    world.engine.step(WallMoved(HOUR), world.now)
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt(80) == []
    assert world.preempt(40) == ["low"]


def test_one_that_was_told_to_end_lingers_by_the_clock_that_was_set() -> None:
    world = PreemptionStory(a_node("n1", 16))
    world.runs(a_single("low", 12))
    deleted_until(world, "low", world.now + GRACE.most + 600)
    leaving = world.engine._components.running_pods.leaving
    assert list(leaving) == []
    world.tell(WallMoved(HOUR))
    assert list(leaving) == ["uid-low"]
    world.tell(WallMoved(-HOUR))
    assert list(leaving) == []


def test_what_we_write_ourselves_ends_when_it_was_meant_to() -> None:
    world = PreemptionStory(a_node("n1", 16))
    world.runs(a_single("low", 12))
    world.later(11)
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt(5) == ["low"]
    said = world.pods["urgent"].metadata.annotations[names.RESERVATION]
    world.tell(WallMoved(HOUR))
    world.later(1)
    assert world.engine.reservations.of(world.pods["urgent"].metadata.uid) is not None
    world.tell(WallMoved(-HOUR))
    world.delete("low")
    assert world.pods["urgent"].metadata.annotations[names.RESERVATION] == said
    assert ("urgent", "n1") in world.woken()

"""Who uses none of its GPUs gives way first, among those of equal priority, where the operator wants that."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.types.effects import Evict
from extender.engine.types.events import WallMoved
from protos.contract import idle, names
from tests.builders import MAKER, a_node
from tests.unit.engine.gang_story import at_wall, members
from tests.unit.engine.preemption_story import PreemptionStory, a_single, urgent
from tests.unit.engine.story import owned_by


def mark(world: PreemptionStory, *pods: str, since: float = 0.0, until: float = 1e6, managed: Any = None) -> None:
    """The measuring process says that these pods use none of their GPUs."""
    for name in pods:
        kept = {key: value for key, value in world.pods[name].metadata.annotations.items() if key != names.IDLE}
        said = idle.encode(idle.Idle(1, at_wall(since), at_wall(until)))
        owners = [*owned_by(names.USAGE, "status", names.IDLE)] if managed is None else managed
        world.change(name, annotations={**kept, names.IDLE: said}, managed=[MAKER, *owners])


def two(**settings: Any) -> PreemptionStory:
    """Two pods of one priority; `old` has worked for a minute longer than `young`, so it goes last."""
    world = PreemptionStory(a_node("n1", 16, 16), **{"idle_first_s": 60.0, **settings})
    world.runs(a_single("old", 12))
    world.later(60)
    world.runs(a_single("young", 12))
    world.later(11)
    return world


def test_who_is_idle_for_so_long_goes_before_one_that_has_lost_less_work() -> None:
    world = two()
    mark(world, "old", since=world.now - 61)
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt() == ["old"]
    (why,) = {str(effect.reason) for effect in world.done if isinstance(effect, Evict)}
    assert why.endswith("preempts this pod: default/old is evicted, which uses none of its GPUs")


@pytest.mark.parametrize("case", ["off", "not for so long", "no longer believed", "unreadable", "somebody else"])
def test_otherwise_it_goes_as_ever(case: str) -> None:
    world = two(idle_first_s=0.0) if case == "off" else two()
    since = world.now - (30 if case == "not for so long" else 71)
    until = world.now if case == "no longer believed" else 1e6
    managed = owned_by("somebody", "status", names.IDLE) if case == "somebody else" else None
    mark(world, "old", since=since, until=until, managed=managed)
    if case == "unreadable":
        annotations = {**world.pods["old"].metadata.annotations, names.IDLE: '{"v":1,"since":"yesterday"}'}
        world.change("old", annotations=annotations)
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt() == ["young"]


def test_what_a_user_wrote_through_the_pod_is_not_believed() -> None:
    world = two()
    mark(world, "old", since=0.0, managed=owned_by(names.USAGE, "", names.IDLE))
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt() == ["young"]


def test_priority_stays_first_and_nobody_goes_for_idleness_alone() -> None:
    world = PreemptionStory(a_node("n1", 16, 16), idle_first_s=60.0)
    world.runs(a_single("low", 12))
    world.runs(a_single("high", 12, 10))
    world.later(71)
    mark(world, "high", since=0.0)
    assert world.preempt() == []
    world.waits(a_single("equal", 10, 10))
    assert world.preempt() == ["low"]


def test_a_gang_is_idle_if_all_of_its_pods_with_gpus_are() -> None:
    world = PreemptionStory(a_node("n1", 16, 16), a_node("n2", 16, 16), idle_first_s=60.0)
    launcher = members(1, gang="old", prefix="launcher-", mem=0, least=3)
    workers = members(2, gang="old", prefix="old-", mem=0, whole=1, least=3)
    world.start(*(urgent(pod, 0) for pod in (*launcher, *workers)))
    world.later(60)
    world.start(*(urgent(pod, 0) for pod in members(2, gang="young", prefix="young-", mem=0, whole=1)))
    world.later(11)
    mark(world, "old-0", since=0.0)
    urgent_gang = [urgent(pod, 1000) for pod in members(2, gang="urgent", prefix="urgent-", mem=0, whole=1)]
    for pod in urgent_gang:
        world.create(pod)
    for pod in urgent_gang:
        world.come(pod.metadata.name)
    mark(world, "old-1", since=0.0)
    assert world.preempt() == ["launcher-0", "old-0", "old-1"]


def test_half_an_idle_gang_is_none() -> None:
    world = PreemptionStory(a_node("n1", 16, 16), a_node("n2", 16, 16), idle_first_s=60.0)
    world.start(*(urgent(pod, 0) for pod in members(2, gang="old", prefix="old-", mem=0, whole=1)))
    world.later(60)
    world.start(*(urgent(pod, 0) for pod in members(2, gang="young", prefix="young-", mem=0, whole=1)))
    world.later(11)
    mark(world, "old-0", since=0.0)
    for pod in [urgent(pod, 1000) for pod in members(2, gang="urgent", prefix="urgent-", mem=0, whole=1)]:
        world.create(pod)
    for name in ("urgent-0", "urgent-1"):
        world.come(name)
    assert world.preempt() == ["young-0", "young-1"]


def test_a_pod_that_works_again_is_idle_no_more() -> None:
    world = two()
    mark(world, "old", since=0.0)
    annotations = {k: v for k, v in world.pods["old"].metadata.annotations.items() if k != names.IDLE}
    world.change("old", annotations=annotations)
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt() == ["young"]


def test_the_times_follow_the_wall_clock() -> None:
    world = two()
    mark(world, "old", since=world.now - 61, until=world.now + 600)
    info = world.engine.pods["uid-old"].info
    assert info.idle_s(world.now) == pytest.approx(61, abs=1)
    world.tell(WallMoved(500.0))
    info = world.engine.pods["uid-old"].info
    assert info.idle_s(world.now) == pytest.approx(561, abs=1)
    assert info.idle_s(world.now + 100) == 0.0


def test_surplus_members_go_in_the_order_of_their_gang_whoever_of_them_is_idle() -> None:
    def taken(*idle_ones: str) -> list[str]:
        world = PreemptionStory(a_node("n1", 16, 16, 16), idle_first_s=60.0)
        world.start(*(urgent(pod, 0) for pod in members(3, gang="rigid", prefix="rigid-", mem=0, whole=1, least=1)))
        world.later(71)
        mark(world, *idle_ones, since=0.0)
        world.waits(a_single("urgent", 16, 1000))
        return world.preempt()

    (first,) = taken()
    for name in ("rigid-0", "rigid-1", "rigid-2"):
        assert taken(name) == [first]

"""Surplus members yield to pending gangs of their queue and priority."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.types.events import Tick
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.preemption_story import PreemptionStory, urgent
from tests.unit.engine.test_queues import a_queue, in_queue


def full(*, waits: int = 2, priority: int = 0, queue: str = "", **fields: Any) -> PreemptionStory:
    """Four GPUs: a gang of which one is enough has two, `old` has two; its third member and another gang wait."""
    world = PreemptionStory(a_node("n1", *[16] * 4), preemption=False)
    if queue:
        world.tell(a_queue("a"), a_queue(queue))
    ours = {"annotations": in_queue("a")} if queue else {}
    world.start(*members(2, gang="old", prefix="old", mem=0, whole=1, **ours))
    running = members(3, gang="runs", prefix="runs", least=1, mem=0, whole=1, **ours)
    world.start(*running[:2])
    theirs = {"annotations": in_queue(queue)} if queue else {}
    gang = members(waits, gang="waits", prefix="waits", mem=0, whole=1, **theirs)
    world.create(*(urgent(pod, priority) for pod in gang))
    world.create(running[2])
    comes(world, "runs2", *(f"waits{i}" for i in range(waits)))
    world.later(1)
    return world


def comes(world: GangStory, *names: str) -> list[str]:
    return [what for name in names for what in world.come(name)]


def old_goes(world: GangStory) -> None:
    """The gang that ran there ends: two GPUs are free."""
    for name in ("old0", "old1"):
        world.terminate(name)
        world.delete(name)


def test_the_gang_gets_the_room_though_the_member_comes_first() -> None:
    world = full()
    old_goes(world)
    assert comes(world, "runs2") == ["NoRoom"]
    world.later(1)
    assert comes(world, "runs2", "waits0", "waits1") == ["NoRoom", "held", "flying"]


def test_the_member_is_woken_when_the_gang_does_not_fit() -> None:
    world = full(waits=4)
    old_goes(world)
    assert comes(world, "runs2") == ["NoRoom"]
    assert "pending workloads go before" in str(world.engine.pods[world.pods["runs2"].metadata.uid].refusal)
    before = len(world.done)
    world.later(3)
    assert ("runs2", "n1") in world.woken(before)
    assert comes(world, "runs2") == ["flying"]


def test_the_member_is_woken_for_room_that_was_there_before_it_was_refused() -> None:
    world = PreemptionStory(a_node("n1", *[16] * 4), a_node("n2", *[16] * 4), preemption=False)
    running = members(3, gang="runs", prefix="runs", least=1, mem=0, whole=1)
    world.start(*running[:2])
    world.create(running[2])
    world.later(1)
    waits = members(2, gang="waits", prefix="waits", mem=0, whole=1)
    world.pods |= {pod.metadata.name: pod for pod in waits}
    world.show("waits0", "waits1")
    assert comes(world, "runs2") == ["NoRoom"]
    world.run_slice()
    assert comes(world, "waits0", "waits1") == ["held", "flying"]
    world.land()
    nodes = {world.engine.pods[world.pods[f"waits{i}"].metadata.uid].node for i in (0, 1)}
    assert nodes == {"n1"}, "the best node of both"
    before = len(world.done)
    world.later(2)
    assert ("runs2", "n2") in world.woken(before)
    assert world.engine.pods[world.pods["runs2"].metadata.uid].state == "held", "the room is its own for a moment"
    before = len(world.done)
    world.later(60)
    assert 0 < len(world.woken(before)) < 6, "it is woken again while it does not come, less and less often"
    assert comes(world, "runs2") == ["flying"]
    world.later(30)
    assert not world.engine._components.waking._behind


@pytest.mark.parametrize(("priority", "what"), [(-1, "flying"), (0, "NoRoom"), (1, "NoRoom")])
def test_it_goes_before_gangs_of_lower_priority_alone(priority: int, what: str) -> None:
    world = full(priority=priority)
    old_goes(world)
    world.tell(Tick())
    assert comes(world, "runs2") == [what]


def test_gangs_of_other_queues_are_not_before_it() -> None:
    world = full(queue="b", waits=4)
    old_goes(world)
    world.tell(Tick())
    assert comes(world, "runs2") == ["flying"]


def test_a_member_that_its_gang_needs_waits_for_nobody() -> None:
    world = PreemptionStory(a_node("n1", *[16] * 2), preemption=False)
    world.start(*members(2, gang="runs", prefix="runs", mem=0, whole=1))
    world.create(*members(2, gang="waits", prefix="waits", mem=0, whole=1))
    comes(world, "waits0", "waits1")
    world.later(1)
    world.again("runs0")
    assert comes(world, "runs0") == ["flying"]


def test_where_no_gang_waits_it_comes_at_once() -> None:
    world = PreemptionStory(a_node("n1", *[16] * 2))
    running = members(2, gang="runs", prefix="runs", least=1, mem=0, whole=1)
    world.start(running[0])
    world.create(running[1])
    assert comes(world, "runs1") == ["flying"]


def test_a_single_pod_of_that_priority_goes_first_too_whoever_kube_scheduler_asks_of() -> None:
    world = PreemptionStory(a_node("n1", *[16] * 4), preemption=False)
    running = members(4, gang="runs", prefix="runs", least=2, mem=0, whole=1)
    world.start(*running[:3])
    world.runs(urgent(a_pod("ends", whole=1), 0))
    world.create(running[3])
    world.create(a_pod("single", whole=1))
    comes(world, "runs3", "single")
    world.later(1)
    before = len(world.done)
    world.delete("ends")
    assert comes(world, "runs3") == ["NoRoom"]
    world.later(1)
    assert world.woken(before) == [("single", "n1")]
    assert comes(world, "single") == ["flying"]
    world.land()
    world.delete("single")
    world.later(1)
    assert comes(world, "runs3") == ["flying"]

"""Preemption: who waits takes the room of others of lower priority, and nothing more."""

from __future__ import annotations

from tests.builders import a_node
from tests.unit.engine.preemption_story import PreemptionStory, a_single


def test_a_pod_takes_the_room_of_the_one_of_lower_priority_that_lost_least() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    world.runs(a_single("old", 12))
    world.later(60)
    world.runs(a_single("young", 12))
    world.later(11)
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt() == ["young"]
    world.terminate("young")
    assert world.come("urgent") == ["NoRoom"]
    world.delete("young")
    assert ("urgent", "n1") in world.woken()
    assert world.come("urgent") == ["flying"]
    world.land()
    assert world.engine.counters["preemptions", "done"] == 1
    assert world.evicted() == ["young"]

"""Backfill reservations, in the engine as it runs in a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.types.events import NodeGone, NodeSeen
from protos.contract import names
from protos.contract.objects import Node, Pod
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.preemption_story import PreemptionStory, urgent

FOUR = (16, 16, 16, 16)


def single(name: str, runs: str = "", node: str = "", **fields: Any) -> Pod:
    """A single pod with one whole GPU."""
    said = {names.EXPECTED_RUNTIME: runs} if runs else {}
    return a_pod(name, whole=1, annotations=said, node=node, **fields)


def big(runs: str = "") -> list[Pod]:
    """A gang that needs all four GPUs."""
    said = {names.EXPECTED_RUNTIME: runs} if runs else {}
    return members(2, gang="big", prefix="big-", mem=0, whole=2, annotations=said)


@pytest.fixture
def story() -> GangStory:
    """One node with four GPUs, of which three are taken for 600 s; a gang waits for all four."""
    story = GangStory(a_node("n1", *FOUR), backfill_delay_s=30.0)
    for number in range(3):
        run(story, single(f"r{number}", runs="600"))
    story.create(*big("600"))
    story.later(40.0)
    return story


def run(story: GangStory, pod: Pod) -> None:
    story.create(pod)
    assert story.come(pod.metadata.name) == ["flying"]
    story.land()


def add_node(story: GangStory, node: Node) -> None:
    story.nodes[node.metadata.name] = node
    story.tell(NodeSeen(node))


def asked(story: GangStory, pod: Pod) -> str:
    """The node of a pod that comes now, or why it waits."""
    story.create(pod)
    verdict = story.ask(pod.metadata.name)
    return verdict.nodes[0] if verdict.nodes else verdict.reason.code  # type: ignore[union-attr]


def test_who_ends_before_the_first_in_line_can_start_passes_and_who_does_not_keeps_off(story: GangStory) -> None:
    promise = story.engine.backfill.of("gang default/big")
    assert promise is not None
    assert (promise.nodes, promise.first.sure) == (("n1",), True)
    assert 540 < promise.first.start - story.now < 570
    assert asked(story, single("long", runs="1h")) == "InLine"
    assert asked(story, single("short", runs="300")) == "n1"


def test_a_pod_that_holds_nothing_of_what_the_first_needs_makes_no_guess_of_its_start() -> None:
    """A pod without GPUs, of which nobody knows when it ends."""
    story = GangStory(a_node("n1", *FOUR), backfill_delay_s=30.0)
    story.create(a_pod("helper", node="n1", phase="Running", spec={"restartPolicy": "Never"}))
    for number in range(3):
        run(story, single(f"r{number}", runs="600"))
    story.create(*big("600"))
    story.later(40.0)
    promise = story.engine.backfill.of("gang default/big")
    assert promise is not None
    assert promise.first.sure
    assert asked(story, single("long", runs="1h")) == "InLine"


def test_the_first_in_line_starts_as_soon_as_the_others_have_ended(story: GangStory) -> None:
    assert asked(story, single("long", runs="1h")) == "InLine"
    story.delete("r0", "r1", "r2")
    story.later(1.0)
    assert story.phase("big") == "Starting"
    story.come("big-0", "big-1")
    story.land()
    story.later(5.0)
    assert story.engine.backfill.of("gang default/big") is None


def test_who_was_kept_off_is_woken_once_the_first_in_line_is_gone(story: GangStory) -> None:
    assert asked(story, single("long", runs="1h")) == "InLine"
    before = len(story.done)
    story.delete("big-0", "big-1")
    story.later(5.0)
    assert [name for name, _ in story.woken(before)] == ["long"]


def test_a_gang_behind_it_keeps_off_too(story: GangStory) -> None:
    story.create(*members(1, gang="late", prefix="late-", mem=0, whole=1, annotations={names.EXPECTED_RUNTIME: "2h"}))
    story.later(2.0)
    assert story.why("late") == "GangNoRoom"
    story.create(*members(1, gang="soon", prefix="soon-", mem=0, whole=1, annotations={names.EXPECTED_RUNTIME: "60"}))
    story.later(2.0)
    assert story.phase("soon") == "Starting"


def test_what_kube_scheduler_asks_of_before_the_watch_tells_of_it_keeps_off_as_well(story: GangStory) -> None:
    story.pods["long"] = single("long", runs="1h")
    assert story.ask("long").reason.code == "InLine"  # type: ignore[union-attr]
    story.pods["soon"] = single("soon", runs="300")
    assert story.ask("soon").nodes == ("n1",)


def test_higher_priority_is_not_behind_it(story: GangStory) -> None:
    assert asked(story, single("urgent", runs="10h", spec={"priority": 1000})) == "n1"


def test_room_elsewhere_is_for_all(story: GangStory) -> None:
    add_node(story, a_node("n2", 16))
    assert asked(story, single("long", runs="10h")) == "n2"


def test_who_leaves_enough_beside_the_first_in_line_goes_there_however_long_it_runs() -> None:
    story = GangStory(a_node("n1", *FOUR, 16, 16), backfill_delay_s=30.0)
    for number in range(4):
        run(story, single(f"r{number}", runs="600"))
    story.create(*big("600"))
    run(story, single("r4", runs="600"))
    story.later(40.0)
    assert story.engine.backfill.of("gang default/big") is not None
    assert asked(story, single("beside", runs="10h")) == "n1"
    assert story.bind("beside", "n1") == "flying"
    story.land()
    story.delete("r0")
    assert asked(story, single("second", runs="10h")) == "n1"
    assert story.bind("second", "n1") == "flying"
    story.land()
    story.delete("r1")
    assert asked(story, single("third", runs="10h")) == "InLine"


def test_a_gang_behind_takes_as_many_gpus_of_such_a_node_as_are_left_beside() -> None:
    story = GangStory(a_node("n1", *FOUR, 16, 16, 16), backfill_delay_s=30.0)
    for number in range(4):
        run(story, single(f"r{number}", runs="600"))
    story.create(*big("600"))
    story.later(40.0)
    assert story.engine.backfill.of("gang default/big") is not None
    for name, count, phase in (("four", 4, "Waiting"), ("three", 3, "Starting")):
        said = {names.EXPECTED_RUNTIME: "2h"}
        story.create(*members(count, gang=name, prefix=f"{name}-", mem=0, whole=1, annotations=said))
        story.later(2.0)
        assert story.phase(name) == phase
    story.delete("r0", "r1", "r2", "r3")
    story.later(1.0)
    assert story.phase("big") == "Starting"


def test_nobody_gets_a_promise_who_has_room_somewhere() -> None:
    story = GangStory(a_node("n1", 16), backfill_delay_s=30.0)
    run(story, single("r0", runs="600"))
    assert asked(story, single("waits", runs="600")) == "NoRoom"
    add_node(story, a_node("n2", 16, 16))
    story.later(60.0)
    assert story.engine.backfill.of("default/waits") is None
    assert asked(story, single("other", runs="10h")) == "n2"


def test_a_new_process_makes_the_same_promise_at_once(story: GangStory) -> None:
    before = story.engine.backfill.of("gang default/big")
    story.restart()
    story.later(2.0)
    after = story.engine.backfill.of("gang default/big")
    assert before is not None
    assert after is not None
    assert (after.nodes, round(after.first.start)) == (before.nodes, round(before.first.start))
    assert asked(story, single("long", runs="1h")) == "InLine"


def test_a_promise_on_a_node_that_is_lost_is_made_anew_elsewhere(story: GangStory) -> None:
    add_node(story, a_node("n2", *FOUR))
    run(story, single("elsewhere", runs="2h"))
    story.later(60.0)
    story.tell(NodeGone("n1"))
    del story.nodes["n1"]
    story.later(15.0)
    promise = story.engine.backfill.of("gang default/big")
    assert promise is not None
    assert promise.nodes == ("n2",)


def test_a_stream_of_short_pods_of_unknown_run_time_does_not_keep_it_waiting() -> None:
    story = GangStory(a_node("n1", *FOUR), backfill_delay_s=30.0)
    for number in range(4):
        run(story, single(f"s{number}"))
        story.later(15.0)
    story.create(*big())
    next_one, alive = 4, ["s0", "s1", "s2", "s3"]
    for _ in range(40):
        story.delete(alive.pop(0)) if alive else None
        pod = single(f"s{next_one}")
        next_one += 1
        story.create(pod)
        if story.come(pod.metadata.name) == ["flying"]:
            story.land()
            alive.append(pod.metadata.name)
        story.later(15.0)
        if story.phase("big") != "Waiting":
            break
    assert story.phase("big") == "Starting"


def test_one_that_does_not_start_when_it_should_have_keeps_nobody_off_for_as_long_again() -> None:
    story = GangStory(a_node("n1", *FOUR), backfill_delay_s=30.0)
    run(story, single("endless"))
    story.create(*big())
    story.later(60.0)
    assert asked(story, single("p0")) == "InLine"
    before = len(story.done)
    story.later(620.0)
    assert "p0" in [name for name, _ in story.woken(before)]
    assert asked(story, single("p1")) == "n1"
    story.later(620.0)
    assert asked(story, single("p2")) == "InLine"


def test_nothing_is_kept_for_who_would_not_fit_an_empty_cluster_nor_for_who_just_came() -> None:
    story = GangStory(a_node("n1", *FOUR), backfill_delay_s=30.0)
    run(story, single("r0", runs="600"))
    story.create(*members(3, gang="huge", prefix="huge-", mem=0, whole=2))
    story.later(60.0)
    assert story.engine.backfill.of("gang default/huge") is None
    assert asked(story, single("long", runs="10h")) == "n1"


def test_one_that_never_fits_does_not_stand_in_the_way_of_the_next_in_its_queue() -> None:
    story = GangStory(a_node("n1", *FOUR), backfill_delay_s=30.0)
    run(story, single("r0", runs="7200"))
    story.create(*members(3, gang="huge", prefix="huge-", mem=0, whole=2))
    story.later(1.0)
    story.create(*big())
    story.later(60.0)
    first = story.engine.backfill.of("gang default/big")
    assert first is not None
    story.later(700.0)  # long enough to look at the other again
    last = story.engine.backfill.of("gang default/big")
    assert last is not None
    assert last.made == first.made


def test_a_start_that_is_a_guess_and_far_away_keeps_nobody_off_until_it_is_near() -> None:
    story = GangStory(a_node("n1", *FOUR), backfill_delay_s=30.0)
    run(story, single("unknown"))
    story.later(4000.0)
    story.create(*big())
    story.later(60.0)
    assert story.engine.backfill.of("gang default/big") is not None
    assert asked(story, single("long", runs="10h")) == "n1"


def test_room_that_has_come_is_kept_until_the_first_in_line_comes_for_it(story: GangStory) -> None:
    story.delete("big-0", "big-1")
    story.create(a_pod("whole", whole=4, annotations={names.EXPECTED_RUNTIME: "60"}))
    assert story.ask("whole").nodes == ()
    story.later(40.0)
    assert asked(story, single("long", runs="1h")) == "InLine"
    before = len(story.done)
    story.delete("r0", "r1", "r2")
    for _ in range(30):
        story.later(1.0)
        assert story.ask("long").nodes == ()
    assert story.woken(before)[0] == ("whole", "n1")
    assert {name for name, _ in story.woken(before)} == {"whole"}
    assert story.come("whole") == ["flying"]
    story.land()
    story.later(2.0)
    assert story.engine.backfill.of("default/whole") is None


def test_who_takes_the_room_of_others_stands_before_the_first_in_line_whose_start_is_made_anew() -> None:
    story = PreemptionStory(a_node("n1", *FOUR), backfill_delay_s=30.0)
    for number in range(3):
        story.runs(single(f"r{number}", runs="600"))
    story.create(*big("600"))
    story.later(40.0)
    before = story.engine.backfill.of("gang default/big")
    assert before is not None
    said = {names.EXPECTED_RUNTIME: "3600"}
    story.create(*map(urgent, members(2, gang="high", prefix="high-", mem=0, whole=2, annotations=said)))
    story.schedule()
    assert story.preempt() == ["r0", "r1", "r2"]
    story.delete("r0", "r1", "r2")
    story.later(2.0)
    story.schedule()
    story.later(20.0)
    assert story.phase("high") == "Running"
    after = story.engine.backfill.of("gang default/big")
    assert after is not None
    assert after.first.start > before.first.start + 2400


def test_services_never_end() -> None:
    story = GangStory(a_node("n1", *FOUR), backfill_delay_s=30.0)
    run(story, single("service", spec={"restartPolicy": "Always"}))
    story.create(*big())
    story.later(60.0)
    assert story.engine.backfill.of("gang default/big") is None


def test_it_can_be_turned_off() -> None:
    story = GangStory(a_node("n1", *FOUR), backfill_delay_s=0.0)
    run(story, single("r0", runs="600"))
    story.create(*big())
    story.later(60.0)
    assert asked(story, single("long", runs="10h")) == "n1"

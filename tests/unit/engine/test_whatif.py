"""What-if: what would become of pods that do not exist; nothing of the engine changes."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.types.events import GroupSeen, NodeGone, PrioritySeen
from gangfilter.group import Declaration
from protos.contract import names
from protos.contract.objects import ObjectMeta, Pod
from protos.contract.priority import PriorityClass
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import KEY, VOLCANO, a_member, members
from tests.unit.engine.preemption_story import PreemptionStory, a_single, urgent
from tests.unit.engine.test_queues import a_queue, gang, in_queue
from tests.unit.engine.test_reclaim import HALVES, a_gang, borrowed
from tests.unit.engine.whatif_story import answer, outcome, places, question, victims


def told(story: Any, *pods: Pod, **fields: Any) -> tuple[str, str]:
    """The state, and the code of the reason."""
    found = outcome(story, *pods, **fields)
    return found.state, found.reason.code if found.reason else ""


@pytest.fixture
def story() -> PreemptionStory:
    """Two GPUs of 16 units on each of two nodes."""
    return PreemptionStory(a_node("n1", 16, 16), a_node("n2", 16, 16))


def fill(story: PreemptionStory, **fields: Any) -> None:
    """Four pods take all GPUs."""
    for name in ("a", "b", "c", "d"):
        story.runs(a_single(name, 16, **fields))


# -- now


def test_a_pod_that_fits_would_start_now_on_the_gpus_of_the_best_node(story: PreemptionStory) -> None:
    story.runs(a_single("a", 8))
    found = outcome(story, a_pod("x", mem=8))
    assert (found.state, places(found)) == ("now", {"x": "n1:0"})


def test_a_gang_would_start_as_a_whole_or_wait(story: PreemptionStory) -> None:
    found = outcome(story, *members(4, mem=16))
    assert (found.state, len(places(found))) == ("now", 4)
    story.runs(a_single("a", 16))
    found = outcome(story, *members(4, mem=16))
    assert (found.state, found.reason and found.reason.code) == ("later", "GangNoRoom")


def test_a_gang_that_lacks_members_waits_for_them(story: PreemptionStory) -> None:
    assert told(story, *members(2, least=3)) == ("waits", "GangAssembling")
    assert told(story, a_member("m", least=5000)) == ("waits", "GangTooLarge")


def test_a_podgroup_of_the_question_counts_before_that_of_the_cluster(story: PreemptionStory) -> None:
    pods = [a_member(f"m{i}", least=None) for i in range(2)]
    said = Declaration(source="PodGroup", min_member=2)
    assert told(story, *pods) == ("waits", "GangAssembling")
    assert told(story, *pods, groups=[(VOLCANO, KEY, said)]) == ("now", "")
    story.tell(GroupSeen(VOLCANO, KEY, Declaration(source="PodGroup", min_member=3)))
    assert told(story, *pods) == ("waits", "GangAssembling")
    assert told(story, *pods, groups=[(VOLCANO, KEY, said)]) == ("now", "")


def test_workloads_of_one_question_take_their_places_one_after_the_other(story: PreemptionStory) -> None:
    pods = [a_pod(f"x{i}", mem=16) for i in range(5)]
    found = answer(story, *pods).outcomes
    assert [each.state for each in found] == ["now"] * 4 + ["waits"]
    assert len({place for each in found for place in places(each).values()}) == 4


def test_pods_that_are_alike_wait_one_behind_the_other(story: PreemptionStory) -> None:
    fill(story)
    found = answer(story, *(a_pod(f"x{i}", mem=16) for i in range(3))).outcomes
    assert [(each.place, each.in_line) for each in found] == [(1, 1), (2, 2), (3, 3)]
    assert [each.workload.who for each in found] == ["default/x0", "default/x1", "default/x2"]


def test_a_gang_that_waits_says_nothing_of_a_pod_like_its_members(story: PreemptionStory) -> None:
    pods = [*members(5, mem=16), a_pod("x", mem=16)]
    assert [each.state for each in answer(story, *pods).outcomes] == ["never", "now"]


def test_a_pod_without_gpus_finds_its_cpu(story: PreemptionStory) -> None:
    assert told(story, a_pod("x")) == ("now", "")
    big = a_pod("x", containers=[{"name": "main", "resources": {"requests": {"cpu": "100"}}}])
    assert told(story, big) == ("never", "NoRoom")


# -- why not


@pytest.mark.parametrize(
    ("pod", "code"),
    [
        (a_pod("x", mem=500), "CannotFit"),
        (a_pod("x", mem=5, annotations={names.GPU_COUNT: "2"}), "AskUneven"),
        (a_pod("x", mem=5, annotations={names.ALLOCATION: "{}"}), "AllocationForged"),
        (a_pod("x", mem=5, annotations={names.GPU_CLASS: "gold"}), "ClassMissing"),
        (a_pod("x", mem=5, spec={"schedulingGates": [{"name": "other/gate"}]}), "SchedulingGated"),
    ],
)
def test_a_pod_that_cannot_start_as_it_is_is_told_why(story: PreemptionStory, pod: Pod, code: str) -> None:
    assert told(story, pod) == ("waits", code)


def test_a_pod_of_another_scheduler_is_told_so() -> None:
    story = PreemptionStory(a_node("n1", 16), scheduler_names=("gangshare",))
    assert told(story, a_pod("x", mem=5, spec={"schedulerName": "other"})) == ("waits", "OtherScheduler")


def test_the_queue_counts_with_its_quota(story: PreemptionStory) -> None:
    story.tell(a_queue("q", gpus=2), a_queue("shut", closed=True))
    assert told(story, *gang("x", 3, "q")) == ("waits", "QueueFull")
    assert told(story, *gang("x", 2, "q")) == ("now", "")
    assert told(story, *gang("x", 2, "shut")) == ("waits", "QueueClosed")
    assert told(story, *gang("x", 2, "none")) == ("waits", "QueueMissing")


def test_earlier_workloads_of_the_question_use_the_quota(story: PreemptionStory) -> None:
    story.tell(a_queue("q", gpus=2))
    pods = [a_pod(f"x{i}", whole=1, annotations=in_queue("q")) for i in range(3)]
    assert [each.state for each in answer(story, *pods).outcomes] == ["now", "now", "waits"]


def test_a_gang_is_started_with_the_members_that_its_queue_admits(story: PreemptionStory) -> None:
    story.tell(a_queue("q", gpus=2))
    found = outcome(story, *gang("x", 3, "q", least=2))
    assert (found.state, sorted(places(found))) == ("now", ["x-0", "x-1"])


def test_misspelt_keys_and_values_that_differ_are_warned_of() -> None:
    story = PreemptionStory(a_node("n1", 16, 16), unknown_keys="warn")
    (warning,) = outcome(story, a_pod("x", mem=1, annotations={"gangshare.io/gpu-modle": "T4"})).workload.warnings
    assert "gangshare.io/gpu-modle" in warning
    gang = [a_member("m0", least=1), a_member("m1", least=2)]
    (warning,) = outcome(story, *gang).workload.warnings
    assert "min" in warning


# -- when


def test_a_pod_would_start_when_the_run_time_of_another_is_over(story: PreemptionStory) -> None:
    fill(story, annotations={names.EXPECTED_RUNTIME: "600"})
    found = outcome(story, a_pod("x", mem=16))
    assert found.earliest is not None
    assert (found.state, found.earliest.sure, found.earliest.last) == ("later", True, "uid-a")
    assert 598 <= found.earliest.start - story.now <= 600


def test_nobody_knows_when_pods_end_that_are_restarted_for_ever(story: PreemptionStory) -> None:
    fill(story, spec={"restartPolicy": "Always"})
    assert told(story, a_pod("x", mem=16)) == ("waits", "NoRoom")


def test_a_gang_that_is_larger_than_the_cluster_never_starts(story: PreemptionStory) -> None:
    fill(story)
    assert told(story, *members(4, mem=16)) == ("later", "GangNoRoom")
    assert told(story, *members(5, mem=16)) == ("never", "GangNoRoom")


def test_its_place_in_line_counts_who_waits_before_it(story: PreemptionStory) -> None:
    fill(story)
    story.waits(a_single("first", 16))
    found = outcome(story, a_pod("x", mem=16))
    assert (found.queue, found.place, found.in_line) == ("default", 2, 2)
    found = outcome(story, urgent(a_pod("x", mem=16), 10, preemption_policy="Never"))
    assert (found.place, found.in_line) == (1, 2)


# -- preemption


def test_who_would_be_evicted_is_who_has_the_lower_priority(story: PreemptionStory) -> None:
    fill(story)
    story.later(12)
    assert told(story, a_pod("x", mem=16)) == ("later", "NoRoom")
    found = outcome(story, a_single("x", 16, 10))
    assert (found.state, len(victims(found)), len(places(found))) == ("preempts", 1, 1)
    first, second = answer(story, a_single("x", 16, 10), a_single("y", 16, 10)).outcomes
    assert set(victims(first)).isdisjoint(victims(second))


def test_a_pod_that_never_preempts_waits(story: PreemptionStory) -> None:
    fill(story)
    story.later(12)
    assert told(story, urgent(a_pod("x", mem=16), 10, preemption_policy="Never")) == ("later", "NoRoom")


def test_a_priority_class_counts_as_if_the_api_server_had_read_it(story: PreemptionStory) -> None:
    fill(story)
    story.later(12)
    pod = a_pod("x", mem=16, spec={"priorityClassName": "high"})
    assert told(story, pod)[0] == "later"
    story.tell(PrioritySeen(PriorityClass(ObjectMeta("high"), 1000)))
    assert told(story, pod)[0] == "preempts"
    story.tell(PrioritySeen(PriorityClass(ObjectMeta("high"), 1000, "Never")))
    assert told(story, pod)[0] == "later"
    story.tell(PrioritySeen(PriorityClass(ObjectMeta("usual"), 5, None, global_default=True)))
    assert told(story, a_pod("x", mem=16))[0] == "preempts"


def test_a_queue_would_take_back_its_share_from_the_gangs_that_it_then_takes() -> None:
    world = borrowed(*HALVES)
    found = outcome(world, *a_gang("mine", 4, "b"))
    assert found.state == "preempts"
    assert sorted({name.rpartition("-")[0] for name in victims(found)}) == ["old2", "old3"]
    assert all(unit.over_quota for unit in found.victims)


# -- further nodes


def test_a_further_node_is_like_an_existing_one_but_empty(story: PreemptionStory) -> None:
    fill(story)
    found = answer(story, *members(3, mem=16), nodes=[(story.engine.nodes["n1"], 1)])
    assert [each.state for each in (*found.outcomes, *found.further)] == ["later", "later"]
    found = answer(story, *members(3, mem=16), nodes=[(story.engine.nodes["n1"], 2)])
    (more,) = found.further
    assert more.state == "now"
    assert {place.partition(":")[0] for place in places(more).values()} == {"n1+1", "n1+2"}


# -- slices


def test_the_cluster_may_change_between_two_slices(story: PreemptionStory) -> None:
    made = story.engine.what_if(question(*(a_pod(f"x{i}", mem=1) for i in range(40))), story.now)
    slices = 1
    while not made.advance(20):
        slices += 1
        if slices == 5:
            story.tell(NodeGone("n2"))
    assert slices > 10
    assert made.outcome is not None
    assert len(made.outcome.outcomes) == 40
    assert story.engine.check() == []

"""Of single pods that wait for GPUs, those of the queue whose turn it is are woken first."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.types.events import PodGone, PodSeen
from protos.contract.objects import Pod
from tests.builders import a_node, a_pod
from tests.unit.engine.preemption_story import urgent
from tests.unit.engine.story import Story
from tests.unit.engine.test_queues import a_queue, in_queue


def a_one(name: str, queue: str, priority: int = 0, **fields: Any) -> Pod:
    """A pod of this queue that asks a whole GPU, unless told else."""
    asks = {} if "mem" in fields else {"whole": 1}
    return urgent(a_pod(name, annotations=in_queue(queue), **{**asks, **fields}), priority)


def town(gpus: int, *runs: Pod, **b: Any) -> Story:
    """The queues `a` and `b` (of which more may be said), and a node that is full of these pods."""
    story = Story(a_node("n", *[16] * gpus))
    story.tell(a_queue("a"))
    story.tell(a_queue("b", **b))
    for pod in runs:
        assert story.run(pod)
    return story


def wait(story: Story, *pods: Pod) -> None:
    for pod in pods:
        assert story.filter(pod) == []


def after(story: Story, *gone: str) -> list[str]:
    """Who is woken once these are gone."""
    for name in gone:
        story.tell(PodGone(f"uid-{name}"))
    return story.wakes()


def test_the_pod_of_the_higher_queue_is_woken_before_an_older_one() -> None:
    story = town(1, a_one("ends", "a"), priority=5)
    wait(story, a_one("old", "a"), a_one("young", "b"))
    assert after(story, "ends") == ["young"]


def test_so_is_the_pod_of_the_queue_that_has_less_of_its_due() -> None:
    story = town(2, a_one("stays", "a"), a_one("ends", "a"))
    wait(story, a_one("old", "a"), a_one("young", "b"))
    assert after(story, "ends") == ["young"]


def test_the_queue_comes_before_the_priority_of_its_pods_and_that_before_their_age() -> None:
    story = town(2, a_one("stays", "a"), a_one("ends", "a"))
    wait(story, a_one("urgent", "a", 1000), a_one("calm", "b"), a_one("young", "b", 10))
    assert after(story, "ends") == ["young"]


@pytest.mark.parametrize("big", [{"mem": 17}, {"gpus": 2}])
def test_who_cannot_use_the_room_keeps_nobody_from_it(big: dict[str, int]) -> None:
    asks = {"mem": big["mem"]} if "mem" in big else {"whole": big["gpus"]}
    story = town(2, a_one("stays", "a"), a_one("ends", "a"), priority=5)
    wait(story, a_one("big", "b", **asks), a_one("small", "a"))
    assert after(story, "ends") == ["small"]


def test_who_did_not_come_keeps_nobody_from_it_either() -> None:
    story = town(1, a_one("ends", "a"), priority=5)
    wait(story, a_one("old", "a"), a_one("young", "b"))
    assert after(story, "ends") == ["young"]
    assert story.wakes(2.0) == ["old"]


def test_a_queue_whose_pods_are_woken_gives_way_once_it_has_more_than_the_next() -> None:
    ends = [a_one(f"ends{i}", "a") for i in range(4)]
    story = town(4, *ends)
    wait(story, *(a_one(f"a{i}", "a", mem=16) for i in range(2)), *(a_one(f"a{i}", "a") for i in range(2, 4)))
    wait(story, *(a_one(f"b{i}", "b") for i in range(4)))
    woken = after(story, *(pod.metadata.name for pod in ends))
    assert sorted(woken) == ["a0", "a1", "b0", "b1"]


def test_in_a_tree_queues_are_compared_from_the_top() -> None:
    story = Story(a_node("n", 16))
    for queue in (a_queue("low"), a_queue("high", priority=1), a_queue("x", parent="low", priority=9)):
        story.tell(queue)
    story.tell(a_queue("y", parent="high"))
    assert story.run(a_one("ends", "x"))
    wait(story, a_one("old", "x"), a_one("young", "y"))
    assert after(story, "ends") == ["young"]


def test_what_is_said_of_a_queue_later_counts_for_those_that_wait_already() -> None:
    story = Story(a_node("n", 16))
    assert story.run(a_one("ends", "a"))
    wait(story, a_one("old", "a"), a_one("young", "b"))
    for queue in (a_queue("a"), a_queue("b", priority=5)):
        story.tell(queue)
    assert after(story, "ends") == ["young"]


def test_so_does_it_when_a_pod_that_waits_names_another_queue() -> None:
    story = town(1, a_one("ends", "a"), priority=5)
    wait(story, a_one("old", "a"), a_one("young", "b"), a_one("last", "a"))
    story.tell(PodSeen(a_one("last", "b", 0)))
    story.tell(PodSeen(a_one("young", "a")))
    assert after(story, "ends") == ["last"]


def test_pods_of_one_queue_from_several_namespaces_are_one_line() -> None:
    story = Story(a_node("n", 16))
    story.tell(a_queue("all", namespaces=("one", "two")))
    assert story.run(a_pod("ends", whole=1, namespace="one"))
    wait(story, *(a_pod(name, whole=1, namespace=of) for name, of in (("first", "two"), ("second", "one"))))
    assert after(story, "ends") == ["first"]


def test_without_any_queue_the_names_of_queues_do_not_count() -> None:
    story = Story(a_node("n", 16, 16))
    assert story.run(a_one("stays", "a"))
    assert story.run(a_one("ends", "a"))
    wait(story, a_one("old", "a"), a_one("young", "b"))
    assert after(story, "ends") == ["old"]

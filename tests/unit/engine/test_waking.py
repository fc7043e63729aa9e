"""Who is brought back to the scheduler when room appears, and who is left in peace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from extender.engine.types.effects import PostBinding, Requeue
from extender.engine.types.events import NodeGone, NodeSeen, PodGone, PodSeen, QueueSeen, Tick
from protos.contract import allocation, choose, names
from protos.contract.allocation import Share
from protos.contract.objects import Pod
from protos.contract.queue import Queue
from tests.builders import a_node, a_pod, an_allocation
from tests.unit.engine.story import Story, bound, changed, owned_by


def full(*names: str) -> Story:
    """Nodes of one GPU with 16 units, each taken by the pod `on-<node>`."""
    story = Story(*(a_node(name, 16) for name in names))
    for _ in names:
        pod = a_pod(f"on-{sorted(story.engine.nodes)[len(story.engine.pods)]}", mem=16)
        assert story.run(pod)
    return story


def test_room_on_nodes_that_the_scheduler_ruled_out_wakes_nobody_and_charges_nothing() -> None:
    story = full("a", "b")
    assert story.filter(a_pod("picky", mem=16), ["a"]) == []
    story.tell(PodGone("uid-on-b"))
    assert story.wakes() == []
    assert story.filter(a_pod("other", mem=16)) == ["b"]
    story.tell(PodGone("uid-on-a"))
    assert story.wakes() == ["picky"]


def test_a_node_that_joined_since_counts_as_one_that_may_be_asked() -> None:
    story = full("a", "b")
    assert story.filter(a_pod("picky", mem=16), ["a"]) == []
    story.tell(NodeSeen(a_node("new", 16)))
    assert story.wakes() == ["picky"]


def test_a_node_that_left_and_came_back_is_another_one() -> None:
    story = full("a", "b")
    assert story.filter(a_pod("picky", mem=16), ["a"]) == []
    story.tell(PodGone("uid-on-b"))
    story.tell(NodeGone("b"))
    story.tell(NodeSeen(a_node("b", 16)))
    assert story.wakes() == ["picky"]


def test_the_next_in_line_is_woken_when_the_first_comes_and_goes_elsewhere() -> None:
    story = full("a", "b")
    first, second = a_pod("first", mem=16), a_pod("second", mem=16)
    assert story.filter(first) == []
    assert story.filter(second, ["a"]) == []
    story.tell(PodGone("uid-on-a"))
    assert story.wakes() == ["first"]
    story.tell(PodGone("uid-on-b"))
    assert story.filter(first, ["b"]) == ["b"]
    assert story.wakes() == ["second"]


def test_the_next_in_line_is_woken_when_the_first_comes_and_is_refused() -> None:
    story = full("a", "b")
    first, second = a_pod("first", mem=16), a_pod("second", mem=16)
    assert story.filter(first) == []
    assert story.filter(second) == []
    story.tell(PodGone("uid-on-a"))
    assert story.wakes() == ["first"]
    assert story.filter(first, ["b"]) == []
    assert story.wakes() == ["second"]


def test_a_bind_on_another_node_frees_the_one_that_was_kept() -> None:
    story = Story(a_node("a", 16), a_node("b", 16))
    chooser, waiter = a_pod("chooser", mem=16), a_pod("waiter", mem=16)
    assert story.filter(chooser) == ["a", "b"]
    assert story.filter(waiter, ["a"]) == []
    assert isinstance(story.bind(chooser, "b"), PostBinding)
    assert story.wakes() == ["waiter"]


def test_many_are_woken_in_turns() -> None:
    story = Story(a_node("a", 16))
    assert story.run(a_pod("all", slices=100))
    waiting = [a_pod(f"w{i:03}", slices=1) for i in range(40)]
    for pod in waiting:
        assert story.filter(pod) == []
    story.tell(PodGone("uid-all"))
    first, second = story.wakes(0.2), story.wakes(0.2)
    assert (len(first), len(second)) == (25, 15)
    assert sorted([*first, *second]) == [pod.metadata.name for pod in waiting]


def test_a_pod_that_does_not_come_is_woken_again_after_longer_and_longer_pauses() -> None:
    story = full("a")
    story.tell(PodSeen(a_pod("w", mem=16)))
    story.filter(a_pod("w", mem=16))
    story.tell(PodGone("uid-on-a"))
    woken = []
    for step in range(200):
        if story.wakes(0.5):
            woken.append(step // 2)
    assert woken == [0, 10, 30, 70]


def test_a_forged_pod_is_not_woken_and_keeps_nothing_for_itself() -> None:
    story = full("a")
    pod = a_pod("w", mem=16)
    story.filter(pod)
    text = allocation.encode(an_allocation(main=[Share("GPU-a-0", 0, 16)]))
    forged = changed(pod, {names.ALLOCATION: text}, owned_by("kubectl-edit"))
    story.tell(PodSeen(forged))
    story.filter(forged)
    story.tell(PodGone("uid-on-a"))
    assert story.wakes() == []
    assert story.filter(a_pod("other", mem=16)) == ["a"]


def test_whole_gpus_that_become_free_where_we_have_no_inventory_wake_too() -> None:
    story = Story(a_node("n", allocatable={names.WHOLE_GPU: "1"}), a_node("a", 16))
    story.run(a_pod("mem", mem=1))
    first, second = a_pod("first", whole=1), a_pod("second", whole=1)
    assert story.filter(first) == ["n"]
    place = story.bind(first, "n")
    story.tell(PodSeen(bound(first, place)))
    assert story.filter(second) == []
    story.tell(PodGone("uid-first"))
    assert story.wakes() == ["second"]


@pytest.mark.parametrize("annotation", [{names.CORDONED_GPUS: "0"}, {names.GPUS: "{"}])
def test_a_gpu_that_may_be_used_again_wakes(annotation: dict[str, str]) -> None:
    story = Story(a_node("a", 16, annotations=annotation) if names.GPUS not in annotation else a_node("a", 16))
    broken = a_node("a", annotations=annotation) if names.GPUS in annotation else None
    if broken:
        story.tell(NodeSeen(broken))
    assert story.filter(a_pod("w", mem=1)) == []
    story.tell(NodeSeen(a_node("a", 16)))
    assert story.wakes() == ["w"]


def waiting(pods: int) -> list[Pod]:
    return [a_pod(f"w{i:03}", mem=1 + i % 16, slices=1 + i % 7, cpu=f"{1 + i}m") for i in range(pods)]


def crowded(pods: int) -> Story:
    """So many pods, each of a shape of its own, that wait while four nodes get room."""
    names_of = [f"n{i}" for i in range(4)]
    story = full(*names_of)
    for pod in waiting(pods):
        assert story.filter(pod) == []
    for name in names_of:
        story.tell(PodGone(f"uid-on-{name}"))
    return story


def slices(story: Story) -> Iterator[list[str]]:
    """Who is woken by each step from a tick on."""
    story.now += 0.3
    yield [effect.pod.name for effect in story.tell(Tick()) if isinstance(effect, Requeue)]
    more = True
    while more:
        more = story.engine.run_slice(story.now)
        yield [effect.pod.name for effect in story.engine.effects() if isinstance(effect, Requeue)]


def test_no_step_looks_for_room_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    story, chosen = crowded(60), Counter[int]()
    choose_it, step = choose.choose, 0

    def counted(*args: Any) -> Any:
        chosen[step] += 1
        return choose_it(*args)

    monkeypatch.setattr(choose, "choose", counted)
    woken: list[str] = []
    for one in slices(story):
        step += 1
        woken += one
    assert len(woken) == len(set(woken)) > 5
    assert max(chosen.values()) < 0.7 * chosen.total()
    assert len(chosen) > 2


def test_a_pod_that_goes_or_comes_during_a_round_is_not_woken() -> None:
    story = crowded(60)
    steps = slices(story)
    woken = next(steps)
    left = [f"w{i:03}" for i in range(60) if f"w{i:03}" not in woken]
    for name in left:
        story.tell(PodGone(f"uid-{name}"))
    assert [name for one in steps for name in one] == []


def test_a_node_that_goes_during_a_round_keeps_nothing_for_anybody() -> None:
    story = crowded(60)
    steps = slices(story)
    first = next(steps)
    for name in sorted(story.engine.nodes):
        story.tell(NodeGone(name))
    assert [name for one in steps for name in one] == []
    assert story.engine.check() == []
    for i in range(4):
        story.tell(NodeSeen(a_node(f"n{i}", 16)))
    assert set(story.wakes(20.0)) - set(first)


def test_other_queues_during_a_round_lose_nobody() -> None:
    story = crowded(60)
    steps = slices(story)
    woken = next(steps)
    story.tell(QueueSeen(Queue(name="new")))
    woken += [name for one in steps for name in one]
    woken += story.wakes()
    assert len(woken) == len(set(woken))
    assert set(woken) == set(crowded(60).wakes())

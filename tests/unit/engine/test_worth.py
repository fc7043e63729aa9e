"""A pod's score for people: by node and term."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.cycle import worth
from extender.engine.cycle.worth import Row
from extender.engine.types.events import NodeSeen, PodSeen
from protos.contract import names
from protos.contract.objects import Pod
from tests.builders import a_node, a_pod
from tests.unit.engine.story import Story

REQUESTS = {"cpu": "4", "memory": "8Gi"}


def a_story(*mems: int, pods: int = 0) -> Story:
    """Nodes a, b, …, each with a GPU of so many units and one of 16; so many pods have come and gone."""
    story = Story(*(a_node(name, mem, 16) for name, mem in zip("abcdefghij", mems, strict=False)))
    for number in range(pods):
        story.run(a_pod(f"old-{number}", mem=4))
    return story


def rows(story: Story, pod: Pod) -> list[Row]:
    state = story.engine.pods[pod.metadata.uid]
    while story.engine.worth.prepare(state):
        pass
    return story.engine.worth.rows(state)


def told(story: Story, name: str = "p", **fields: Any) -> tuple[Pod, list[Row]]:
    """The rows of a pending pod."""
    pod = a_pod(name, **fields)
    story.tell(PodSeen(pod))
    return pod, rows(story, pod)


def test_the_terms_make_up_the_score_and_the_best_node_is_where_it_goes() -> None:
    story = a_story(8, 12, 24, pods=3)
    pod, found = told(story, mem=7)
    assert len(found) == 3
    assert all(row.points == -sum(row.terms.values()) for row in found)
    assert set(found[0].terms) == {"fragments", "stranded", "wanted", "opened", "spare", "links"}
    assert len({row.points for row in found}) == 3
    assert story.filter(pod)[0] == found[0].node


def test_a_placed_pod_has_the_score_there_that_it_had_before() -> None:
    story = a_story(8, 12, 24, pods=3)
    pod, (best, *_) = told(story, mem=7)
    assert story.run(pod).startswith(best.node)
    assert best._replace(here=True) in rows(story, pod)


def test_its_own_node_is_told_also_where_others_are_better() -> None:
    story = a_story(16, 16, 16, 16, 16, 16, 16, 8)
    story.run(a_pod("x", mem=8))
    last = a_pod("p", mem=8)
    story.filter(last, ["h"])
    assert story.bind(last, "h")
    found = rows(story, last)
    assert len(found) == worth.BEST + 1
    assert [row.node for row in found if row.here] == ["h"]


def test_nodes_that_kube_scheduler_keeps_it_off_are_left_out() -> None:
    story = Story(a_node("small", 16, allocatable={"cpu": "2", "pods": "9"}), a_node("a", 16), a_node("b", 16))
    spec = {"nodeSelector": {"kubernetes.io/hostname": "a"}}
    container = {"name": "main", "resources": {"limits": {names.GPU_MEM: "4"}, "requests": REQUESTS}}
    assert [row.node for row in told(story, "p", containers=[container])[1]] == ["a", "b"]
    assert told(story, "q", containers=[container], spec=spec)[1] == []


def test_where_there_is_no_room_nothing_is_told() -> None:
    assert told(a_story(16, 16), mem=17)[1] == []


def test_a_pod_without_gpus_costs_nothing_where_there_are_none() -> None:
    story = a_story(16, 16, pods=5)
    story.tell(NodeSeen(a_node("plain")))
    _, (best, *others) = told(story, containers=[{"name": "main", "resources": {"requests": REQUESTS}}])
    assert (best.node, best.points, best.terms) == ("plain", 0, {})
    assert [row.node for row in others] == ["a", "b"]
    assert all(row.points == -sum(row.terms.values()) for row in others)


@pytest.mark.parametrize("bound", [False, True])
def test_a_pod_that_is_to_be_spread_shows_how_empty_it_is_there(bound: bool) -> None:
    story = Story(a_node("a", 16, 16), a_node("b", 16, 16))
    story.run(a_pod("x", mem=16))
    pod, found = told(story, mem=8, annotations={names.PLACEMENT: "spread"})
    if bound:
        story.run(pod)
        found = [row._replace(here=False) for row in rows(story, pod)]
    assert found == [
        Row("b", 500, {"emptiness": 500, "links": 0}),
        Row("a", 400, {"emptiness": 400, "links": 0}),
    ]

"""Stories of soft charges: bind books the GPUs that filter held, as long as these may still be had."""

from __future__ import annotations

import msgspec
import pytest

from extender.engine.types import refusals
from extender.engine.types.effects import PostBinding, Refuse
from extender.engine.types.events import GpusUnhealthy, NodeSeen
from protos.contract import names
from protos.contract.objects import Node
from tests.builders import a_node, a_pod
from tests.unit.engine.story import Story
from tests.unit.engine.test_ledger import charges
from tests.unit.engine.test_queues import a_queue, in_queue


def gpus(answer: object) -> list[int]:
    """The indexes of the GPUs that a bind has booked."""
    assert isinstance(answer, PostBinding)
    assert answer.allocation is not None
    return [share.index for share in answer.allocation.containers["main"]]


def cordoned(node: Node, gpus: str) -> Node:
    meta = msgspec.structs.replace(node.metadata, annotations={**node.metadata.annotations, names.CORDONED_GPUS: gpus})
    return msgspec.structs.replace(node, metadata=meta)


def test_a_bind_books_the_gpus_that_its_filter_held_and_changes_nothing_else() -> None:
    story = Story(a_node("n1", 16, 16))
    pod = a_pod("one", mem=5)
    assert story.filter(pod) == ["n1"]
    held, version = charges(story, "n1"), story.engine.nodes["n1"].version
    assert gpus(story.bind(pod, "n1")) == [0]
    assert charges(story, "n1") == held
    assert (story.engine.nodes["n1"].version, story.engine.pods["uid-one"].state) == (version, "binding")
    assert story.engine.check() == []
    story.wakes(after=60)
    assert charges(story, "n1") == held, "it is no soft charge any more"


@pytest.mark.parametrize("how", ["cordoned", "unhealthy", "gone"])
def test_a_held_gpu_that_is_no_longer_offered_is_not_booked(how: str) -> None:
    story = Story(a_node("n1", 16, 16))
    pod = a_pod("one", mem=5)
    assert story.filter(pod) == ["n1"]
    match how:
        case "cordoned":
            story.tell(NodeSeen(cordoned(a_node("n1", 16, 16), "0")))
        case "unhealthy":
            story.tell(GpusUnhealthy("n1", frozenset({0})))
        case "gone":
            story.tell(NodeSeen(a_node("n1", 16, 16, state="leaving")))
    answer = story.bind(pod, "n1")
    assert answer == Refuse(refusals.TAKEN) if how == "gone" else gpus(answer) == [1]
    assert story.engine.check() == []


def test_gpus_are_chosen_anew_on_a_node_whose_gpus_have_changed() -> None:
    """The amounts of a soft charge were those of the former GPUs."""
    story = Story(a_node("n1", 16, 16))
    pod = a_pod("one", slices=50)
    assert story.filter(pod) == ["n1"]
    story.tell(NodeSeen(a_node("n1", 40, 40)))
    assert gpus(story.bind(pod, "n1")) == [0]
    assert charges(story, "n1") == {"uid-one": [("GPU-n1-0", (20, 50, False))]}
    assert story.engine.check() == []


def test_another_node_than_the_held_one_is_booked_by_a_choice_there() -> None:
    story = Story(a_node("n1", 16), a_node("n2", 16), offer_limit=2)
    pod = a_pod("one", mem=5)
    first, other = story.filter(pod)
    assert gpus(story.bind(pod, other)) == [0]
    assert charges(story, first) == {}
    assert story.engine.check() == []


def test_the_soft_charge_of_a_pod_does_not_fill_its_own_queue() -> None:
    story = Story(a_node("n1", 16, 16))
    story.tell(a_queue("team", gpus=1))
    pod = a_pod("one", mem=16, annotations=in_queue("team"))
    assert story.filter(pod) == ["n1"]
    assert gpus(story.bind(pod, "n1")) == [0]


def test_a_queue_that_becomes_too_small_before_the_bind_frees_the_soft_charge() -> None:
    story = Story(a_node("n1", 16, 16))
    story.tell(a_queue("team", gpus=1))
    pod = a_pod("one", mem=16, annotations=in_queue("team"))
    assert story.filter(pod) == ["n1"]
    story.tell(a_queue("team", gpus=0.5))
    answer = story.bind(pod, "n1")
    assert isinstance(answer, Refuse)
    assert answer.reason.code == "QueueFull"
    assert charges(story, "n1") == {}
    assert story.engine.check() == []

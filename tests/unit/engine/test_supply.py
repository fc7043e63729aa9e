"""What is due to queues is divided of what can be given, and of what is held of the rest."""

from __future__ import annotations

import msgspec
import pytest

from extender.engine.types.events import ClassSeen, GpusUnhealthy, NodeSeen
from protos.contract import names
from protos.contract.gpu_class import GpuClass
from protos.contract.inventory import decode, encode
from protos.contract.objects import Node, Taint
from protos.contract.queue import GPU, GPUS
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory
from tests.unit.engine.test_queues import a_queue, gang, in_queue


def a_story() -> GangStory:
    """Two nodes of four GPUs with 16 units each, and a queue that asks for all of them."""
    story = GangStory(a_node("n1", *[16] * 4), a_node("n2", *[16] * 4))
    story.tell(a_queue("team-a"), ClassSeen(GpuClass(name="any")))
    story.tell(a_queue("team-b", deserved={"class/any": 8 * GPU}))
    story.create(*gang("g", 40, "team-a"))
    return story


def due(story: GangStory) -> float:
    """GPUs that are due to the queue, which asks for more than there are."""
    story.later()
    return story.engine.tenancy.queues.queue_nodes["team-a"].due[GPUS] / GPU


def there(story: GangStory, resource: str) -> float:
    story.later()
    queues = story.engine.tenancy.queues
    return queues.also.get(resource, queues.total.get(resource, 0)) / GPU


def with_health(node: Node, *health: str) -> Node:
    """The first GPUs of the node are not well."""
    found = decode(node.metadata.annotations[names.GPUS])
    assert found is not None
    states = dict(enumerate(health))
    gpus = tuple(msgspec.structs.replace(gpu, health=states.get(gpu.index, gpu.health)) for gpu in found.gpus)
    text = encode(msgspec.structs.replace(found, gpus=gpus))
    return annotated(node, **{names.GPUS: text})


def annotated(node: Node, **annotations: str) -> Node:
    metadata = msgspec.structs.replace(node.metadata, annotations={**node.metadata.annotations, **annotations})
    return msgspec.structs.replace(node, metadata=metadata)


def cordoned(node: Node) -> Node:
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=True))


def leaving(node: Node) -> Node:
    taint = Taint("ToBeDeletedByClusterAutoscaler", "", "NoSchedule")
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=(taint,)))


PLAIN = a_node("n1", *[16] * 4)
UUIDS = [gpu.uuid for gpu in decode(PLAIN.metadata.annotations[names.GPUS]).gpus]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (with_health(PLAIN, "sick:xid 79", "gone", "mig"), 5),
        (annotated(PLAIN, **{names.CORDONED_GPUS: ",".join(UUIDS[:2])}), 6),
        (cordoned(PLAIN), 4),
        (leaving(PLAIN), 4),
    ],
    ids=["sick, gone, MIG", "cordoned GPUs", "cordoned node", "leaving node"],
)
def test_gpus_that_nobody_can_be_given_are_due_to_nobody(change: Node, left: int) -> None:
    story = a_story()
    assert (due(story), there(story, "class/any")) == (8, 8)
    story.tell(NodeSeen(change))
    assert (due(story), there(story, "class/any")) == (left, left)
    story.tell(NodeSeen(PLAIN))
    assert (due(story), there(story, "class/any")) == (8, 8)


def test_gpus_that_gpushare_calls_sick_are_due_to_nobody() -> None:
    story = a_story()
    story.tell(GpusUnhealthy("n1", frozenset({0, 1})))
    assert due(story) == 6
    story.tell(GpusUnhealthy("n1", frozenset()))
    assert due(story) == 8


def test_what_is_held_there_counts_until_it_is_let_go() -> None:
    story = GangStory(a_node("n1", *[16] * 4))
    story.tell(a_queue("team-a"), ClassSeen(GpuClass(name="any")), a_queue("b", deserved={"class/any": 1}))
    story.create(a_pod("half", mem=8, annotations=in_queue("team-a")), a_pod("whole", whole=1))
    assert story.come("half", "whole") == ["flying", "flying"]
    story.land()
    story.create(*gang("g", 40, "team-a"))
    story.tell(NodeSeen(cordoned(PLAIN)))
    assert there(story, GPUS) == there(story, "class/any") == 1.5
    assert story.engine.tenancy.queues.total["pods"] == 2
    story.delete("half")
    assert there(story, GPUS) == there(story, "class/any") == 1
    assert story.engine.tenancy.queues.total["pods"] == 1

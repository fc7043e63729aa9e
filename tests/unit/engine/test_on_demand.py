"""MIG instances that are made on demand, in the engine: who gets them, what is told, what queues count."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from extender.engine.queueing.usage import Supply, UsageCalculator, usable
from extender.engine.state.stock import Stock
from extender.engine.types.events import NodeSeen, PodGone, PodSeen
from extender.server import inspect, verdicts
from extender.server.exposition import pieces
from protos.contract import inventory, mig, names
from protos.contract.objects import Node, Pod
from protos.contract.queue import GPU, GPUS
from protos.contract.selection import Selection
from tests.builders import a_node, a_pod, an_inventory, divisible
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.preemption_story import PreemptionStory, urgent
from tests.unit.engine.story import Story
from tests.unit.engine.test_mig import asking, refused

SMALL, MIDDLE, LARGE = "1g.10gb", "3g.40gb", "7g.80gb"


def cut(name: str, *mems: int, gpus: tuple[int, ...] = (0,)) -> Node:
    """A node with these GPUs, of some of which instances are made on demand."""
    found = divisible(an_inventory(*mems, node=name, models=["H100"] * len(mems)), gpus)
    return a_node(name, annotations={names.GPUS: inventory.encode(found)})


def run(story: Story, pod: Pod) -> str:
    """Bind the pod; its node, and its instance or GPU as people see it."""
    node, _, index = story.run(pod).partition(":")
    return f"{node} {mig.shown(int(index))}" if index else ""


def test_pods_get_instances_of_several_profiles_and_wait_until_one_can_be_made() -> None:
    story = Story(cut("a", 79))
    assert run(story, asking("p", SMALL)) == "a 0@6"
    assert run(story, asking("q", MIDDLE)) == "a 0@0-3"
    reason = refused(story, asking("late", MIDDLE))
    assert (reason.code, reason.sentence) == ("NoRoom", "no node with 1 MIG instance 3g.40gb free")
    assert reason.numbers == "needs 1 MIG instance 3g.40gb; freest: a 0 of 2 such MIG instances free"
    story.tell(PodGone("uid-p"))
    assert story.wakes() == ["late"]
    assert run(story, asking("late", MIDDLE)) == "a 0@4-7"


def test_a_node_with_a_started_gpu_is_preferred() -> None:
    story = Story(cut("a", 79), cut("b", 79))
    first = run(story, asking("p0"))[0]
    assert {run(story, asking(f"p{i}"))[0] for i in range(1, 7)} == {first}
    assert run(story, asking("p7"))[0] != first


def test_a_profile_that_cannot_be_made_is_told_with_those_that_can() -> None:
    story = Story(cut("a", 79))
    reason = refused(story, asking("p", "1g.5gb"))
    assert (reason.code, reason.sentence) == ("NoMatch", "no GPU in the cluster matches MIG profile 1g.5gb")
    assert "1g.10gb ×7" in reason.numbers
    assert "3g.40gb ×2" in reason.numbers


def test_a_pod_of_higher_priority_evicts_those_who_are_in_the_way() -> None:
    story = PreemptionStory(cut("a", 79))
    for number in range(3):
        assert story.runs(asking(f"p{number}", "2g.20gb")) == "a"
    story.later(20.0)
    story.waits(urgent(asking("first", "4g.40gb")))
    victims = story.preempt()
    assert len(victims) == 2
    story.delete(*victims)
    story.schedule()
    assert story.pods["first"].spec.node_name == "a"


def test_a_gang_takes_instances_or_none() -> None:
    story = GangStory(cut("a", 79))
    profile = {names.MIG_PROFILE: MIDDLE}
    story.create(*members(3, gang="big", prefix="big", least=3, mem=20, annotations=profile))
    story.come(*(f"big{i}" for i in range(3)))
    assert story.flying == {}
    assert story.why("big") == "GangNoRoom"
    story.start(*members(2, gang="fits", prefix="fits", least=2, mem=20, annotations=profile))
    books = story.engine.nodes["a"].books
    assert books is not None
    assert sorted(uuid for entry in books.entries.values() for uuid in entry.charges) == [
        "GPU-a-0/3g.40gb@0:4", "GPU-a-0/3g.40gb@4:4",
    ]  # fmt: skip


@pytest.mark.parametrize("gpus", [(0,), (0, 1)])
def test_a_gpu_of_which_instances_are_made_is_the_capacity_of_one_gpu(gpus: tuple[int, ...]) -> None:
    story = Story(cut("a", 79, 79, gpus=gpus))
    ledger = story.engine._components.ledger
    books = story.engine.nodes["a"].books
    assert books is not None
    for number in range(2):
        assert Supply(ledger).of_node("a")[GPUS] == 2 * GPU
        assert usable(books) == 2 * GPU
        assert run(story, asking(f"p{number}", MIDDLE))


def test_a_closed_node_has_the_capacity_that_is_held() -> None:
    node = cut("a", 79, 79)
    story = Story(node)
    assert run(story, asking("p", MIDDLE))
    text = inventory.encode(msgspec.structs.replace(divisible(an_inventory(79, 79, node="a"), [0]), state="leaving"))
    story.tell(
        NodeSeen(
            msgspec.structs.replace(
                node, metadata=msgspec.structs.replace(node.metadata, annotations={names.GPUS: text})
            )
        )
    )
    assert Supply(story.engine._components.ledger).of_node("a")[GPUS] == GPU * 3 // 7


def test_what_is_used_and_estimated_are_compute_slices() -> None:
    story = Story(cut("a", 79))
    usage = UsageCalculator(story.engine._components.ledger)

    def amounts(pod: Pod) -> tuple[int, int]:
        """As estimated, and as used."""
        story.tell(PodSeen(pod))
        estimate = dict(usage.of(story.engine.pods[pod.metadata.uid], ""))[GPUS]
        assert story.run(pod)
        return estimate, dict(usage.of(story.engine.pods[pod.metadata.uid], ""))[GPUS]

    assert amounts(asking("one")) == (GPU // 7, GPU // 7)
    assert amounts(a_pod("amount", mem=4)) == (GPU // 7, GPU // 7)
    assert amounts(a_pod("large", mem=30)) == (GPU * 3 // 7, GPU * 3 // 7)


def test_a_class_counts_the_instances_of_one_profile() -> None:
    stock = Stock()
    stock.put("a", divisible(an_inventory(79, 79, node="a"), [0]))
    assert stock.matching(Selection(profile=SMALL))[0] == 7
    assert stock.matching(Selection(profile=MIDDLE))[0] == 2
    assert stock.matching(Selection())[0] == 8, "seven of the smallest, and the whole GPU"
    assert stock.amount(Selection()) == 14
    assert stock.amount(Selection(profile=MIDDLE)) == 6


def test_people_see_instances_that_pods_have_and_what_can_be_made() -> None:
    story = Story(cut("a", 79, 79))
    assert run(story, asking("p", MIDDLE)) == "a 0@4-7"
    node = inspect.node(story.engine, story.engine.nodes["a"])
    assert [(mig.shown(gpu.index), gpu.profile, len(gpu.pods)) for gpu in node.gpus] == [
        ("0", "", 0), ("1", "", 0), ("0@4-7", MIDDLE, 1),
    ]  # fmt: skip
    parent = node.gpus[0]
    assert parent.on_demand
    assert parent.makes == "1g.10gb ×4, 1g.10gb+me ×1, 1g.20gb ×2, 2g.20gb ×2, 3g.40gb ×1, 4g.40gb ×1"
    on = verdicts.of_node(node, story.engine.nodes["a"])
    assert on.headline.endswith("MIG instances can be made")
    assert verdicts.of_gpu(parent, on, "a").state == "open"
    text = b"".join(pieces(story.engine, CollectorRegistry(), tenants=True)).decode()
    assert text.count("gangshare_mig_instance{") == 1
    assert 'gangshare_gpu_allocated_ratio{node="a",UUID="GPU-a-0/3g.40gb@4:4",gpu="0@4-7"} 1' in text
    assert "1g.10gb" not in text


def test_a_node_of_which_nothing_more_can_be_made_is_full() -> None:
    story = Story(cut("a", 79))
    assert run(story, asking("p", LARGE)) == "a 0@0-7"
    node = inspect.node(story.engine, story.engine.nodes["a"])
    on = verdicts.of_node(node, story.engine.nodes["a"])
    assert on.state == "full"
    assert verdicts.of_gpu(node.gpus[0], on, "a").state == "full"

"""MIG instances in the engine: who gets them, what refusals say, and what queues count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.planning.defrag_plan import NoPlan
from extender.engine.planning.snapshot import NodeSnapshot
from extender.engine.queueing.usage import Supply, UsageCalculator, usable
from extender.engine.state.empty_nodes import NodeKind
from extender.engine.types.events import ClassSeen, NodeSeen, PodGone, PodSeen
from protos.contract import gpu_class, inventory, names
from protos.contract.ask import ContainerAsk, PodAsk
from protos.contract.objects import Node, Pod
from protos.contract.queue import GPU, GPUS
from protos.contract.reason import Reason
from tests.builders import a_container, a_cut_node, a_node, a_pod, an_inventory, cut
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.preemption_story import PreemptionStory, urgent
from tests.unit.engine.story import Story
from tests.unit.engine.tenancy import Town

SMALL, LARGE = "1g.10gb", "3g.40gb"
SEVEN = [SMALL] * 7


def asking(name: str, profile: str = SMALL, count: int = 1, **fields: Any) -> Pod:
    return a_pod(name, containers=[a_container("main", limits={f"nvidia.com/mig-{profile}": str(count)})], **fields)


def refused(story: Story, pod: Pod) -> Reason:
    story.tell(PodSeen(pod))
    assert story.filter(pod) == []
    found = story.engine.explain(story.engine.pods[pod.metadata.uid])
    assert found is not None
    return found


def test_pods_get_an_instance_each_and_wait_when_all_are_taken() -> None:
    story = Story(a_cut_node("a", 79, instances={0: [SMALL, SMALL]}), a_node("b", 79))
    assert [story.run(asking(f"p{i}")) for i in range(2)] == ["a:256", "a:257"]
    reason = refused(story, asking("late"))
    assert (reason.code, reason.sentence) == ("NoRoom", "no node with 1 MIG instance 1g.10gb free")
    assert reason.numbers == "needs 1 MIG instance 1g.10gb; freest: a 0 of 2 such MIG instances free"
    story.tell(PodGone("uid-p0"))
    assert story.wakes() == ["late"]


def test_a_profile_that_no_node_has_is_told_with_those_that_there_are() -> None:
    story = Story(a_cut_node("a", 79, instances={0: [SMALL, SMALL, LARGE]}))
    reason = refused(story, asking("p", "1g.10gb+me"))
    assert (reason.code, reason.sentence) == ("NoMatch", "no GPU in the cluster matches MIG profile 1g.10gb+me")
    assert reason.numbers == "it has 1g.10gb ×2, 3g.40gb ×1; did you mean 1g.10gb?"
    bare = Story(a_node("a", 79))
    assert refused(bare, asking("p")).numbers == "it has none"


@pytest.mark.parametrize(
    ("pod", "numbers"),
    [
        (
            asking("p", SMALL, 3),
            "a comes nearest with 2 such MIG instances: request at most 2, or make it several pods",
        ),
        (
            a_pod("p", mem=10, annotations={names.MIG_PROFILE: SMALL}),
            "an instance 1g.10gb has 9 GiB: request less of each, or a larger profile",
        ),
        (
            asking("p", annotations={names.GPU_MODEL: "T4"}),
            "no MIG instance 1g.10gb is of a selected GPU: loosen the selection",
        ),
    ],
)
def test_what_no_node_can_give_is_told(pod: Pod, numbers: str) -> None:
    story = Story(a_cut_node("a", 79, instances={0: [SMALL, SMALL]}), a_node("t", 16))
    reason = refused(story, pod)
    assert (reason.code, reason.numbers) == ("CannotFit", numbers)


def test_the_largest_gpu_that_is_told_is_none_in_mig_mode() -> None:
    story = Story(a_cut_node("a", 79, 16, instances={0: [LARGE]}))
    assert refused(story, a_pod("p", mem=60)).numbers.startswith("the largest GPU has 39 GiB, on a: ")
    two = a_pod("q", mem=40, annotations={names.GPU_COUNT: "2"})
    assert refused(story, two).numbers.startswith("the largest GPU has 16 GiB, on a: ")


def test_an_amount_of_a_profile_that_is_taken_is_told() -> None:
    story = Story(a_cut_node("a", 79, 79, instances={0: [SMALL]}))
    assert story.run(asking("p"))
    reason = refused(story, a_pod("q", mem=4, annotations={names.MIG_PROFILE: SMALL}))
    assert reason.sentence == "no node with 1 MIG instance 1g.10gb with 4 GiB free"


def test_an_instance_is_selected_by_its_uuid() -> None:
    story = Story(a_cut_node("a", 79, instances={0: [SMALL, SMALL]}), a_node("b", 79))
    assert story.run(a_pod("p", mem=4, annotations={names.GPU_UUID: "MIG-GPU-a-0-1"})) == "a:257"


def test_models_that_are_told_count_no_gpu_in_mig_mode() -> None:
    story = Story(a_cut_node("a", 79, 79, instances={0: []}))
    reason = refused(story, a_pod("p", mem=4, annotations={names.GPU_MODEL: "V100"}))
    assert reason.numbers == "it has A100 ×1; did you mean A100?"


def test_an_instance_meets_the_demand_that_its_node_does_not() -> None:
    story = Story(a_cut_node("a", 79, 79, instances={0: [SMALL]}))
    pods = [a_pod(f"p{i}", mem=4, annotations={names.ISOLATION: "memory"}) for i in range(2)]
    assert story.run(pods[0]) == "a:256"
    assert refused(story, pods[1]).code == "NoRoom"
    assert refused(Story(a_node("b", 79)), pods[1]).code == "NoIsolation"


def test_a_class_selects_instances() -> None:
    story = Story(a_cut_node("a", 79, 79, instances={0: [LARGE, SMALL, SMALL]}))
    text = {"metadata": {"name": "small"}, "spec": {"migProfile": SMALL}}
    story.tell(ClassSeen(gpu_class.decode(msgspec.json.encode(text))))
    pod = a_pod("p", mem=2, annotations={names.GPU_CLASS: "small"})
    assert story.run(pod) == "a:257"
    story.wakes()
    (status,) = story.engine.classes.statuses()
    assert (status.gpus, status.free, status.nodes) == (2, 1, 1)


def test_an_instance_that_goes_while_it_is_held_stays_booked_and_comes_back_held() -> None:
    node = a_cut_node("a", 79, instances={0: [SMALL]})
    story = Story(node)
    assert story.run(asking("p")) == "a:256"
    story.tell(NodeSeen(_uncut(node)))
    books = story.engine.nodes["a"].books
    assert books is not None
    assert list(books.entries["uid-p"].charges) == ["MIG-GPU-a-0-0"]
    assert story.run(a_pod("whole", whole=1)) == "a:0"
    story.tell(NodeSeen(node))
    assert refused(story, asking("late")).code == "NoRoom"


def _uncut(node: Node) -> Node:
    """The same node after its GPU has left MIG mode."""
    text = inventory.encode(an_inventory(79, node="a", models=["A100"]))
    metadata = msgspec.structs.replace(node.metadata, annotations={names.GPUS: text})
    return msgspec.structs.replace(node, metadata=metadata)


def test_a_node_without_inventory_serves_instances_of_another_plugin() -> None:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/mig-1g.10gb": "2", "nvidia.com/gpu": "2"}
    story = Story(a_node("theirs", allocatable=amounts))
    assert story.filter(asking("p", SMALL, 2)) == ["theirs"]
    assert story.filter(asking("q", SMALL, 3)) == []
    assert story.filter(a_pod("r", whole=1, annotations={names.MIG_PROFILE: SMALL})) == []


def test_the_kubelets_count_of_instances_does_not_matter_where_the_books_count() -> None:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/mig-1g.10gb": "0"}
    text = inventory.encode(cut(an_inventory(79, node="a"), {0: [SMALL]}))
    story = Story(a_node("a", annotations={names.GPUS: text}, allocatable=amounts))
    assert story.run(asking("p")) == "a:256"


@pytest.mark.parametrize(
    ("instances", "capacity"),
    [
        ({}, 2 * GPU),
        ({0: []}, GPU),
        ({0: SEVEN}, GPU + 7 * (GPU // 7)),
        ({0: [LARGE], 1: ["7g.80gb"]}, GPU * 3 // 7 + GPU),
    ],
)
def test_capacity_is_compute_slices(instances: dict[int, list[str]], capacity: int) -> None:
    story = Story(a_cut_node("a", 79, 79, instances=instances))
    ledger = story.engine._components.ledger
    assert Supply(ledger).of_node("a")[GPUS] == capacity
    books = story.engine.nodes["a"].books
    assert books is not None
    assert usable(books) == capacity


def test_what_is_used_and_estimated_are_compute_slices() -> None:
    story = Story(a_cut_node("a", 79, 79, instances={0: [LARGE, SMALL, SMALL]}))
    usage = UsageCalculator(story.engine._components.ledger)

    def amounts(pod: Pod) -> tuple[int, int]:
        """As estimated, and as used."""
        story.tell(PodSeen(pod))
        estimate = dict(usage.of(story.engine.pods[pod.metadata.uid], ""))[GPUS]
        assert story.run(pod)
        return estimate, dict(usage.of(story.engine.pods[pod.metadata.uid], ""))[GPUS]

    assert amounts(asking("one")) == (GPU // 7, GPU // 7)
    assert amounts(a_pod("amount", mem=4)) == (GPU * 3 // 7, GPU // 7)
    assert amounts(a_pod("large", mem=30)) == (GPU * 3 // 7, GPU * 3 // 7)
    assert amounts(a_pod("part", mem=30)) == (GPU * 3 // 7, 30 * GPU // 79)
    node = a_cut_node("a", 79, 79, instances={0: []})
    story.tell(NodeSeen(node))
    gone = dict(usage.of(story.engine.pods["uid-one"], ""))[GPUS]
    assert gone == GPU * 14 // 100


def test_a_gang_takes_instances_or_none() -> None:
    story = GangStory(a_cut_node("a", 79, instances={0: SEVEN}))
    profile = {names.MIG_PROFILE: SMALL}
    story.create(*members(8, gang="big", prefix="big", least=8, mem=4, annotations=profile))
    story.come(*(f"big{i}" for i in range(8)))
    assert story.flying == {}
    assert story.why("big") == "GangNoRoom"
    story.start(*members(7, gang="fits", prefix="fits", least=7, mem=4, annotations=profile))
    books = story.engine.nodes["a"].books
    assert books is not None
    assert sorted(uuid for entry in books.entries.values() for uuid in entry.charges) == [
        f"MIG-GPU-a-0-{place}" for place in range(7)
    ]


def test_a_pod_of_higher_priority_evicts_the_holder_of_one_instance() -> None:
    story = PreemptionStory(a_cut_node("a", 79, instances={0: [LARGE, SMALL]}))
    for name, profile in (("large", LARGE), ("small", SMALL)):
        assert story.runs(asking(name, profile)) == "a"
    story.later(20.0)
    story.waits(urgent(asking("first")))
    assert story.preempt() == ["small"]
    story.delete("small")
    story.schedule()
    assert story.pods["first"].spec.node_name == "a"


def test_a_snapshot_and_an_empty_node_keep_a_gpu_in_mig_mode() -> None:
    story = Story(a_cut_node("a", 79, instances={0: [SMALL]}))
    state = story.engine.nodes["a"]
    assert state.books is not None
    kind = NodeKind(state.books.inventory)
    assert kind.books is not None
    assert [book.gpu.health for book in kind.books.gpus.values()] == ["mig", "ok"]
    snapshot = NodeSnapshot(state)
    assert snapshot.books is not None
    assert snapshot.books.profiles == {SMALL}


def test_a_pod_with_an_amount_is_moved_off_an_instance_for_one_that_names_it() -> None:
    town = Town([1, 1])
    town.engine.step(NodeSeen(a_cut_node("n0", 79, instances={0: [SMALL]})), town.now)
    town.settle("amount", (1, False, 4), node="n0")
    assert town.places["amount"] == ("n0", (256,))
    wanted = PodAsk(containers=(ContainerAsk(name="main", gpus=1, whole=f"nvidia.com/mig-{SMALL}", profile=SMALL),))
    assert town.moves(wanted) == ["amount n0:0→n1:0"]


def test_a_pod_that_names_a_profile_is_never_moved_to_another() -> None:
    town = Town([1, 1])
    town.engine.step(NodeSeen(a_cut_node("n0", 79, instances={0: [SMALL]})), town.now)
    town.settle("named", (1, False, 4), node="n0", annotations={names.MIG_PROFILE: SMALL})
    wanted = PodAsk(containers=(ContainerAsk(name="main", gpus=1, whole=f"nvidia.com/mig-{SMALL}", profile=SMALL),))
    assert isinstance(town.plan([wanted], most=2), NoPlan)

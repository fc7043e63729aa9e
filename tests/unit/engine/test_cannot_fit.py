"""What no node could take even if it were empty is told apart from what waits for room."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.state.empty_nodes import EmptyNodes
from extender.engine.types.effects import Requeue
from extender.engine.types.events import GpusUnhealthy, NodeGone, NodeSeen, PodSeen, PodsListed, QueueSeen, Tick
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.queue import GPU, GPUS, Queue
from tests.builders import a_container, a_node, a_pod
from tests.unit.engine.selections import a_machine, refusal
from tests.unit.engine.story import Story

BIG: dict[str, Any] = {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}}


@pytest.fixture
def story() -> Story:
    """Eight T4 with 15 units each on one node, four V100 with 31 units each on another."""
    return Story(
        a_machine("t", "T4", *[15] * 8),
        a_machine("v", "V100", *[31] * 4),
    )


def code(story: Story, pod: Pod) -> str:
    reason = story.engine.filter(pod, sorted(story.engine.nodes), story.now).reason
    assert reason is not None
    return reason.code


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        (
            a_pod(whole=64),
            "no node in the cluster could fit 64 whole GPUs on one node, even if it were empty: "
            "t comes nearest with 8 such GPUs: request at most 8, or make it several pods",
        ),
        (
            a_pod(mem=500),
            "no node in the cluster could fit 500 GiB on one GPU, even if it were empty: the largest GPU has 31 GiB, "
            "on v: write gangshare.io/gpu-mem: 31 or less, or spread it over more GPUs by gangshare.io/gpu-count",
        ),
        (
            a_pod(mem=20, annotations={names.GPU_MODEL: "T4"}),
            "no node in the cluster could fit 20 GiB on one GPU, even if it were empty: the largest GPU has 15 GiB, "
            "on t: write gangshare.io/gpu-mem: 15 or less, or spread it over more GPUs by gangshare.io/gpu-count",
        ),
        (
            a_pod(mem=100, annotations={names.GPU_COUNT: "5"}),
            "no node in the cluster could fit 20 GiB on each of 5 GPUs, even if it were empty: "
            "v comes nearest with 4 such GPUs: request at most 4, or make it several pods",
        ),
        (
            a_pod(slices=150),
            "no node in the cluster could fit 150 slices on one GPU, even if it were empty: "
            "a GPU has 100 slices: request at most 100 of each GPU, or whole GPUs",
        ),
        (
            a_pod(containers=[a_container(f"c{i}", whole=3) for i in range(3)]),
            "no node in the cluster could fit 3 whole GPUs + 3 whole GPUs + 3 whole GPUs on one node, even if it were "
            "empty: each of its containers would fit alone: request less, or make them several pods",
        ),
        (
            a_pod(containers=[a_container("c", limits={names.SHARED_GPU: "1"})]),
            "no node in the cluster could fit 1 whole GPU, even if it were empty: no node serves nvidia.com/gpu.shared",
        ),
    ],
)
def test_what_fits_on_no_empty_node_says_the_limit_the_nearest_node_and_what_to_change(
    story: Story, pod: Pod, sentence: str
) -> None:
    assert code(story, pod) == "CannotFit"
    assert refusal(story, pod) == sentence


@pytest.mark.parametrize(
    ("mem", "count", "hint"),
    [
        (3000, 1, "for 3000 MiB, write gangshare.io/gpu-mem: 3"),
        (6000, 2, "for 6000 MiB, write gangshare.io/gpu-mem: 6"),
        (32 * 1024, 1, "on v: write gangshare.io/gpu-mem: 31 or less"),
        (1000, 1, "on v: write gangshare.io/gpu-mem: 31 or less"),
    ],
)
def test_amounts_that_were_probably_meant_in_mib_get_the_line_to_write(
    story: Story, mem: int, count: int, hint: str
) -> None:
    assert hint in refusal(story, a_pod(mem=mem, annotations={names.GPU_COUNT: f"{count}"}))


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(whole=8),
        a_pod(mem=31),
        a_pod(mem=124, slices=400, annotations={names.GPU_COUNT: "4"}),
        a_pod(init=[a_container("i", whole=4)], containers=[a_container("c", mem=31)]),
        a_pod(containers=[a_container(f"c{i}", whole=4) for i in range(2)]),
    ],
)
def test_what_would_fit_on_an_empty_node_waits_for_room(story: Story, pod: Pod) -> None:
    for node, gpus in (("t", 8), ("v", 4)):
        story.run(a_pod(f"all-of-{node}", whole=gpus, annotations={names.GPU_UUID: f"GPU-{node}-*"}))
    assert code(story, pod) == "NoRoom"


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ({"cpu": "500"}, "500 cpu, even if it were empty: big comes nearest with 64 cpu: request at most that"),
        ({"memory": "1000Gi"}, "1000Gi memory, even if it were empty: big comes nearest with 256Gi memory: request"),
    ],
)
def test_more_cpu_or_memory_than_any_node_with_such_gpus_has_is_told_though_kube_scheduler_never_asks(
    requests: dict[str, str], words: str
) -> None:
    small = a_node("small", 16, allocatable={"cpu": "8", "memory": "32Gi", "pods": "110"})
    cpus = a_node("cpus", allocatable={"cpu": "1000", "memory": "9000Gi", "pods": "110"})
    story = Story(a_node("big", 16, **BIG), small, cpus)
    pod = a_pod(containers=[a_container("c", mem=4, limits=requests)])
    story.tell(PodSeen(pod))
    reason = story.engine.explain(story.engine.pods["uid-p"])
    assert reason is not None
    assert reason.code == "CannotFit"
    assert words in str(reason)


def test_nodes_whose_whole_gpus_another_plugin_serves_count() -> None:
    story = Story(a_node("theirs", allocatable={"cpu": "8", "pods": "110", names.WHOLE_GPU: "4"}), a_node("ours", 16))
    assert story.filter(a_pod("four", whole=4)) == ["theirs"]
    assert code(story, a_pod("five", whole=5)) == "CannotFit"
    assert code(story, a_pod("selects", whole=4, annotations={names.GPU_MODEL: "T4"})) == "CannotFit"


def test_replicas_count_as_the_node_serves_them() -> None:
    story = Story(a_node("n", 16, 16, replicas={names.WHOLE_GPU: 2}))
    assert code(story, a_pod("five", whole=5)) == "CannotFit"
    assert story.filter(a_pod("two", whole=2)) == ["n"]


def test_gpus_that_take_no_pods_for_now_may_take_them_later() -> None:
    story = Story(a_node("n", 16, 16, annotations={names.CORDONED_GPUS: "0"}))
    story.tell(GpusUnhealthy("n", frozenset([1])))
    assert code(story, a_pod(whole=2)) == "NoRoom"
    assert code(story, a_pod("q", whole=3)) == "CannotFit"


def test_without_any_gpu_nothing_is_called_too_large() -> None:
    assert code(Story(a_node("n")), a_pod(whole=64)) == "NoRoom"


def in_queue(**fields: Any) -> Pod:
    return a_pod(annotations={names.QUEUE: "q", **fields.pop("annotations", {})}, **fields)


def requested(story: Story) -> tuple[float, int]:
    """GPUs requested of queue q, and pods that wait in it."""
    queue = story.engine.tenancy.queues.queue_nodes["q"]
    return queue.requested.get(GPUS, 0) / GPU, queue.waiting


@pytest.mark.parametrize(
    "fields",
    [
        {"whole": 64},
        {"slices": 150},
        {"mem": 4, "annotations": {names.GPU_MODEL: "A100"}},
        {"containers": [a_container("c", mem=4, limits={"cpu": "500"})]},
    ],
)
def test_what_can_never_run_requests_nothing_of_its_queue(fields: dict[str, Any]) -> None:
    story = Story(a_node("big", 16, **BIG))
    story.tell(QueueSeen(Queue(name="q")))
    story.tell(PodSeen(in_queue(name="p", **fields)))
    assert requested(story) == (0, 1)
    story.tell(PodSeen(in_queue(name="fits", whole=1)))
    assert requested(story) == (1, 2)


def test_it_counts_and_is_requeued_once_when_a_node_comes_on_which_it_fits() -> None:
    story = Story(a_node("n", *[16] * 4))
    story.tell(QueueSeen(Queue(name="q")))
    pod = in_queue(name="p", whole=8)
    story.tell(PodSeen(pod))
    assert code(story, pod) == "CannotFit"
    story.tell(NodeSeen(a_node("same", *[16] * 4)))
    assert story.wakes() == []
    story.tell(NodeSeen(a_node("large", *[16] * 8)))
    assert story.wakes() == ["p"]
    assert requested(story) == (8, 0), "it holds the node softly"
    assert story.wakes() == []
    assert story.run(pod) == "large:0,1,2,3,4,5,6,7"


def test_what_no_node_can_take_any_more_counts_no_longer() -> None:
    story = Story(a_node("n", *[16] * 4), a_node("large", *[16] * 8))
    story.tell(QueueSeen(Queue(name="q")))
    pods = [in_queue(name=f"p{number}", whole=8) for number in range(3)]
    for pod in pods:
        story.tell(PodSeen(pod))
    assert requested(story) == (24, 3)
    story.tell(NodeGone("large"))
    effects = story.tell(Tick())
    assert requested(story) == (0, 3)
    assert [effect for effect in effects if isinstance(effect, Requeue)] == []


def test_a_quota_that_is_full_is_not_the_reason_of_what_can_never_run() -> None:
    story = Story(a_node("n", *[16] * 4))
    story.tell(QueueSeen(Queue(name="q", capability={GPUS: GPU})))
    pod = in_queue(name="p", whole=8)
    story.tell(PodSeen(pod))
    assert code(story, pod) == "CannotFit"


def test_a_pod_that_fits_again_still_needs_quota() -> None:
    story = Story(a_node("n", *[16] * 4))
    story.tell(QueueSeen(Queue(name="q", capability={GPUS: GPU})))
    pod = in_queue(name="p", whole=8)
    story.tell(PodSeen(pod))
    story.tell(NodeSeen(a_node("large", *[16] * 8)))
    assert code(story, pod) == "QueueFull"


def test_moves_are_not_searched_for_what_can_never_fit(story: Story) -> None:
    pod = a_pod("p", whole=64)
    story.tell(PodSeen(pod))
    plan = story.engine.defrag(story.engine.pods["uid-p"], None, 8)  # type: ignore[arg-type]
    assert plan is not None
    while not plan.advance():  # type: ignore[union-attr]
        pass
    assert "could fit 64 whole GPUs on one node" in plan.told(story.engine.nodes)["verdict"]  # type: ignore[union-attr]


def test_bookings_and_repeated_sights_change_no_kind_of_node(story: Story) -> None:
    before = story.engine._components.cannot_fit.generation
    story.run(a_pod("x", mem=4))
    story.tell(NodeSeen(a_machine("v", "V100", *[31] * 4)))
    story.tell(NodeSeen(a_machine("v2", "V100", *[31] * 4)))
    story.tell(NodeGone("v2"))
    assert story.engine._components.cannot_fit.generation == before


def test_the_largest_amounts_follow_the_nodes() -> None:
    nodes: dict[str, Any] = {}
    story = Story()
    kinds = EmptyNodes(story.engine.nodes, (names.WHOLE_GPU,))
    for name, cpu in (("a", "8"), ("b", "64"), ("c", "8")):
        story.tell(NodeSeen(a_node(name, 16, allocatable={"cpu": cpu})))
        kinds.changed(name)
        nodes[name] = cpu
    (kind,) = kinds.kinds
    assert (kind.most["cpu"], kind.having("cpu")) == (64_000, "b")
    for gone, most in (("b", 8000), ("a", 8000)):
        story.tell(NodeGone(gone))
        kinds.changed(gone)
        assert kind.most["cpu"] == most
    story.tell(NodeGone("c"))
    kinds.changed("c")
    assert list(kinds.kinds) == []


def test_a_gang_with_too_few_members_that_fit_anywhere_is_not_planned_until_another_node_comes(story: Story) -> None:
    wishes = {names.GROUP: "g", names.MIN_MEMBER: "2"}
    story.tell(PodsListed())
    for name, gpus in (("small", 1), ("large", 64)):
        story.tell(PodSeen(a_pod(name, whole=gpus, annotations=wishes)))
    settle(story)
    known = story.engine.gangs.roster.known
    (gang,) = known.values()
    assert gang.reason is not None
    assert gang.reason.code == "GangCannotFit"
    assert "64 whole GPUs" in gang.reason.numbers
    planned = story.engine.gangs.planner.turns
    for _ in range(5):
        story.tell(NodeSeen(a_machine("v", "V100", *[31] * 4, clock_mhz=0)))
        story.tell(NodeSeen(a_machine("more", "V100", *[31] * 4)))
        settle(story)
        assert gang.gang not in planned
    story.tell(NodeSeen(a_node("huge", *[16] * 64)))
    settle(story)
    assert gang.reason is None


def settle(story: Story) -> None:
    story.now += 1.0
    story.tell(Tick())
    while story.engine.run_slice(story.now):
        pass

"""What no GPU of the cluster could serve is said at once, and until such a GPU comes."""

from __future__ import annotations

import pytest

from extender.engine.state.likeness import COMPARED, meant
from extender.engine.state.stock import Stock
from extender.engine.types.events import NodeGone, NodeSeen, PodSeen, PodsListed
from protos.contract import names
from protos.contract.selection import Selection
from tests.builders import a_node, a_pod
from tests.unit.engine.selections import a_class, a_machine, named, refusal
from tests.unit.engine.story import Story

MESH = ((0, 1, "NV2"), (1, 2, "NV2"), (0, 2, "NV2"), (2, 3, "NV1"), (0, 3, "SYS"), (1, 3, "SYS"))


@pytest.fixture
def story() -> Story:
    """Eight T4, and four V100 of which the first three are joined by NVLink; two of those are on each NUMA node."""
    return Story(
        a_machine("t", "T4", *[15] * 8, clock_mhz=1590, cc="7.5"),
        a_machine("v", "V100", *[31] * 4, links=MESH, clock_mhz=1530, cc="7.0"),
    )


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        (
            {names.GPU_MODEL: "A100*"},
            "no GPU in the cluster matches model A100*: it has T4 ×8, V100 ×4; did you mean V100?",
        ),
        ({names.GPU_MODEL: "!T4,!V100"}, "no GPU in the cluster matches model !T4,!V100: it has T4 ×8, V100 ×4"),
        ({names.GPU_MODEL: "P4"}, "no GPU in the cluster matches model P4: it has T4 ×8, V100 ×4"),
        ({names.MIN_GPU_MEMORY: "80Gi"}, "no GPU in the cluster matches min-gpu-memory 80Gi: the largest has 31 GiB"),
        ({names.MIN_CLOCK_MHZ: "1600"}, "no GPU in the cluster matches min-clock-mhz 1600: the fastest has 1590 MHz"),
        (
            {names.MIN_COMPUTE_CAPABILITY: "8"},
            "no GPU in the cluster matches min-compute-capability 8.0: the newest has 7.5",
        ),
        ({names.GPU_UUID: "GPU-x"}, "no GPU in the cluster matches uuid GPU-x: it has T4 ×8, V100 ×4"),
        ({names.GPU_UUID: "GPU-x*,GPU-y"}, "no GPU in the cluster matches uuid GPU-x*,GPU-y: it has T4 ×8, V100 ×4"),
        (
            {names.GPU_MODEL: "T4", names.MIN_GPU_MEMORY: "20Gi"},
            "no GPU in the cluster matches model T4 and min-gpu-memory 20Gi: it has T4 ×8, V100 ×4",
        ),
        (
            {names.GPU_UUID: "gpu-t-0", names.GPU_MODEL: "V100"},
            "no GPU in the cluster matches uuid gpu-t-0 and model V100: it has T4 ×8, V100 ×4",
        ),
        (
            {names.LINK: "nvlink", names.GPU_COUNT: "4"},
            "no node in the cluster has link nvlink for 4 GPUs: for 3 at most",
        ),
        (
            {names.LINK: "nvlink", names.GPU_COUNT: "2", names.GPU_MODEL: "T4"},
            "no node in the cluster has link nvlink for 2 GPUs that match model T4: not even for 2",
        ),
    ],
)
def test_what_nothing_matches_is_said_with_what_there_is(
    story: Story, annotations: dict[str, str], sentence: str
) -> None:
    assert refusal(story, a_pod(mem=4, annotations=annotations)) == sentence


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {names.GPU_MODEL: "v1*"},
        {names.GPU_MODEL: "v10"},
        {names.GPU_UUID: "gpu-V-3"},
        {names.GPU_UUID: "GPU-v-*"},
        {names.GPU_UUID: "!GPU-t-*"},
        {names.LINK: "nvlink", names.GPU_COUNT: "3"},
    ],
)
def test_what_is_merely_full_is_not_called_impossible(story: Story, annotations: dict[str, str]) -> None:
    for node, gpus in (("t", 8), ("v", 4)):
        story.run(a_pod(f"all-of-{node}", whole=gpus, annotations={names.GPU_UUID: f"GPU-{node}-*"}))
    pod = a_pod(mem=6, annotations=annotations)
    assert refusal(story, pod).startswith("no ")
    assert "in the cluster" not in refusal(story, pod)


def test_gpus_of_one_numa_node_that_no_node_has_are_told(story: Story) -> None:
    story.tell(NodeSeen(a_machine("two-sockets", "A100", 79, 79, 79, numa=[0, 0, 1])))
    story.tell(a_class(models=["A100"], numaLocal=True))
    two, three = (named(str(count), annotations={names.GPU_COUNT: str(count)}, mem=6) for count in (2, 3))
    assert story.filter(two) == ["two-sockets"]
    told = "no node in the cluster has one NUMA node for 3 GPUs that match model A100: for 2 at most"
    assert refusal(story, three) == told


def test_a_limit_of_the_class_is_told_too(story: Story) -> None:
    story.tell(a_class(maxMemory="16Gi"))
    pod = named(annotations={names.MIN_GPU_MEMORY: "20Gi"})
    told = "no GPU in the cluster matches min-gpu-memory 20Gi and its class's maxMemory 16Gi: it has T4 ×8, V100 ×4"
    assert refusal(story, pod) == told


def test_a_cluster_without_gpus_says_so() -> None:
    assert refusal(Story(a_node("n")), a_pod(mem=1, annotations={names.GPU_MODEL: "T4"})) == (
        "no GPU in the cluster matches model T4: it has none"
    )


def test_the_sentence_for_kube_scheduler_has_no_numbers_that_move(story: Story) -> None:
    pod = a_pod(mem=4, annotations={names.GPU_MODEL: "A100*"})
    first = story.engine.filter(pod, ["t", "v"], story.now).reason
    story.tell(NodeGone("t"))
    second = story.engine.filter(pod, ["v"], story.now).reason
    assert first is not None
    assert second is not None
    assert first.sentence == second.sentence == "no GPU in the cluster matches model A100*"
    assert (first.numbers, second.numbers) == (
        "it has T4 ×8, V100 ×4; did you mean V100?",
        "it has V100 ×4; did you mean V100?",
    )


def test_a_pod_is_woken_when_a_node_that_matches_comes_and_by_no_other(story: Story) -> None:
    pod = a_pod(mem=4, annotations={names.GPU_MODEL: "A100*"})
    story.tell(PodSeen(pod))
    assert refusal(story, pod)
    story.tell(NodeSeen(a_machine("h", "H100", 79)))
    assert story.wakes() == []
    story.tell(NodeSeen(a_machine("a", "A100", 79)))
    assert story.wakes() == ["p"]
    assert story.run(pod) == "a:0"


def test_what_is_said_follows_the_nodes_that_come_and_go(story: Story) -> None:
    pod = a_pod(mem=40, annotations={names.GPU_MODEL: "A100*"})
    assert "in the cluster" in refusal(story, pod)
    story.tell(NodeSeen(a_machine("a", "A100", 39)))
    assert refusal(story, pod).startswith("no node in the cluster could fit 40 GiB on one GPU, even if it were empty")
    story.tell(NodeGone("a"))
    assert "in the cluster" in refusal(story, pod)


def test_a_node_of_unknown_gpus_is_none_for_a_pod_that_selects() -> None:
    theirs = a_node("x", allocatable={"cpu": "8", "pods": "110", names.WHOLE_GPU: "4"})
    story = Story(theirs)
    assert story.filter(a_pod("any", whole=1)) == ["x"]
    for wish in ({names.GPU_MODEL: "T4"}, {names.LINK: "nvlink"}):
        assert story.filter(a_pod("picky", whole=2, annotations=wish)) == []


def test_gangs_say_it_as_well(story: Story) -> None:
    wishes = {names.GROUP: "g1", names.MIN_MEMBER: "1", names.GPU_MODEL: "A100*"}
    pod = a_pod("m", whole=1, annotations=wishes)
    story.tell(PodsListed())
    story.tell(PodSeen(pod))
    while story.engine.run_slice(story.now):
        pass
    words = refusal(story, pod)
    assert words.startswith(
        "gang default/g1 cannot start: some of its members fit on no node, even an empty one: "
        "no GPU in the cluster matches model A100*: it"
    )


@pytest.mark.parametrize("count", [9, 10**6, 2**63 - 1])
def test_no_more_is_looked_at_than_the_largest_node_has(
    story: Story, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    joins = Stock.joins

    def joined(stock: Stock, wanted: Selection, n: int) -> bool:
        looked.append(n)
        return joins(stock, wanted, n)

    monkeypatch.setattr(Stock, "joins", joined)
    pod = a_pod(whole=count, annotations={names.LINK: "nvlink"})
    assert refusal(story, pod) == f"no node in the cluster has link nvlink for {count} GPUs: for 3 at most"
    assert looked == [count, 8, 7, 6, 5, 4, 3]


REAL = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "Tesla T4")


@pytest.mark.parametrize(
    ("glob", "model"),
    [
        ("A10O", "A100"),
        ("A100*", "A100"),
        ("NVIDIA-A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("!A100,h-100", "H100"),
        ("MI300X", ""),
        ("nvidia*", ""),
        ("*", ""),
        ("!T4", ""),
    ],
)
def test_the_model_that_was_probably_meant_is_named(glob: str, model: str) -> None:
    assert meant(tuple(glob.split(",")), REAL) == model


def test_few_models_and_short_parts_of_them_are_compared() -> None:
    many = tuple(f"model {number} {'x' * 300}" for number in range(COMPARED + 1))
    assert meant(("model 64",), many) != "model 64"
    assert len(meant((many[0],), many)) == COMPARED
    assert meant(("a" * 300,), ("b" * 300,)) == ""

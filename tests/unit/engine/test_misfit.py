"""Why a node does not take a pod, in a few words for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from extender.engine.placement.misfit import Misfit
from extender.engine.types.events import NodeSeen, PodSeen
from protos.contract import inventory, names
from protos.contract.objects import Node, Pod, decode_node
from tests.builders import a_container, a_cut_node, a_node, a_pod, an_inventory
from tests.unit.engine.story import Story


def why(story: Story, pod: Pod, node: str = "n") -> Misfit | None:
    story.tell(PodSeen(pod))
    state, at = story.engine.pods[pod.metadata.uid], story.engine.nodes[node]
    has_gpus = node in story.engine.worth.having_gpus(state, [at])
    return story.engine.worth.misfits(state).of(at, has_gpus=has_gpus)


def on(node: Node, pod: Pod, *runs: Pod, **settings: Any) -> Misfit | None:
    """Why this node does not take the pod, beside others that run there."""
    story = Story(node, **settings)
    for other in runs:
        assert story.run(other)
    return why(story, pod)


def annotated(**fields: Any) -> Node:
    return a_node("n", 16, 16, **fields)


BUSY: dict[str, tuple[Pod, list[Pod]]] = {
    "no whole GPU free": (a_pod(whole=1), [a_pod("a", mem=1), a_pod("b", mem=16)]),
    "fewer than 2 whole GPUs free": (a_pod(whole=2), [a_pod("a", mem=1)]),
    "too little GPU memory free": (a_pod(mem=9), [a_pod("a", mem=8), a_pod("b", mem=9)]),
    "too few time slices free": (a_pod(mem=1, slices=60), [a_pod("a", mem=1, slices=50), a_pod("b", slices=51)]),
}
TOO_SMALL: dict[str, Pod] = {
    "GPUs too small": a_pod(mem=17),
    "fewer than 3 such GPUs": a_pod(whole=3),
    "no nvidia.com/gpu.shared": a_pod(containers=[{"name": "main", "resources": {"limits": {names.SHARED_GPU: "1"}}}]),
}
UNSELECTED: dict[str, Mapping[str, str]] = {
    "model T4": {names.GPU_MODEL: "*H200*"},
    "GPUs with less memory than min-gpu-memory": {names.MIN_GPU_MEMORY: "40Gi"},
    "GPUs below min-clock-mhz": {names.MIN_CLOCK_MHZ: "1000"},
    "GPUs below min-compute-capability": {names.MIN_COMPUTE_CAPABILITY: "9.0"},
    "other GPU UUIDs": {names.GPU_UUID: "GPU-other"},
}


def test_a_node_that_takes_the_pod_has_no_misfit() -> None:
    assert on(annotated(), a_pod(mem=16)) is None
    assert on(annotated(), a_pod()) is None


@pytest.mark.parametrize("words", BUSY)
def test_what_other_pods_use_is_short_for_a_while(words: str) -> None:
    pod, others = BUSY[words]
    assert on(annotated(), pod, *others) == Misfit(words, never=False)


@pytest.mark.parametrize("words", TOO_SMALL)
def test_what_the_node_does_not_have_is_short_for_ever(words: str) -> None:
    assert on(annotated(), TOO_SMALL[words]) == Misfit(words, never=True)


@pytest.mark.parametrize("words", UNSELECTED)
def test_gpus_that_are_not_selected_are_told_by_the_condition_that_none_meets(words: str) -> None:
    assert on(annotated(), a_pod(mem=1, annotations=UNSELECTED[words])) == Misfit(words, never=True)


def test_containers_whose_gpus_are_free_for_each_alone_do_not_go_together() -> None:
    pod = a_pod(containers=[a_container("a", mem=10), a_container("b", mem=10)])
    assert on(a_node("n", 16), pod) == Misfit("its free GPUs do not go together", never=False)


def test_gpus_that_are_not_joined_as_requested_are_told() -> None:
    pod = a_pod(whole=2, annotations={names.LINK: "nvlink"})
    assert on(annotated(), pod) == Misfit("fewer than 2 GPUs joined as requested", never=True)


def test_cordoned_and_unhealthy_gpus_are_told_apart() -> None:
    pod = a_pod(mem=1)
    cordoned = a_node("n", 16, 16, annotations={names.CORDONED_GPUS: "0,1"})
    assert on(cordoned, pod) == Misfit("GPUs cordoned", never=False)
    made = an_inventory(16, node="n")
    gpus = tuple(inventory.Gpu(index=g.index, minor=0, uuid=g.uuid, mem=16, health="sick:xid-79") for g in made.gpus)
    sick = inventory.Inventory(v=1, unit_mib=1024, slices_per_gpu=100, gpus=gpus)
    node = a_node("n", annotations={names.GPUS: inventory.encode(sick)})
    assert on(node, pod) == Misfit("GPUs unhealthy", never=False)


def test_a_node_without_gpus_of_ours_is_told() -> None:
    assert on(a_node("n"), a_pod(mem=1)) == Misfit("no GPUs of Gangshare", never=True)
    served = a_node("n", allocatable={"cpu": "8", "pods": "9", names.WHOLE_GPU: "1"})
    assert on(served, a_pod(whole=2)) == Misfit("too few whole GPUs free", never=False)


def test_cpu_and_memory_of_the_node_count_too() -> None:
    node = a_node("n", 16, allocatable={"cpu": "8", "memory": "8Gi", "pods": "9"})
    limits = {names.GPU_MEM: "1"}

    def asking(cpu: str, name: str = "p") -> Pod:
        return a_pod(name, containers=[{"name": "m", "resources": {"limits": limits, "requests": {"cpu": cpu}}}])

    assert on(node, asking("500")) == Misfit("too little cpu", never=True)
    assert on(node, asking("5"), asking("5", "other")) == Misfit("too little cpu", never=False)


def test_what_kube_scheduler_itself_selects_is_told_first() -> None:
    spec = {"nodeSelector": {"zone": "a"}}
    assert on(annotated(), a_pod(mem=99, spec=spec)) == Misfit("node selector", never=True)
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert on(annotated(), a_pod(mem=1, spec={"affinity": affinity})) == Misfit("node affinity", never=True)


def test_a_node_that_kube_scheduler_left_out_of_its_question_is_told_as_such() -> None:
    story, pod = Story(*(a_node(f"n{number}", 16) for number in range(3))), a_pod(mem=1)
    story.tell(PodSeen(pod))
    story.engine.pods[pod.metadata.uid].excluded = 1 << story.engine.nodes["n1"].number
    assert why(story, pod, "n1") == Misfit("refused by kube-scheduler's own filters", never=False)
    assert why(story, pod, "n2") is None


def test_a_cordoned_node_a_taint_and_an_unreadable_inventory_are_told() -> None:
    story = Story(a_node("n", 16))
    for spec, words in (({"unschedulable": True}, "cordoned"), ({"taints": [TAINT]}, "taint dedicated")):
        story.tell(NodeSeen(with_spec(spec)))
        found = why(story, a_pod(mem=1))
        assert found is not None
        assert found.why == words
    story.tell(NodeSeen(a_node("n", annotations={names.GPUS: "nonsense"})))
    assert why(story, a_pod(mem=1)) == Misfit("its inventory cannot be used", never=True)


TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}


def with_spec(spec: dict[str, Any]) -> Node:
    annotations = {names.GPUS: inventory.encode(an_inventory(16, node="n"))}
    body = {
        "metadata": {"name": "n", "uid": "node-n", "annotations": annotations},
        "spec": spec,
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}},
    }
    return decode_node(msgspec.json.encode(body))


def on_cut(pod: Pod, *runs: Pod, single: bool = False) -> str:
    """Why a node with an idle GPU of 16 units and two instances 1g.10gb does not take the pod."""
    found = on(a_cut_node("n", 79, 16, instances={0: ["1g.10gb", "1g.10gb"]}, single=single), pod, *runs)
    return found.why if found is not None else ""


def instances(count: int, profile: str = "1g.10gb", **fields: Any) -> Pod:
    return a_pod(containers=[a_container("main", limits={f"nvidia.com/mig-{profile}": str(count)})], **fields)


@pytest.mark.parametrize(
    ("pod", "runs", "words"),
    [
        (instances(2), 0, ""),
        (instances(2), 1, "fewer than 2 MIG instances 1g.10gb free"),
        (instances(1), 2, "no MIG instance 1g.10gb free"),
        (instances(3), 0, "fewer than 3 such MIG instances"),
        (instances(1, "2g.20gb"), 0, "no MIG instance 2g.20gb"),
        (a_pod(mem=10, annotations={names.MIG_PROFILE: "1g.10gb"}), 0, "GPUs too small"),
        (a_pod(mem=17), 0, "GPUs too small"),
        (a_pod(whole=2), 0, "fewer than 2 such GPUs"),
        (a_pod(mem=4, annotations={names.ISOLATION: "memory"}), 1, ""),
        (a_pod(mem=4, annotations={names.ISOLATION: "memory"}), 2, "no MIG instance free"),
        (
            a_pod(mem=12, annotations={names.ISOLATION: "memory"}),
            0,
            "its memory limits are promised, not enforced",
        ),
    ],
)
def test_what_instances_lack_is_told(pod: Pod, runs: int, words: str) -> None:
    assert on(a_cut_node("n", 16, instances={0: []}), pod) == Misfit("GPUs in MIG mode", never=True)
    others = [
        a_pod(f"r{i}", containers=[a_container("main", limits={"nvidia.com/mig-1g.10gb": "1"})]) for i in range(runs)
    ]
    assert on_cut(pod, *others) == words

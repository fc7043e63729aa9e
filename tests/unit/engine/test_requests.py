"""What pods take in-tree while their containers are resized in place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.types.events import PodSeen
from extender.engine.types.requests import requests
from protos.contract import names
from protos.contract.objects import Condition, Pod, Resources, decode_pod
from tests.builders import a_container, a_node, a_pod, newer
from tests.unit.engine.story import Story

INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}


def a_status(name: str, cpu: str, allocated: str) -> dict[str, Any]:
    """What the kubelet says of a container: what it has, and what is set aside for it."""
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": allocated}}


def resized(pod: Pod, cpu: str, *statuses: dict[str, Any], **more: Any) -> Pod:
    """The pod whose first container asks this now."""
    replace, (first, *others) = msgspec.structs.replace, pod.spec.containers
    asked = first.resources or Resources()
    resources = Resources({**asked.limits, "cpu": cpu}, {**asked.requests, "cpu": cpu})
    spec = replace(pod.spec, containers=(replace(first, resources=resources), *others))
    said = {"metadata": {"name": "told"}, "status": {"containerStatuses": statuses, **more}}
    told = decode_pod(msgspec.json.encode(said)).status
    return replace(pod, metadata=newer(pod.metadata), spec=spec, status=replace(told, phase=pod.status.phase))


def cpu_of(pod: Pod) -> int:
    return dict(requests(pod))["cpu"]


@pytest.mark.parametrize(
    ("asked", "statuses", "conditions", "expected"),
    [
        ("60", [], [], 60_000),
        ("60", [a_status("main", "1", "1")], [], 60_000),
        ("1", [a_status("main", "60", "60")], [], 60_000),
        ("1", [a_status("main", "1", "8")], [], 8_000),
        ("60", [a_status("main", "1", "2")], [DEFERRED], 60_000),
        ("60", [a_status("main", "1", "2")], [INFEASIBLE], 2_000),
        ("60", [a_status("other", "90", "90")], [], 60_000),
        ("60", [{"name": "main", "allocatedResources": {"cpu": "90"}}], [], 60_000),
        ("1", [a_status("main", "nonsense", "2")], [], 2_000),
    ],
    ids=["asked", "growing", "shrinking", "set aside", "deferred", "infeasible", "another", "no status", "nonsense"],
)
def test_the_most_of_what_is_asked_and_held_counts(
    asked: str, statuses: list[Any], conditions: list[Any], expected: int
) -> None:
    pod = resized(a_pod(mem=5), asked, *statuses, conditions=conditions)
    assert cpu_of(pod) == expected


def test_sidecars_are_resized_and_other_init_containers_are_not() -> None:
    side = a_container("side", limits={"cpu": "1"}, restartPolicy="Always")
    init = a_container("init", limits={"cpu": "2"})
    plain = a_pod(init=[side, init], containers=[a_container("main", limits={"cpu": "1"})])
    assert cpu_of(plain) == 3_000
    told = [a_status("side", "4", "4"), a_status("init", "50", "50")]
    assert cpu_of(resized(plain, "1", initContainerStatuses=told)) == 6_000


def test_the_books_follow_a_resize_and_a_new_process_has_the_same() -> None:
    story = Story(a_node("n1", 16, 16, allocatable={"cpu": "64", "pods": "110"}))
    pod = resized(a_pod("big", mem=5), "1")
    assert story.run(pod) == "n1:0"
    running = story_pod(story, pod)
    grown = resized(running, "60", a_status("main", "1", "1"))
    story.tell(PodSeen(grown))
    node = story.engine.nodes["n1"]
    assert node.used["cpu"] == 60_000
    again = Story(a_node("n1", 16, 16, allocatable={"cpu": "64", "pods": "110"}))
    again.tell(PodSeen(grown))
    assert again.engine.nodes["n1"].used == node.used
    freed = story.engine.ledger.freed
    story.tell(PodSeen(resized(running, "2", a_status("main", "2", "2"))))
    assert node.used["cpu"] == 2_000
    assert story.engine.ledger.freed > freed, "who waits for CPU is looked at again"


def story_pod(story: Story, pod: Pod) -> Pod:
    """The pod as it is bound now."""
    state = story.engine.pods[pod.metadata.uid]
    metadata = msgspec.structs.replace(pod.metadata, annotations={names.ALLOCATION: state.text or ""})
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=state.node))


def test_a_pod_that_waits_may_be_resized_too() -> None:
    story = Story(a_node("n1", 16, allocatable={"cpu": "4", "pods": "110"}))
    pod = resized(a_pod("waits", mem=5), "8")
    story.tell(PodSeen(pod))
    assert dict(story.engine.pods["uid-waits"].requests)["cpu"] == 8_000
    story.tell(PodSeen(resized(pod, "2")))
    assert dict(story.engine.pods["uid-waits"].requests)["cpu"] == 2_000


def test_gpus_that_an_object_says_were_resized_stay_what_they_were() -> None:
    """The API refuses such a change; an object that says so moves no GPU's books."""
    story = Story(a_node("n1", 16, 16))
    pod = a_pod("odd", mem=5)
    assert story.run(pod) == "n1:0"
    bigger = story_pod(story, a_pod("odd", mem=500))
    status = {"name": "main", "resources": {"requests": {names.GPU_MEM: "500"}}, "allocatedResources": {"cpu": "1"}}
    story.tell(PodSeen(resized(bigger, "1", status, conditions=[DEFERRED])))
    books = story.engine.nodes["n1"].books
    assert books is not None
    assert [book.mem_used for book in books.gpus.values()] == [5, 0]


def test_a_condition_without_a_reason_is_no_refusal() -> None:
    pod = resized(a_pod(mem=5), "60", a_status("main", "1", "1"))
    odd = msgspec.structs.replace(pod.status, conditions=(Condition("PodResizePending", "True"),))
    assert cpu_of(msgspec.structs.replace(pod, status=odd)) == 60_000

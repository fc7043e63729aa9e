"""Which annotations are believed while extenders come and go and users try their luck."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.types.events import BindDone, PodGone, PodSeen
from protos.contract import allocation, names
from protos.contract.allocation import Share
from protos.contract.objects import Pod
from tests.builders import a_node, a_pod, an_allocation
from tests.unit.engine.story import Story, bound, changed, owned_by, put_back


def on(node: str, gpu: int) -> dict[str, str]:
    return {names.ALLOCATION: allocation.encode(an_allocation(main=[Share(f"GPU-{node}-{gpu}", gpu, 4)]))}


def used(story: Story, node: str) -> list[int]:
    books = story.engine.nodes[node].books
    assert books is not None
    return [book.mem_used for book in books.gpus.values()]


def binding_to(story: Story, node: str) -> Pod:
    pod = a_pod(mem=4)
    assert story.filter(pod, [node]) == [node]
    story.bind(pod, node)
    return pod


def test_the_binding_of_another_extender_that_came_first_is_believed() -> None:
    story = Story(a_node("a", 16, 16), a_node("b", 16, 16))
    for other in ("a", "b"):
        pod = binding_to(story, "a")
        assert story.tell(PodSeen(changed(pod, on(other, 1), node=other))) == []
        story.tell(BindDone(pod.metadata.uid, "lost"))
        assert story.engine.pods[pod.metadata.uid].node == other
        assert (used(story, "a"), used(story, "b")) == ([0, 4 * (other == "a")], [0, 4 * (other == "b")])
        story.tell(PodSeen(changed(pod, on(other, 1), node=other, phase="Succeeded")))
        story = Story(a_node("a", 16, 16), a_node("b", 16, 16))


def test_a_pod_bound_without_us_while_we_were_about_to_is_charged_wherever_it_could_be() -> None:
    story = Story(a_node("a", 16, 16))
    pod = binding_to(story, "a")
    assert story.tell(PodSeen(changed(pod, {}, node="a"))) == []
    story.tell(BindDone(pod.metadata.uid, "lost"))
    assert used(story, "a") == [4, 4]


def test_an_edit_whose_traces_were_wiped_off_managed_fields_is_put_back_all_the_same() -> None:
    story = Story(a_node("a", 16, 16))
    pod = binding_to(story, "a")
    placed = changed(pod, on("a", 0), node="a")
    story.tell(PodSeen(placed))
    for managed in ([], owned_by("kubelet", "status")[:0]):
        edited = changed(pod, on("a", 1), managed, "a")
        effects = story.tell(PodSeen(edited))
        assert put_back(edited, on("a", 0)[names.ALLOCATION]) in effects
    assert used(story, "a") == [4, 0]


def test_an_allocation_that_comes_late_to_a_stranger_is_the_plugins_or_a_forgery() -> None:
    story = Story(a_node("a", 16, 16))
    stranger = a_pod(mem=4, node="a")
    story.tell(PodSeen(stranger))
    edited = changed(stranger, on("a", 1), [])
    effects = story.tell(PodSeen(edited))
    assert put_back(edited, None) in effects
    assert used(story, "a") == [4, 4]
    assert story.tell(PodSeen(changed(stranger, on("a", 1), owned_by(names.PLUGIN, "status")))) == []
    assert used(story, "a") == [0, 4]


def test_a_manager_that_merely_calls_itself_like_us_is_not_us() -> None:
    story = Story(a_node("a", 16, 16))
    pod = changed(a_pod(mem=4, node="a"), on("a", 1), owned_by(names.PLUGIN))
    assert put_back(pod, None) in story.tell(PodSeen(pod))


def test_managed_fields_nested_beyond_reading_are_nobodys_word() -> None:
    text = b'{"f:a":' * 50_000 + b"{}" + b"}" * 50_000
    pod = a_pod(mem=4, node="a", annotations=on("a", 1))
    managed = msgspec.Raw(b'[{"manager":"m","fieldsV1":' + text + b"}]")
    metadata = msgspec.structs.replace(pod.metadata, managed_fields=managed)
    story = Story(a_node("a", 16, 16))
    edited = msgspec.structs.replace(pod, metadata=metadata)
    effects = story.tell(PodSeen(edited))
    assert put_back(edited, None) in effects
    assert used(story, "a") == [4, 4]


def test_the_same_value_applied_by_a_user_is_still_ours() -> None:
    story = Story(a_node("a", 16, 16))
    pod = a_pod(mem=4)
    story.filter(pod)
    place = story.bind(pod, "a")
    story.tell(PodSeen(bound(pod, place)))
    assert story.tell(PodSeen(bound(pod, place, owned_by("kubectl")))) == []


@pytest.mark.parametrize("emptied", [[], [{}], [{"manager": "kubelet", "subresource": "status", "fieldsV1": {}}]])
def test_an_edit_whose_traces_were_wiped_before_we_started_is_not_believed_either(
    emptied: list[dict[str, Any]],
) -> None:
    story = Story(a_node("a", 16, 16))
    pod = changed(a_pod(mem=4, node="a"), on("a", 1), emptied)
    assert put_back(pod, None) in story.tell(PodSeen(pod))
    assert used(story, "a") == [4, 4], "it is charged wherever it could be"
    corrected = changed(pod, on("a", 0), owned_by(names.PLUGIN, "status"))
    assert story.tell(PodSeen(corrected)) == []
    assert used(story, "a") == [4, 0], "until the plugin has said where it is"


def test_a_forged_wake_or_nomination_gains_nothing() -> None:
    story = Story(a_node("a", 16), a_node("b", 16))
    assert [story.run(a_pod(name, whole=1)) for name in "xy"] == ["a:0", "b:0"]
    first, second = a_pod("p", mem=9), a_pod("q", mem=9)
    for pod in (first, second):
        story.tell(PodSeen(pod))
        assert story.filter(pod) == []
    forged = changed(second, {names.WAKE: "2025-01-01T00:00:00Z"}, nominated_node_name="a")
    story.tell(PodSeen(forged))
    assert story.filter(forged) == []
    assert story.wakes() == []
    story.tell(PodGone("uid-x"))
    assert story.wakes() == ["p"]
    assert story.filter(forged, ["a"]) == []
    assert story.run(first) == "a:0"

"""Books that live long: nodes come, change and go, watches break, and nothing is left behind."""

from __future__ import annotations

import msgspec
import pytest

from extender.engine.placement import indexes
from extender.engine.types import refusals
from extender.engine.types.effects import PostBinding, Refuse, Report
from extender.engine.types.events import BindDone, GpusUnhealthy, NodeGone, NodeSeen, PodGone, PodSeen, PodsListed, Tick
from protos.contract import allocation, inventory, names
from protos.contract.allocation import Share
from protos.contract.inventory import Inventory
from protos.contract.objects import Node
from tests.builders import a_node, a_pod, a_ref, an_allocation, an_inventory
from tests.unit.engine.story import Story, bound, changed, owned_by


def charges(story: Story, node: str) -> dict[str, list[tuple[str, tuple[int, int, bool]]]]:
    """What each pod holds, GPU by GPU."""
    books = story.engine.nodes[node].books
    assert books is not None
    return {
        uid: sorted((uuid, (d.mem, d.slices, d.whole)) for uuid, d in entry.charges.items())
        for uid, entry in books.entries.items()
    }


def with_inventory(found: Inventory | None) -> Node:
    return a_node("a", annotations={} if found is None else {names.GPUS: inventory.encode(found)})


REPLICAS = {names.WHOLE_GPU: 4}


@pytest.mark.parametrize(
    "after",
    [
        an_inventory(16, 16, node="a", replicas=REPLICAS),
        an_inventory(16, node="a"),
        an_inventory(16, 40, node="a"),
        an_inventory(16, 16, node="z"),
        an_inventory(160, 160, node="a", unit_mib=100),
        an_inventory(16, 16, node="a", slices_per_gpu=50),
    ],
)
def test_after_any_change_of_the_inventory_the_books_are_those_of_a_restart(after: Inventory) -> None:
    story = Story(a_node("a", 16, 16))
    shown = []
    for pod in (a_pod("w", whole=1), a_pod("s", slices=40), a_pod("m", mem=5)):
        story.filter(pod)
        shown.append(bound(pod, story.bind(pod, "a")))
        story.tell(PodSeen(shown[-1]))
    for found in (after, an_inventory(16, 16, node="a"), None, after):
        story.tell(NodeSeen(with_inventory(found)))
    again = Story(with_inventory(after))
    for pod in shown:
        again.tell(PodSeen(pod))
    assert charges(story, "a") == charges(again, "a")


def test_who_got_a_whole_gpu_keeps_it_when_gpus_are_served_as_replicas_from_then_on() -> None:
    story = Story(a_node("a", 16))
    pod = a_pod("w", whole=1)
    story.filter(pod)
    story.tell(PodSeen(bound(pod, story.bind(pod, "a"))))
    story.tell(NodeSeen(a_node("a", 16, replicas=REPLICAS)))
    assert story.filter(a_pod("q", mem=1)) == []


def test_an_allocation_that_fits_the_inventory_only_later_is_used_then() -> None:
    text = allocation.encode(an_allocation(main=[Share("GPU-a-1", 1, 4, 25)]))
    limits = {names.SHARED_GPU: "1"}
    container = {"name": "main", "resources": {"limits": limits}}
    pod = a_pod("p", containers=[container], annotations={names.ALLOCATION: text}, node="a")
    story = Story(a_node("a", 16, 16))
    story.tell(PodSeen(pod))
    assert story.engine.pods["uid-p"].problem.startswith("malformed")
    story.tell(NodeSeen(a_node("a", 16, 16, replicas={names.SHARED_GPU: 4})))
    assert story.engine.pods["uid-p"].problem == ""
    assert charges(story, "a") == {"uid-p": [("GPU-a-1", (4, 25, False))]}


def test_an_allocation_of_other_gpus_than_asked_is_told_once_and_changes_nothing_any_more() -> None:
    text = allocation.encode(an_allocation(other=[Share("GPU-a-0", 0, 4)]))
    pod = changed(a_pod("p", mem=4, node="a"), {names.ALLOCATION: text}, owned_by(names.PLUGIN, "status"))
    story = Story(a_node("a", 16))
    told = [effect.reason.code for _ in range(3) for effect in story.tell(PodSeen(pod)) if isinstance(effect, Report)]
    assert told == ["AllocationMalformed"]
    assert story.engine.counters["errors", "malformed"] == 1
    waiting = a_pod("w", mem=16)
    assert story.filter(waiting) == []
    story.tell(PodSeen(pod))
    assert story.wakes() == []


def test_a_node_that_goes_before_its_pods_leaves_nothing_behind() -> None:
    story = Story(a_node("a", 16), a_node("b", 16))
    pods = [a_pod(f"p{i}", mem=4) for i in range(3)]
    for pod in pods:
        assert story.filter(pod, ["a"]) == ["a"]
        story.bind(pod, "a")
    story.tell(NodeGone("a"))
    story.tell(PodGone("uid-p0"))
    story.tell(BindDone("uid-p1", "lost"))
    assert set(story.engine.nodes) == {"a", "b"}
    story.tell(PodGone("uid-p2"))
    assert set(story.engine.nodes) == {"b"}
    assert story.filter(pods[1]) == ["b"]


def test_a_bind_to_a_node_nobody_knows_is_refused_and_leaves_nothing_behind() -> None:
    story = Story(a_node("a", 16))
    pod = a_pod(mem=4)
    story.filter(pod)
    assert not isinstance(story.bind(pod, "nowhere"), PostBinding)
    assert set(story.engine.nodes) == {"a"}


def test_sick_gpus_that_gpushare_told_of_stay_sick_when_their_node_comes_back() -> None:
    story = Story(gpushare=True, resource_mem=names.GPU_MEM)
    story.tell(GpusUnhealthy("a", frozenset({0})))
    assert story.engine.nodes == {}
    story.tell(NodeSeen(a_node("a", 16)))
    assert story.filter(a_pod(mem=1)) == []
    story.tell(NodeGone("a"))
    story.tell(NodeSeen(a_node("a", 16)))
    assert story.filter(a_pod(mem=1)) == []
    story.tell(GpusUnhealthy("a", frozenset()))
    assert story.wakes() == ["p"]


def test_a_pod_bound_while_the_watch_is_broken_keeps_its_gpu_until_a_list_does_not_show_it() -> None:
    story = Story(a_node("a", 16))
    pod = a_pod("p", mem=16)
    story.filter(pod)
    place = story.bind(pod, "a")
    story.tell(BindDone(pod.metadata.uid, "bound"))
    story.now += 300
    story.tell(Tick())
    assert story.filter(a_pod("q", mem=1)) == []
    story.tell(PodSeen(bound(pod, place)))
    story.tell(PodsListed())
    story.now += 300
    story.tell(Tick())
    assert story.filter(a_pod("q", mem=1)) == []
    gone = a_pod("gone", mem=1)
    story.tell(PodGone(pod.metadata.uid))
    story.filter(gone)
    story.bind(gone, "a")
    story.tell(BindDone(gone.metadata.uid, "bound"))
    story.now += 1
    story.tell(PodsListed())
    story.now += 61
    story.tell(Tick())
    assert story.filter(a_pod("all", mem=16)) == ["a"]


def test_a_pod_that_ended_and_is_touched_again_and_again_keeps_no_others_in_memory() -> None:
    story = Story(a_node("a", 16))
    touched, other = a_pod("touched", mem=1, phase="Succeeded"), a_pod("other", mem=1)
    story.tell(PodSeen(touched))
    story.tell(PodGone(other.metadata.uid))
    for _ in range(4):
        story.now += 30
        story.tell(PodSeen(touched))
        story.tell(Tick())
    assert story.filter(touched) == []
    assert story.filter(other) == ["a"], "a minute later it would be another pod"


def test_shapes_nobody_asks_for_any_more_are_let_go_however_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "MOST_SHAPES", 150)
    story = Story(a_node("a", 2**20))
    for i in range(200):
        story.tell(PodSeen(a_pod(f"p{i}", mem=i + 1)))
        while story.engine.run_slice(story.now):
            pass
    assert len(story.engine._components.indexes._shapes) == 150


def test_prioritize_before_any_filter_and_about_strange_nodes_answers_zeros() -> None:
    story = Story(a_node("a", 16))
    pod = a_pod(mem=4)
    assert story.engine.prioritize(pod, ["a", "nowhere"]) == {"a": 0, "nowhere": 0}
    story.filter(pod)
    assert story.engine.prioritize(pod, ["a", "nowhere"]) == {"a": 10, "nowhere": 0}
    assert story.engine.prioritize(pod, []) == {}


def test_questions_with_no_node_or_the_same_ones_twice_are_answered() -> None:
    story = Story(a_node("a", 16), a_node("b", 16))
    pod = a_pod(mem=4)
    assert story.engine.filter(pod, [], story.now).nodes == ()
    assert story.filter(pod, ["b", "b", "b", "c"]) == ["b"]
    assert isinstance(story.engine.bind(a_ref(pod), "b", story.now), PostBinding)


def test_what_the_plugin_corrects_onto_another_gpu_makes_room_on_the_first() -> None:
    story = Story(a_node("a", 16, 16))
    pod, waiting = a_pod("p", mem=16), a_pod("w", mem=16)
    story.run(a_pod("q", mem=1))
    story.filter(pod)
    place = story.bind(pod, "a")
    story.tell(PodSeen(bound(pod, place)))
    assert story.filter(waiting) == []
    moved = msgspec.structs.replace(pod)
    text = allocation.encode(an_allocation(main=[Share("GPU-a-0", 0, 16)]))
    story.tell(PodSeen(changed(moved, {names.ALLOCATION: text}, owned_by(names.PLUGIN, "status"), "a")))
    assert story.wakes() == ["w"]


def test_a_filter_is_prepared_in_parts_once_for_all_pods_of_a_shape_that_fits_nowhere() -> None:
    story = Story(*(a_node(f"n{i:03}", 16) for i in range(1000)))
    assert [story.engine.prepare(a_pod("p", mem=99), [], 0.0) for _ in range(4)] == [True, True, False, False]
    assert story.filter(a_pod("p", mem=99)) == []
    assert not story.engine.prepare(a_pod("q", mem=99), [], 0.0)
    story.tell(NodeSeen(a_node("n000", 99)))
    assert not story.engine.prepare(a_pod("r", mem=99), [], 0.0), "one node is looked at again"
    assert story.filter(a_pod("r", mem=99)) == ["n000"]
    assert [story.engine.prepare(a_pod("none"), [], 0.0) for _ in range(4)] == [True, True, False, False]


def test_a_pod_that_is_somewhere_may_be_where_room_is_softly_kept_for_another() -> None:
    story = Story(a_node("n1", 16))
    assert story.filter(a_pod("asks", mem=5)) == ["n1"]
    story.tell(PodSeen(a_pod("stranger", mem=12, node="n1")))
    assert charges(story, "n1")["uid-stranger"] == [("GPU-n1-0", (12, 0, False))]
    assert not story.run(a_pod("next", mem=5))
    assert story.bind(a_pod("asks", mem=5), "n1") == Refuse(refusals.TAKEN)


def test_the_check_finds_books_that_do_not_add_up() -> None:
    story = Story(a_node("n1", 16))
    assert story.run(a_pod("here", mem=5)) == "n1:0"
    node = story.engine.nodes["n1"]
    assert node.books is not None
    book = node.books.gpus["GPU-n1-0"]
    book.wholes, book.sharers = -1, 2
    assert any("less than nothing is booked" in found for found in story.engine.check())
    book.wholes, book.sharers = 0, 1
    assert story.engine.check() == []
    node.used = {names.GPU_MEM: 5, "pods": 2}
    totals = f"{{'{names.GPU_MEM}': 5, 'pods': 2}}, its pods take {{'{names.GPU_MEM}': 5, 'pods': 1}}"
    assert story.engine.check() == [f"n1: in-tree totals are {totals}"]

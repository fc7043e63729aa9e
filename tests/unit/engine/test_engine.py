"""The extender's decisions, told as short stories of a small cluster."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.cycle.engine import Engine
from extender.engine.placement.index import ShapeIndex
from extender.engine.state.ask_reader import AskReader, OfClass, Reading
from extender.engine.types.effects import Already, PostBinding, Refuse, Report, ReportNode, SetAnnotation
from extender.engine.types.events import BindDone, NodeGone, NodeSeen, PodGone, PodSeen, Tick
from extender.engine.types.settings import Settings
from extender.server import inspect
from protos.contract import allocation, names
from protos.contract.allocation import Share
from protos.contract.isolation import Demanded
from protos.contract.objects import Node, Pod
from tests.builders import a_container, a_node, a_pod, a_ref, an_allocation
from tests.unit.engine.story import Story, bound, changed, owned_by, put_back


def test_fractional_pods_fill_one_gpu_then_the_next_then_the_next_node() -> None:
    story = Story(a_node("a", 16, 16), a_node("b", 16))
    seats = [story.run(a_pod(f"p{i}", mem=8)) for i in range(7)]
    assert seats == ["b:0", "b:0", "a:0", "a:0", "a:1", "a:1", ""]


def test_equal_nodes_are_all_offered_and_a_better_one_alone() -> None:
    story = Story(a_node("a", 16), a_node("b", 16), a_node("c", 16))
    first = a_pod("first", mem=4)
    assert story.filter(first) == ["a", "b", "c"]
    assert story.engine.prioritize(first, ["a", "b", "c"]) == {"a": 10, "b": 10, "c": 10}
    assert isinstance(story.bind(first, "b"), PostBinding)
    assert story.filter(a_pod("second", mem=4)) == ["b"]


def test_a_filter_waits_while_an_earlier_pod_has_not_said_which_node() -> None:
    story = Story(a_node("a", 16), a_node("b", 16))
    first = a_pod("first", mem=4)
    story.filter(first)
    assert story.engine.undecided("uid-other", story.now)
    story.bind(first, "b")
    assert not story.engine.undecided("uid-other", story.now)
    story.filter(a_pod("x", whole=1))
    assert not story.engine.undecided("uid-other", story.now), "one node was offered: nothing is open"


def test_nobody_waits_longer_than_told_for_a_bind_that_does_not_come() -> None:
    story = Story(a_node("a", 16), a_node("b", 16))
    story.filter(a_pod("first", mem=4))
    assert story.engine.undecided("uid-other", story.now + 0.04)
    assert not story.engine.undecided("uid-other", story.now + 0.06)


def test_the_best_node_stays_charged_until_the_bind_or_a_second_passes() -> None:
    story = Story(a_node("a", 16))
    assert story.filter(a_pod("first", mem=16)) == ["a"]
    assert story.filter(a_pod("second", mem=16)) == []
    story.now += 1.1
    assert story.filter(a_pod("second", mem=16)) == ["a"]


def test_bind_moves_the_charge_to_the_node_the_scheduler_took() -> None:
    story = Story(a_node("a", 16), a_node("b", 16))
    pod = a_pod(mem=4)
    story.filter(pod)
    place = story.bind(pod, "b")
    assert place.annotations[names.ALLOCATION] == allocation.encode(place.allocation)
    assert place.allocation == an_allocation(main=[Share("GPU-b-0", 0, 4)])
    books = [story.engine.nodes[name].books for name in "ab"]
    assert [books and books.gpus[f"GPU-{n}-0"].mem_used for books, n in zip(books, "ab", strict=True)] == [0, 4]


def test_bind_is_idempotent() -> None:
    story = Story(a_node("a", 16, 16))
    pod = a_pod(mem=4)
    story.filter(pod)
    first, second = story.bind(pod, "a"), story.bind(pod, "a")
    assert first == second
    story.tell(BindDone(pod.metadata.uid, "bound"))
    assert isinstance(story.bind(pod, "a"), Already)


def test_a_bind_whose_gpus_were_taken_is_a_counted_conflict() -> None:
    story = Story(a_node("a", 16), a_node("b", 16))
    pod = a_pod(mem=16)
    assert story.filter(pod) == ["a", "b"]
    story.tell(PodSeen(a_pod("stranger", mem=1, node="b")))
    answer = story.bind(pod, "b")
    assert isinstance(answer, Refuse)
    assert answer.reason.code == "BindConflict"
    assert story.engine.counters["conflicts", ""] == 1


def test_a_bind_of_an_unseen_pod_is_refused_unless_we_just_started() -> None:
    story = Story(a_node("a", 16))
    pod = a_pod(mem=4)
    story.tell(PodSeen(pod))
    assert isinstance(story.bind(pod, "a"), Refuse)
    young = Engine(Settings(), started=0)
    young.step(NodeSeen(a_node("a", 16)), 1)
    young.step(PodSeen(pod), 1)
    assert isinstance(young.bind(a_ref(pod), "a", 2), PostBinding)


def test_a_lost_binding_gives_its_room_back() -> None:
    story = Story(a_node("a", 16))
    pod, other = a_pod("p", mem=16), a_pod("q", mem=16)
    story.filter(pod)
    story.bind(pod, "a")
    assert story.filter(other) == []
    story.tell(BindDone(pod.metadata.uid, "lost"))
    assert story.wakes() == ["q"]


def test_the_sentence_is_constant_and_the_numbers_are_for_people() -> None:
    story = Story(a_node("a", 24), a_node("b", 16))
    story.run(a_pod("first", mem=4, annotations={names.GPU_UUID: "GPU-a-0"}))
    pod = a_pod("big", mem=24)
    verdict = story.engine.filter(pod, ["a", "b"], story.now)
    assert verdict.reason is not None
    assert (verdict.reason.code, verdict.reason.sentence) == ("NoRoom", "no GPU with 24 GiB free")
    reports = [effect for effect in story.tell(Tick()) if isinstance(effect, Report)]
    assert [r.reason.numbers for r in reports] == ["needs 24 GiB on one GPU; freest: a GPU 0 with 20 GiB"]
    story.run(a_pod("small", mem=1))
    again = story.engine.filter(pod, ["a", "b"], story.now + 1)
    assert again.reason == verdict.reason
    assert not [effect for effect in story.tell(Tick()) if isinstance(effect, Report)], "one Event in 30 s"


def test_a_refused_pod_is_woken_when_a_pod_ends_and_no_more_than_fit() -> None:
    story = Story(a_node("a", 16))
    assert story.run(a_pod("old", mem=16)) == "a:0"
    for name in ("w1", "w2", "w3"):
        assert story.filter(a_pod(name, mem=8)) == []
    assert story.wakes() == []
    story.tell(PodGone("uid-old"))
    assert story.wakes() == ["w1", "w2"]
    assert story.wakes() == []


def test_the_next_in_line_is_woken_when_the_first_does_not_come() -> None:
    story = Story(a_node("a", 16))
    story.run(a_pod("old", mem=16))
    for name in ("w1", "w2"):
        story.filter(a_pod(name, mem=16))
    story.tell(PodGone("uid-old"))
    assert story.wakes() == ["w1"]
    assert story.wakes(1.2) == ["w2"]


def test_priority_goes_first_among_the_woken() -> None:
    story = Story(a_node("a", 16))
    story.run(a_pod("old", mem=16))
    story.filter(a_pod("low", mem=16))
    story.filter(a_pod("high", mem=16, spec={"priority": 100}))
    story.tell(PodGone("uid-old"))
    assert story.wakes() == ["high"]


def test_a_terminating_pod_keeps_its_gpu_until_it_is_gone() -> None:
    story = Story(a_node("a", 16))
    pod = a_pod("old", mem=16)
    story.filter(pod)
    place = story.bind(pod, "a")
    ending = bound(pod, place)
    ending = msgspec.structs.replace(
        ending, metadata=msgspec.structs.replace(ending.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    story.tell(PodSeen(ending))
    assert story.filter(a_pod("next", mem=1)) == []
    story.tell(PodGone("uid-old"))
    assert story.wakes() == ["next"]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_finished_pod_gives_its_gpu_back_at_once(phase: str) -> None:
    story = Story(a_node("a", 16))
    pod = a_pod("old", mem=16)
    story.filter(pod)
    place = story.bind(pod, "a")
    story.tell(PodSeen(changed(pod, place.annotations, node="a", phase=phase)))
    assert story.filter(a_pod("next", mem=16)) == ["a"]


def test_a_restart_replays_to_the_same_books() -> None:
    story = Story(a_node("a", 16, 16), a_node("b", 40))
    shown = []
    asks: list[dict[str, Any]] = [{"mem": 10}, {"whole": 1}, {"mem": 6, "slices": 30}, {"slices": 50}]
    for i, ask in enumerate(asks):
        pod = a_pod(f"p{i}", **ask)
        node = story.filter(pod)[0]
        shown.append(bound(pod, story.bind(pod, node)))
        story.tell(PodSeen(shown[-1]))
    again = Story(a_node("a", 16, 16), a_node("b", 40))
    for pod in reversed(shown):
        again.tell(PodSeen(pod))
    for name in "ab":
        books, twin = story.engine.nodes[name].books, again.engine.nodes[name].books
        assert books
        assert twin
        assert {uid: entry.charges for uid, entry in books.entries.items()} == {
            uid: entry.charges for uid, entry in twin.entries.items()
        }


def test_pods_seen_before_their_node_are_charged_when_it_comes() -> None:
    story = Story()
    story.tell(PodSeen(a_pod("p", mem=16, node="a")))
    story.tell(NodeSeen(a_node("a", 16)))
    assert story.filter(a_pod("q", mem=1)) == []
    story.tell(NodeGone("a"))
    story.tell(NodeSeen(a_node("a", 16)))
    assert story.filter(a_pod("q", mem=1)) == []


def test_a_pod_bound_by_somebody_else_blocks_what_it_could_hold_until_the_plugin_says() -> None:
    story = Story(a_node("a", 16, 16))
    stranger = a_pod("stranger", whole=1, node="a")
    story.tell(PodSeen(stranger))
    assert story.filter(a_pod("q", mem=1)) == []
    there = allocation.encode(an_allocation(main=[Share("GPU-a-1", 1, 16, 100, True)]))
    story.tell(PodSeen(changed(stranger, {names.ALLOCATION: there}, owned_by(names.PLUGIN, "status"))))
    assert story.wakes() == ["q"]
    assert story.run(a_pod("r", mem=1)) == "a:0"


CLAIM = allocation.encode(an_allocation(main=[Share(f"GPU-a-{i}", i, 16, 100, True) for i in range(2)]))


def test_an_allocation_set_at_creation_is_taken_away_before_the_pod_is_placed() -> None:
    story = Story(a_node("a", 16, 16))
    pod = a_pod(mem=4, annotations={names.ALLOCATION: CLAIM})
    effects = story.tell(PodSeen(pod))
    assert put_back(pod, None) in effects
    newer = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, resource_version="2"))
    assert SetAnnotation(a_ref(pod), names.ALLOCATION, None, "2") in story.tell(PodSeen(newer)), "tried on each version"
    assert story.engine.counters["errors", "forged"] == 1
    verdict = story.engine.filter(pod, ["a"], story.now)
    assert verdict.reason is not None
    assert verdict.reason.code == "AllocationForged"
    story.tell(PodSeen(changed(pod, {})))
    assert story.filter(changed(pod, {})) == ["a"]


def test_an_edit_after_the_bind_is_put_back_and_charges_nothing() -> None:
    story = Story(a_node("a", 16, 16))
    pod = a_pod(mem=4)
    story.filter(pod)
    place = story.bind(pod, "a")
    story.tell(PodSeen(bound(pod, place)))
    edited = changed(pod, {names.ALLOCATION: CLAIM}, owned_by("kubectl-annotate"), "a")
    effects = story.tell(PodSeen(edited))
    assert put_back(edited, place.annotations[names.ALLOCATION]) in effects
    assert any(isinstance(effect, Report) and effect.reason.code == "AllocationForged" for effect in effects)
    edited = changed(pod, {}, [], "a")
    effects = story.tell(PodSeen(edited))
    assert put_back(edited, place.annotations[names.ALLOCATION]) in effects
    books = story.engine.nodes["a"].books
    assert books
    assert [book.mem_used for book in books.gpus.values()] == [4, 0]


def test_a_claim_to_eight_gpus_without_limits_is_charged_nothing() -> None:
    story = Story(a_node("a", 16, 16))
    pod = a_pod(annotations={names.ALLOCATION: CLAIM}, node="a")
    edited = changed(pod, pod.metadata.annotations, owned_by("kubectl-create"))
    effects = story.tell(PodSeen(edited))
    assert put_back(edited, None) in effects
    assert story.run(a_pod("whole", whole=2)) == "a:0,1"


def test_a_forged_allocation_found_at_the_start_says_nothing() -> None:
    story = Story(a_node("a", 16, 16))
    pod = a_pod(mem=4, annotations={names.ALLOCATION: CLAIM}, node="a")
    story.tell(PodSeen(changed(pod, pod.metadata.annotations, owned_by("kubectl-create"))))
    books = story.engine.nodes["a"].books
    assert books
    assert [book.mem_used for book in books.gpus.values()] == [4, 4]


@pytest.mark.parametrize(
    ("text", "kind"), [("{", "malformed"), ('{"v":2}', "newer"), (CLAIM.replace("GPU-a-1", "GPU-a-0"), "malformed")]
)
def test_an_allocation_that_cannot_be_used_is_counted_and_hides_nothing(text: str, kind: str) -> None:
    story = Story(a_node("a", 16, 16))
    story.tell(PodSeen(a_pod("p", mem=10, annotations={names.ALLOCATION: text}, node="a")))
    assert story.engine.pods["uid-p"].problem.startswith(kind)
    assert story.run(a_pod("q", mem=6)) == "a:0"
    assert story.filter(a_pod("r", mem=16)) == []


def test_the_plugins_correction_moves_the_charge() -> None:
    story = Story(a_node("a", 16, 16))
    pod = a_pod(mem=4)
    story.filter(pod)
    story.tell(PodSeen(bound(pod, story.bind(pod, "a"))))
    moved = allocation.encode(an_allocation(main=[Share("GPU-a-1", 1, 4)]))
    effects = story.tell(PodSeen(changed(pod, {names.ALLOCATION: moved}, owned_by(names.PLUGIN, "status"), "a")))
    assert effects == []
    books = story.engine.nodes["a"].books
    assert books
    assert [book.mem_used for book in books.gpus.values()] == [0, 4]


def test_pods_that_ask_no_gpus_pass_untouched_and_count_in_tree() -> None:
    story = Story(a_node("a", 16), a_node("b"))
    pod = a_pod(containers=[a_container("c", limits={"cpu": "1500m", "memory": "1Gi"})])
    assert story.filter(pod) == ["b"], "a's CPU is for pods with GPUs"
    place = story.bind(pod, "b")
    assert place == PostBinding(a_ref(pod), "b", {}, None)
    assert story.engine.nodes["b"].used == {"cpu": 1500, "memory": 2**30, "pods": 1}


def test_a_node_without_inventory_passes_for_whole_gpus_it_serves_itself() -> None:
    other = a_node("other", allocatable={names.WHOLE_GPU: "2"})
    story = Story(other, a_node("a", 16))
    assert story.filter(a_pod("frac", mem=1)) == ["a"]
    big = a_pod("big", whole=2)
    assert story.filter(big) == ["other"]
    assert story.bind(big, "other") == PostBinding(a_ref(big), "other", {}, None)
    assert story.filter(a_pod("more", whole=2)) == []


def test_a_node_with_another_unit_or_nonsense_takes_no_new_pods_and_says_so() -> None:
    story = Story(a_node("mib", 16, unit_mib=1), a_node("odd", annotations={names.GPUS: "{"}))
    assert story.filter(a_pod(mem=1)) == []
    assert "units of 1 MiB, the cluster in 1024 MiB" in story.engine.nodes["mib"].problem
    assert "gangshare.io/gpus is '{'" in story.engine.nodes["odd"].problem


def test_a_cordoned_gpu_gets_nothing_new_and_comes_back() -> None:
    story = Story(a_node("a", 16, annotations={names.CORDONED_GPUS: "0"}))
    assert story.filter(a_pod(mem=1)) == []
    story.tell(NodeSeen(a_node("a", 16)))
    assert story.wakes() == ["p"]


def test_a_cordon_that_names_no_gpu_of_the_node_is_told_once_per_change_and_the_rest_of_it_counts() -> None:
    def told(cordoned: str, cpu: str = "64") -> list[str]:
        node = a_node("a", 16, 16, annotations={names.CORDONED_GPUS: cordoned}, allocatable={"cpu": cpu})
        reports = [effect for effect in story.tell(NodeSeen(node)) if isinstance(effect, ReportNode)]
        return [f"{report.node} {report.reason.code}: {report.reason}" for report in reports]

    def cordoned() -> list[bool]:
        books = story.engine.nodes["a"].books
        return [book.cordoned for book in books.gpus.values()] if books else []

    story = Story()
    wanted = "expected indexes or UUIDs of GPUs: 0, 1 or their UUIDs"
    expected = f"a CordonUnreadable: gangshare.io/cordoned-gpus names '99': {wanted}"
    assert told("0,99") == [expected]
    assert cordoned() == [True, False]
    assert told("0,99", cpu="32") == []
    assert told("99") == []
    assert cordoned() == [False, False]
    assert told("1") == []
    assert told("99") == [expected]


def node_events(story: Story, node: Node) -> list[str]:
    """The Events on the node that its sight brings."""
    return [
        f"{effect.node} {effect.reason.code}: {effect.reason}"
        for effect in story.tell(NodeSeen(node))
        if isinstance(effect, ReportNode)
    ]


def test_a_misspelt_key_of_a_node_is_told_once_and_shown() -> None:
    story, sentence = Story(), "the node's annotation gangshare.io/cordoned-gpu is not known to Gangshare"
    told = f"{sentence}: did you mean annotation gangshare.io/cordoned-gpus?"
    misspelt = {"gangshare.io/cordoned-gpu": "0"}
    assert node_events(story, a_node("a", 16, annotations=misspelt)) == [f"a NodeKeyUnknown: {told}"]
    assert node_events(story, a_node("a", 16, annotations=misspelt, allocatable={"cpu": "32"})) == []
    assert inspect.node(story.engine, story.engine.nodes["a"]).problem == told
    assert node_events(story, a_node("a", 16)) == []
    assert inspect.node(story.engine, story.engine.nodes["a"]).problem is None


def test_an_inventory_that_cannot_be_used_is_told_once() -> None:
    story, sentence = Story(), "the node takes no new pods with GPUs, since its inventory cannot be used"
    (told,) = node_events(story, a_node("a", annotations={names.GPUS: "{"}))
    assert told.startswith(f"a InventoryUnusable: {sentence}: gangshare.io/gpus is '{{': expected")
    assert node_events(story, a_node("a", annotations={names.GPUS: "{"}, allocatable={"cpu": "32"})) == []
    other_unit = f"{sentence}: it counts GPU memory in units of 256 MiB, the cluster in 1024 MiB"
    assert node_events(story, a_node("b", 16, unit_mib=256)) == [f"b InventoryUnusable: {other_unit}"]


def test_an_ask_that_makes_no_sense_is_refused_with_its_sentence_until_it_is_mended() -> None:
    story = Story(a_node("a", 16, 16))
    pod = a_pod(mem=3, annotations={names.GPU_COUNT: "2"})
    verdict = story.engine.filter(pod, ["a"], story.now)
    assert verdict.reason is not None
    assert "2 or 4 would" in verdict.reason.sentence
    mended = changed(pod, {})
    story.tell(PodSeen(mended))
    assert story.filter(mended) == ["a"]


def test_what_a_pod_asks_is_read_once_for_each_of_its_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    story, pod, read = Story(a_node("a", 16)), a_pod(mem=20), list[str]()
    real = AskReader.read

    def noted(reader: AskReader, pod: Pod, of_class: OfClass, isolation: Demanded = "any") -> Reading:
        read.append(pod.metadata.resource_version)
        return real(reader, pod, of_class, isolation)

    monkeypatch.setattr(AskReader, "read", noted)
    story.tell(PodSeen(pod))
    assert [story.filter(pod) for _ in range(3)] == [[], [], []]
    assert read == ["1"]
    smaller = changed(a_pod(mem=4), {})
    assert story.filter(smaller) == ["a"]
    story.tell(PodSeen(smaller))
    assert set(read) == {"1", "2"}
    assert read.count("1") == 1


def test_a_nominated_node_is_asked_alone() -> None:
    story = Story(a_node("a", 16), a_node("b", 16))
    assert story.filter(a_pod(mem=4), ["b"]) == ["b"]


def test_nodes_we_do_not_know_yet_are_not_offered() -> None:
    story = Story(a_node("a", 16))
    assert story.filter(a_pod(mem=4), ["a", "new"]) == ["a"]


WISH = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}}


def test_a_pod_with_soft_wishes_of_its_own_is_offered_all_of_many_equal_nodes() -> None:
    nodes = [a_node(f"n{i:02}", 16, 16) for i in range(20)]
    assert len(Story(*nodes).filter(a_pod("plain", mem=4))) == 16
    assert len(Story(*nodes).filter(a_pod("wishful", mem=4, spec=WISH))) == 20


def test_a_pod_with_soft_wishes_of_its_own_is_offered_no_node_that_is_worse_for_the_gpus() -> None:
    story = Story(a_node("a", 16), a_node("b", 16))
    story.run(a_pod("first", mem=4))
    pod = a_pod("wishful", mem=4, spec=WISH)
    assert story.filter(pod) == ["a"]
    assert story.engine.prioritize(pod, ["a", "b"]) == {"a": 10, "b": 0}


def test_preempt_keeps_only_candidates_where_the_gpus_really_become_free() -> None:
    story = Story(a_node("a", 16), a_node("b", 16))
    story.run(a_pod("v1", mem=16))
    story.run(a_pod("v2", mem=16))
    kept = story.engine.preempt(a_pod(mem=8), {"a": ["uid-v1"], "b": ["uid-x"], "c": ["uid-y"], "d": []})
    assert kept == {"a": ["uid-v1"]}
    assert story.engine.check() == []


def test_preempt_confirms_a_node_without_victims_only_if_the_pod_fits_there_already() -> None:
    story = Story(a_node("a", 16), a_node("b", 16))
    story.run(a_pod("v1", mem=16))
    empty: dict[str, list[str]] = {"a": [], "b": []}
    assert story.engine.preempt(a_pod(mem=8), empty) == {"b": []}
    assert story.engine.preempt(a_pod("plain"), empty) == empty


def test_gpushare_pods_and_nodes_are_read_and_its_annotations_written() -> None:
    mode = {"gpushare": True}
    node = a_node("g", allocatable={names.ALIYUN_MEM: "30", names.ALIYUN_COUNT: "2"})
    story = Story(node, **mode)
    limits: dict[str, Any] = {"limits": {names.ALIYUN_MEM: "10"}}
    running = a_pod(
        "old", containers=[a_container("c", **limits)], annotations={names.ALIYUN_IDX: "1"}, node="g", phase="Running"
    )
    story.tell(PodSeen(running))
    books = story.engine.nodes["g"].books
    assert books
    assert [book.mem_used for book in books.gpus.values()] == [0, 10]
    new = a_pod("new", containers=[a_container("c", limits={names.ALIYUN_MEM: "5"})])
    story.filter(new)
    place = story.engine.bind(a_ref(new), "g", story.now, wall_ns=12345)
    assert isinstance(place, PostBinding)
    assert {key: place.annotations[key] for key in place.annotations if key.startswith("ALIYUN")} == {
        names.ALIYUN_IDX: "1", names.ALIYUN_POD: "5", names.ALIYUN_DEV: "15",
        names.ALIYUN_ASSUME_TIME: "12345", names.ALIYUN_ASSIGNED: "false",
    }  # fmt: skip


def test_what_gpushare_placed_is_never_lost_while_our_plugin_takes_its_node_over() -> None:
    limits: dict[str, Any] = {"limits": {names.ALIYUN_MEM: "10"}}
    theirs = a_node("g", allocatable={names.ALIYUN_MEM: "30", names.ALIYUN_COUNT: "2"})
    ours = a_node("g", 15, 15)
    before = a_pod("old", containers=[a_container("c", **limits)], annotations={names.ALIYUN_IDX: "1"}, node="g")
    text = allocation.encode(an_allocation(c=[Share("GPU-g-1", 1, 10)]))
    after = changed(before, {names.ALIYUN_IDX: "1", names.ALLOCATION: text}, owned_by(names.PLUGIN, "status"))

    for events in ([NodeSeen(ours), PodSeen(after)], [PodSeen(after), NodeSeen(ours)]):
        story = Story(theirs, gpushare=True)
        story.tell(PodSeen(before))
        assert used(story, "g") == [0, 10]
        story.tell(events[0])
        assert used(story, "g") == [10, 10], "by names alone nobody can tell which it is"
        story.tell(events[1])
        assert used(story, "g") == [0, 10]
        assert story.engine.pods["uid-old"].problem == ""


def used(story: Story, node: str) -> list[int]:
    """Units taken of each GPU."""
    books = story.engine.nodes[node].books
    assert books
    return [book.mem_used for book in books.gpus.values()]


@pytest.mark.parametrize("writer", [names.PLUGIN, names.EXTENDER])
def test_what_we_wrote_through_the_status_is_believed_after_a_restart(writer: str) -> None:
    story = Story(a_node("a", 16, 16))
    text = allocation.encode(an_allocation(main=[Share("GPU-a-1", 1, 4)]))
    pod = a_pod(mem=4, annotations={names.ALLOCATION: text}, node="a")
    story.tell(PodSeen(changed(pod, pod.metadata.annotations, owned_by(writer, "status"))))
    assert story.engine.pods["uid-p"].problem == ""
    books = story.engine.nodes["a"].books
    assert books
    assert [book.mem_used for book in books.gpus.values()] == [0, 4]


def test_a_pod_that_ended_is_not_brought_back_by_a_late_question() -> None:
    story = Story(a_node("a", 16))
    pod = a_pod(mem=4)
    story.tell(PodSeen(pod))
    story.tell(PodGone(pod.metadata.uid))
    assert story.filter(pod) == []
    assert story.engine.pods == {}


def test_a_pod_that_no_watch_ever_shows_is_forgotten() -> None:
    story = Story(a_node("a", 16))
    story.filter(a_pod("ghost", mem=4))
    story.filter(a_pod("real", mem=4))
    story.tell(PodSeen(a_pod("real", mem=4)))
    story.now += 61
    story.tell(Tick())
    assert set(story.engine.pods) == {"uid-real"}


def test_a_bound_pod_with_a_senseless_ask_is_charged() -> None:
    story = Story(a_node("a", 16))
    env = [{"name": names.VISIBLE_DEVICES, "value": "all"}]
    story.tell(PodSeen(a_pod("stranger", containers=[a_container("c", whole=1, env=env)], node="a", phase="Running")))
    assert story.filter(a_pod("q", mem=1)) == []


def test_labels_and_cordons_of_all_nodes_cost_no_ranking_anything_and_amounts_do() -> None:
    nodes = [a_node(f"n{i}", 16) for i in range(20)]
    story = Story(*nodes)
    pod = a_pod("p", mem=4)
    story.filter(pod)
    index = story.engine._components.indexes.of(story.engine.pods[pod.metadata.uid].shape)
    for node in nodes:
        labels, spec = {"zone": "a"}, msgspec.structs.replace(node.spec, unschedulable=True)
        metadata = msgspec.structs.replace(node.metadata, labels=labels)
        story.tell(NodeSeen(msgspec.structs.replace(node, metadata=metadata, spec=spec)))
    assert isinstance(index, ShapeIndex)
    assert not index.stale
    assert story.engine.nodes["n0"].labels == {"zone": "a"}
    story.tell(NodeSeen(a_node("n0", 16, allocatable={"cpu": "8", "memory": "256Gi", "pods": "110"})))
    assert index.stale

"""Pods that name a GpuClass wait for it, follow it while they wait, and keep what they have once they are bound."""

from __future__ import annotations

import pytest

from extender.engine.types.events import ClassGone, Leading, NodeSeen, PodSeen, PodsListed, Tick
from protos.contract import names
from tests.builders import a_container, a_pod
from tests.unit.engine.selections import a_class, a_machine, named, refusal, statuses, woken
from tests.unit.engine.story import Story, bound

MISSING = "GpuClass large does not exist; the pod waits for it"


@pytest.fixture
def story() -> Story:
    """A node of two T4 and one of two A100."""
    return Story(a_machine("a", "Tesla T4", 15, 15), a_machine("b", "NVIDIA A100", 79, 79))


def test_a_pod_waits_for_its_class_and_goes_on_once_it_is_there(story: Story) -> None:
    pod = named()
    story.tell(PodSeen(pod))
    assert refusal(story, pod) == MISSING
    assert woken(story.tell(a_class(models=["*A100*"]))) == ["p"]
    assert story.run(pod) == "b:0"


def test_a_pod_that_asks_no_gpus_does_not_care_about_classes(story: Story) -> None:
    none = a_container("main", limits={names.WHOLE_GPU: "0"})
    assert story.filter(named(containers=[none])) == ["a", "b"]


def test_a_class_that_comes_while_a_question_is_on_its_way_is_not_missed(story: Story) -> None:
    pod = named()
    assert story.filter(pod) == []  # before the watch told of it
    assert woken(story.tell(a_class())) == []
    assert woken(story.tell(PodSeen(pod))) == ["p"]


def test_nobody_is_woken_who_was_not_refused(story: Story) -> None:
    story.tell(PodSeen(named()))
    assert woken(story.tell(a_class())) == []


def test_a_class_that_is_edited_changes_what_waits_and_not_what_is_bound(story: Story) -> None:
    story.tell(a_class(models=["*A100*"]))
    runs, waits = named("runs"), a_pod("waits", whole=2, annotations={names.GPU_CLASS: "large"})
    assert story.run(runs) == "b:0"
    story.tell(PodSeen(waits))
    assert "freest" in refusal(story, waits)
    assert woken(story.tell(a_class(models=["*H100*"]))) == ["waits"]
    assert (
        refusal(story, waits)
        == "no GPU in the cluster is of class large: it has NVIDIA A100 ×2, Tesla T4 ×2; did you mean A100?"
    )
    assert story.engine.pods["uid-runs"].node == "b"
    assert story.filter(named("new", mem=2)) == []


def test_a_class_that_is_edited_while_a_pod_is_on_its_way_holds_for_its_bind(story: Story) -> None:
    story.tell(a_class(models=["*A100*"]))
    pod = named()
    story.tell(PodSeen(pod))
    assert story.filter(pod) == ["b"]
    story.tell(ClassGone("large"))
    assert story.bind(pod, "b").reason.sentence == MISSING


def test_a_class_seen_again_as_it_was_wakes_nobody(story: Story) -> None:
    story.tell(a_class(models=["*A100*"]))
    pod = named(mem=80)
    story.tell(PodSeen(pod))
    assert refusal(story, pod)
    assert woken(story.tell(a_class(models=["*A100*"]))) == []


def test_a_class_that_cannot_be_read_is_waited_for(story: Story) -> None:
    story.tell(a_class(link="fast"))
    pod = named()
    story.tell(PodSeen(pod))
    words = "GpuClass large cannot be read; the pod waits until it is corrected: spec cannot be read: link is 'fast'"
    assert refusal(story, pod).startswith(words)
    assert woken(story.tell(a_class(link="any"))) == ["p"]


def test_a_restart_finds_bound_pods_whatever_became_of_their_class(story: Story) -> None:
    story.tell(a_class(models=["*A100*"]))
    pod = named()
    place = story.bind(pod, story.filter(pod)[0])
    again = Story(a_machine("a", "Tesla T4", 15, 15), a_machine("b", "NVIDIA A100", 79, 79))
    again.tell(PodSeen(bound(pod, place)))
    books = again.engine.nodes["b"].books
    assert books is not None
    assert books.entries["uid-p"].charges["GPU-b-0"].mem == 4


def test_two_pods_of_equal_wishes_are_one_shape_with_a_class_or_without(story: Story) -> None:
    story.tell(a_class(models=["*A100*"]))
    for pod in (named("p"), a_pod("q", mem=4, annotations={names.GPU_MODEL: "*A100*"})):
        story.tell(PodSeen(pod))
    asks = {story.engine.pods[uid].ask for uid in ("uid-p", "uid-q")}
    assert len(asks) == 1


def test_a_class_tells_how_many_gpus_are_of_it_and_how_many_are_free(story: Story) -> None:
    story.tell(a_class(models=["*A100*"]))
    story.tell(a_class("odd", minClockMHz=-1))
    told = statuses(story.tell(Tick()))
    assert [(each.name, each.gpus, each.free, each.nodes, bool(each.problem)) for each in told] == [
        ("large", 2, 2, 1, False),
        ("odd", 0, 0, 0, True),
    ]
    assert statuses(story.tell(Tick())) == []
    assert story.run(named())
    (now,) = statuses(story.tell(Tick()))
    assert (now.name, now.gpus, now.free, now.nodes) == ("large", 2, 1, 1)
    story.tell(NodeSeen(a_machine("c", "NVIDIA A100", 79)))
    (now,) = statuses(story.tell(Tick()))
    assert (now.gpus, now.free, now.nodes) == (3, 2, 2)


def test_only_who_leads_tells_and_tells_all_when_it_begins_to(story: Story) -> None:
    story.tell(a_class())
    story.tell(Leading(False))
    assert statuses(story.tell(Tick())) == []
    story.tell(Leading(True))
    assert [each.name for each in statuses(story.tell(Tick()))] == ["large"]


def test_members_of_a_gang_do_not_count_until_their_class_is_there(story: Story) -> None:
    gang = {names.GROUP: "g1", names.MIN_MEMBER: "2"}
    members = [named(f"m{number}", annotations=gang, whole=1, mem=0) for number in range(2)]
    story.tell(PodsListed())
    story.tell(a_class("other"))
    for member in members:
        story.tell(PodSeen(member))
    assert refusal(story, members[0]) == MISSING
    story.engine.step(a_class(models=["*A100*"]), story.now)
    while story.engine.run_slice(story.now):
        pass
    assert {story.engine.pods[member.metadata.uid].node for member in members} == {"b"}

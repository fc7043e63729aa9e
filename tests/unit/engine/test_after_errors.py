"""After internal errors: no other pod gets the GPUs of a pod, and no place stays held without an owner."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.cycle import recovery
from extender.engine.gangs.gates import Gates
from extender.engine.gangs.observer import GangObserver
from extender.engine.queueing.tenancy import Tenancy
from extender.engine.state.classes import Classes
from extender.engine.state.holds import Holds
from extender.engine.state.ledger import Ledger
from extender.engine.state.observe import Observer
from extender.engine.state.presence import Presence
from extender.engine.types.events import ClassGone, NodeGone, NodeSeen, PodGone, PodSeen, QueueGone, Tick
from extender.engine.types.subject import of_pod
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.members import Stage
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import members, two_nodes
from tests.unit.engine.preemption_story import PreemptionStory, urgent
from tests.unit.engine.story import Story, bound
from tests.unit.engine.test_quarantine import again, entries, poison
from tests.unit.engine.test_reservations import a_town, kept, reserved, waits

pytestmark = pytest.mark.faults


@pytest.fixture
def story() -> Story:
    return Story(a_node("n1", 16, 16))


def test_a_bound_pod_that_cannot_be_read_again_keeps_its_gpus(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    one = a_pod("one", mem=16)
    place = story.bind(one, story.filter(one)[0])
    there = bound(one, place)
    poison(Gates, "see", monkeypatch)
    story.tell(PodSeen(again(there, "2")))
    poison(Observer, "pod", monkeypatch)
    story.tell(PodSeen(again(there, "3")))
    assert entries(story) == ["uid-one"]
    monkeypatch.undo()
    assert story.run(a_pod("other", mem=16)) == "n1:1"
    story.tell(PodSeen(again(there, "4")))
    assert sorted(entries(story)) == ["uid-one", "uid-other"]


def test_a_bound_pod_that_was_read_by_half_is_charged_once_it_can_be_read(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = a_pod("one", mem=16)
    there = bound(one, story.bind(one, story.filter(one)[0]))
    new = Story(a_node("n1", 16, 16))
    poison(Observer, "_read", monkeypatch)
    new.tell(PodSeen(again(there, "1")))
    monkeypatch.undo()
    new.tell(PodSeen(again(there, "2")))
    assert entries(new) == ["uid-one"]


def test_the_books_are_not_sound_where_a_bound_pod_holds_nothing(story: Story) -> None:
    assert story.run(a_pod("one", mem=16)) == "n1:0"
    books = story.engine.nodes["n1"].books
    assert books is not None
    books.release("uid-one")
    assert story.engine.check() == ["n1 holds no GPUs for default/one, which is bound there"]


def test_a_pod_whose_soft_charge_cannot_be_given_back_is_not_woken_as_it_was(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert story.run(a_pod("large", mem=16)) == "n1:0"
    assert story.run(a_pod("other", mem=16)) == "n1:1"
    pod = again(a_pod("one", mem=16), "1")
    assert story.filter(pod) == []
    poison(Presence, "seen", monkeypatch)
    poison(Holds, "drop", monkeypatch)
    story.tell(PodSeen(again(pod, "2")))
    monkeypatch.undo()
    story.tell(PodSeen(again(pod, "3")))
    story.tell(PodGone("uid-large"))
    story.now += 1.0
    story.tell(Tick())
    assert story.run(pod) == "n1:0"


def test_room_that_cannot_be_given_back_at_once_is_given_back_later(monkeypatch: pytest.MonkeyPatch) -> None:
    story = a_town()
    train = waits(story, a_pod("train", mem=9), **reserved("n1", 0))
    assert kept(story) == [(4, 0), (0, 0)]
    poison(Ledger, "unbind", monkeypatch, lambda pod: pod.ref.uid.startswith("room-"))
    story.tell(PodSeen(again(a_pod("train", mem=9), "9")))  # nothing is asked for it any more
    monkeypatch.undo()
    story.tell(PodSeen(again(train, "10")))
    assert kept(story) == [(4, 0), (0, 0)]
    story.tell(PodGone("uid-train"))
    assert kept(story) == [(0, 0), (0, 0)]
    assert story.engine.ledger.keepers == {}


def test_a_soft_charge_that_nobody_knows_of_ends(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    one = a_pod("one", mem=16)
    story.tell(PodSeen(one))
    assert story.filter(one) == ["n1"]
    poison(Ledger, "unbind", monkeypatch)
    story.now += 60.0
    story.tell(Tick())  # it is over, and cannot be given back
    monkeypatch.undo()
    assert entries(story) == ["uid-one"]
    story.tell(Tick())
    story.now += recovery.RECOUNT_S
    story.tell(Tick())
    assert entries(story) == []


def test_a_start_that_fails_by_half_keeps_no_places(monkeypatch: pytest.MonkeyPatch) -> None:
    story = two_nodes()
    poison(Gang, "start", monkeypatch)
    story.create(*members(2, gang="bad", prefix="bad-", mem=16))
    assert story.why("bad") == "SetAside"
    assert story.booked() == []
    assert story.engine.gangs.assignments.of_member == {}
    monkeypatch.undo()
    story.create(*members(4, gang="good", prefix="good-", mem=16))
    assert sorted(story.come("good-0", "good-1", "good-2", "good-3")) == ["flying", "held", "held", "held"]


def test_a_search_for_one_who_found_a_place_meanwhile_is_not_begun_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = PreemptionStory(a_node("n1", 16))
    story.runs(a_pod("low", mem=16))
    story.create(*(urgent(pod, 1000) for pod in members(1, gang="g", least=1, mem=16)))
    story.later(1.0)
    known = story.known("g")
    assert story.stage("m0") is Stage.IDLE
    story.engine.pods[story.pods["m0"].metadata.uid].state = "held"  # as nothing may have it
    story.now += 30.0
    began = 0
    right = type(story.engine._components.preemption).search

    def searching(self: Any, *args: Any) -> Any:
        nonlocal began
        began += 1
        return right(self, *args)

    monkeypatch.setattr(type(story.engine._components.preemption), "search", searching)
    story.engine.step(Tick(), story.now)
    steps = 0
    while story.engine.run_slice(story.now) and steps < 1000:
        steps += 1
    assert known.reason is not None
    assert (began, steps < 1000) == (1, True)


def test_a_pod_that_only_the_scheduler_knew_is_not_set_aside_for_ever(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = a_pod("one", mem=16)
    assert story.filter(pod) == ["n1"]
    poison(Holds, "drop", monkeypatch)
    assert story.filter(pod) == []
    assert of_pod("uid-one") in story.engine.quarantine
    monkeypatch.undo()
    story.now += 120.0
    story.tell(NodeSeen(a_node("n1", 16, 16)))
    story.tell(Tick())
    assert of_pod("uid-one") not in story.engine.quarantine


def test_a_member_that_goes_and_cannot_be_forgotten_is_forgotten_later(monkeypatch: pytest.MonkeyPatch) -> None:
    story = two_nodes()
    story.start(*members(2, gang="bad", prefix="bad-", mem=16))
    poison(GangObserver, "forget", monkeypatch)
    for name in ("bad-0", "bad-1"):
        story.tell(PodGone(story.pods.pop(name).metadata.uid))
    assert [member.name for member in story.gang("bad").members.values()] == ["bad-0", "bad-1"]
    tried = story.engine.counters["faults", "end"]
    story.later(recovery.GONE_MOST_S)
    assert tried < story.engine.counters["faults", "end"] < tried + 100
    monkeypatch.undo()
    story.later(2 * recovery.GONE_MOST_S)
    assert GroupKey("default", "bad") not in story.engine.gangs.roster.known
    assert not [subject for subject, _ in story.engine.quarantine.all()]


def test_a_node_that_goes_and_cannot_be_dropped_takes_nobody(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(Ledger, "drop_node", monkeypatch)
    story.tell(NodeGone("n1"))
    monkeypatch.undo()
    assert story.filter(a_pod("one", mem=16), ["n1"]) == []


def test_what_is_gone_is_not_set_aside(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(Classes, "drop", monkeypatch)
    poison(Tenancy, "drop", monkeypatch)
    story.tell(ClassGone("fast"))
    story.tell(QueueGone("gangshare.io/v1alpha1", "a"))
    assert story.engine.counters["faults", "ClassGone"] == story.engine.counters["faults", "QueueGone"] == 1
    assert not list(story.engine.quarantine.all())

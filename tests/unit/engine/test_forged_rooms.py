"""Rooms that a tenant asks for by himself: nothing is kept, and nobody waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.types.effects import Report
from extender.engine.types.events import PodGone, PodSeen, QueueSeen, Tick
from protos.contract import bounds, codec, names, reservation
from protos.contract.objects import Pod
from protos.contract.queue import GPU, GPUS, Queue
from protos.contract.reservation import Reservation, Room
from tests.builders import a_node, a_pod
from tests.unit.engine.story import Story, asks_for_room, changed, owned_by

LAST = "2100-01-01T00:00:00Z"
FORGERIES: dict[str, list[dict[str, Any]]] = {
    "an edit": owned_by("kubectl-edit", "", names.RESERVATION),
    "an edit under our name": owned_by(names.EXTENDER, "", names.RESERVATION),
    "an apply beside us": [
        *owned_by(names.EXTENDER, "status", names.RESERVATION),
        *owned_by("kubectl", "", names.RESERVATION),
    ],
    "the plugin's name": owned_by(names.PLUGIN, "status", names.RESERVATION),
    "traces wiped": [],
    "nonsense": [{"manager": 7}],
}


def a_word(pod: Pod, node: str, *gpus: int, preempting: bool | None = None, until: str = LAST) -> dict[str, str]:
    """The annotation that asks for these GPUs for the pod."""
    room = Room(node, {"main": tuple(f"GPU-{node}-{gpu}" for gpu in gpus)})
    told = Reservation(codec.VERSION, {pod.metadata.uid: room}, until, preempting)
    return {names.RESERVATION: reservation.encode(told)}


def a_tenant(name: str, queue: str = "", **asked: Any) -> Pod:
    return a_pod(name, annotations={names.QUEUE: queue} if queue else {}, **asked)


def rooms(story: Story) -> list[str]:
    """For whom anything is kept."""
    return sorted(uid.removeprefix("room-uid-") for uid in story.engine.ledger.keepers)


def limited(name: str, gpus: int, **fields: Any) -> QueueSeen:
    return QueueSeen(Queue(name=name, capability={GPUS: gpus * GPU}, **fields))


@pytest.mark.parametrize("managed", FORGERIES.values(), ids=FORGERIES)
@pytest.mark.parametrize("preempting", [None, True])
def test_nothing_is_kept_by_the_word_of_anybody_else(managed: list[dict[str, Any]], preempting: bool | None) -> None:
    story = Story(a_node("n1", 10, 10))
    pod = a_tenant("greedy", whole=2)
    pod = changed(pod, a_word(pod, "n1", 0, 1, preempting=preempting), managed)
    told = [effect for effect in story.tell(PodSeen(pod)) if isinstance(effect, Report)]
    assert [report.reason.code for report in told] == ["ReservationForged"]
    assert not [effect for effect in story.tell(PodSeen(pod)) if isinstance(effect, Report)], "it is told once"
    assert rooms(story) == []
    assert list(story.engine.reservations.preempting()) == []
    assert story.run(a_pod("other", whole=2)) == "n1:0,1"


def test_a_word_of_ours_that_somebody_edits_is_worth_nothing_from_then_on() -> None:
    story = Story(a_node("n1", 10, 10))
    pod = a_tenant("greedy", whole=1)
    story.tell(PodSeen(asks_for_room(pod, a_word(pod, "n1", 0))))
    assert rooms(story) == ["greedy"]
    story.tell(PodSeen(changed(pod, a_word(pod, "n1", 1), FORGERIES["an edit"])))
    assert rooms(story) == []


def test_whoever_edits_it_every_four_minutes_keeps_nobody_out() -> None:
    story = Story(*(a_node(f"n{number}", *[10] * 8) for number in range(4)))
    story.tell(limited("small", 1))
    pods = [a_tenant(f"p{number}", "small", whole=1) for number in range(32)]
    for turn in range(5):
        for number, pod in enumerate(pods):
            word = a_word(pod, f"n{number // 8}", number % 8, until=f"2100-01-0{turn + 1}T00:00:00Z")
            said = {**pod.metadata.annotations, **word}
            story.tell(PodSeen(changed(pod, said, FORGERIES["an edit"])))
        story.now += 240.0
        story.tell(Tick())
    assert [story.run(a_pod(f"other-{number}", whole=8)) != "" for number in range(4)] == [True] * 4


@pytest.mark.parametrize(("by", "preempting"), [(names.DEFRAG, None), (names.EXTENDER, True)])
def test_nothing_is_kept_past_the_capability_of_a_queue_whoever_asks(by: str, preempting: bool | None) -> None:
    story = Story(*(a_node(f"n{number}", *[10] * 8) for number in range(4)))
    story.tell(limited("small", 1))
    for number in range(32):
        pod = a_tenant(f"p{number}", "small", whole=1)
        word = a_word(pod, f"n{number // 8}", number % 8, preempting=preempting)
        story.tell(PodSeen(asks_for_room(pod, word, by)))
    assert rooms(story) == ["p0"]
    story.tell(PodGone("uid-p0"))
    story.tell(Tick())
    assert len(rooms(story)) == 1, "another has its turn"
    story.tell(limited("small", 3))
    story.tell(Tick())
    assert len(rooms(story)) == 3
    story.tell(limited("small", 2))
    story.tell(Tick())
    assert len(rooms(story)) == 2, "less is kept when the queue may have less"


@pytest.mark.parametrize("by", [names.DEFRAG, names.EXTENDER])
def test_room_that_does_not_exist_charges_no_queue(by: str) -> None:
    story = Story(a_node("n1", 10, 10))
    for queue in (limited("both", 2), limited_below("a"), limited_below("b")):
        story.tell(queue)
    pod = a_tenant("greedy", "a", whole=1000)
    nowhere = Room("nowhere", {"main": tuple(f"GPU-nowhere-{gpu}" for gpu in range(1000))})
    told = Reservation(codec.VERSION, {pod.metadata.uid: nowhere}, LAST, preempting=True)
    said = {**pod.metadata.annotations, names.RESERVATION: reservation.encode(told)}
    story.tell(PodSeen(asks_for_room(pod, said, by)))
    small = a_tenant("small", "a", whole=1)
    story.tell(PodSeen(asks_for_room(small, a_word(small, "nowhere", 0, preempting=True), by)))
    assert not story.engine.tenancy.queues.promised
    assert story.run(a_tenant("other", "b", whole=2)) == "n1:0,1"


def limited_below(name: str) -> QueueSeen:
    return QueueSeen(Queue(name=name, parent="both"))


@pytest.mark.parametrize("by", [names.DEFRAG, names.EXTENDER])
def test_no_room_is_kept_for_a_pod_that_may_not_come(by: str) -> None:
    story = Story(a_node("n1", 10, 10))
    story.tell(limited("shut", 2, closed=True))
    shut = a_tenant("shut", "shut", whole=1)
    missing = a_tenant("missing", "no-such-queue", whole=1)
    odd = a_pod("odd", annotations={names.GPU_COUNT: "many"}, mem=1)
    forged = a_pod("forged", whole=1, annotations={names.ALLOCATION: "{}"})
    for number, pod in enumerate((shut, missing, odd, forged)):
        story.tell(PodSeen(asks_for_room(pod, a_word(pod, "n1", number % 2), by)))
    assert rooms(story) == []
    story.tell(limited("shut", 2))
    story.tell(Tick())
    assert rooms(story) == ["shut"]


def test_what_waits_longer_and_is_worth_more_comes_first_whatever_a_tenant_writes() -> None:
    story = Story(a_node("n1", 10))
    assert story.run(a_pod("runs", whole=1)) == "n1:0"
    important = a_pod("important", whole=1, spec={"priority": 1000})
    story.tell(PodSeen(important))
    assert story.filter(important) == []
    low = a_pod("low", whole=1)
    story.tell(PodSeen(changed(low, a_word(low, "n1", 0, preempting=True), FORGERIES["an edit"])))
    assert story.filter(low) == []
    story.tell(PodGone("uid-runs"))
    assert story.wakes() == ["important"]
    assert story.run(important) == "n1:0"


def test_an_operator_does_not_preempt_by_it() -> None:
    story = Story(a_node("n1", 10))
    pod = a_pod("train", whole=1)
    story.tell(PodSeen(asks_for_room(pod, a_word(pod, "n1", 0, preempting=True), names.DEFRAG)))
    assert rooms(story) == ["train"]
    assert list(story.engine.reservations.preempting()) == []


# -- how much all of them may say


def test_all_annotations_together_name_so_many_rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ROOMS_IN_SUM", bounds.Bound("rooms of all reservations", 2))
    story = Story(a_node("n1", *[10] * 4))
    found = []
    for number in range(3):
        pod = a_pod(f"p{number}", whole=1)
        found += story.tell(PodSeen(asks_for_room(pod, a_word(pod, "n1", number))))
    assert [report.reason.numbers for report in found if isinstance(report, Report)] == [
        "rooms of all reservations: 3, expected at most 2"
    ]
    assert rooms(story) == ["p0", "p1"]
    story.tell(PodGone("uid-p0"))
    late = a_pod("p3", whole=1)
    story.tell(PodSeen(asks_for_room(late, a_word(late, "n1", 3))))
    assert rooms(story) == ["p1", "p3"]

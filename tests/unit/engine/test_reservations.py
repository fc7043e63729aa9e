"""Room that is kept for a pod that waits: booked as it becomes free, for nobody else, and not for ever."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.types.effects import PostBinding, Report, Requeue
from extender.engine.types.events import GroupSeen, NodeSeen, PodGone, PodSeen, QueueSeen, Tick
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract import codec, names, reservation
from protos.contract.objects import Pod
from protos.contract.queue import GPU, GPUS, Queue
from protos.contract.reservation import Reservation, Room
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import VOLCANO, GangStory, a_declaration, a_member
from tests.unit.engine.story import Story, asks_for_room, changed

UNTIL = "1970-01-01T00:10:00Z"
"""The clock of these stories shows 100 s since 1970 at first."""


def a_room(node: str, *gpus: int, container: str = "main") -> Room:
    return Room(node, {container: tuple(f"GPU-{node}-{gpu}" for gpu in gpus)})


def asked(rooms: dict[str, Room], until: str = UNTIL) -> dict[str, str]:
    """The annotation that asks for these rooms, by the names of the pods that they are for."""
    told = Reservation(codec.VERSION, {f"uid-{name}": room for name, room in rooms.items()}, until)
    return {names.RESERVATION: reservation.encode(told)}


def reserved(node: str, *gpus: int, until: str = UNTIL, container: str = "main", pod: str = "train") -> dict[str, str]:
    return asked({pod: a_room(node, *gpus, container=container)}, until)


def a_town(**settings: Any) -> Story:
    """A node n1 with two GPUs of 10 units, of which the pods a and b take 6 each."""
    story = Story(a_node("n1", 10, 10), **settings)
    assert [story.run(a_pod(name, mem=6)) for name in "ab"] == ["n1:0", "n1:1"]
    return story


def waits(story: Story, pod: Pod, **annotations: str) -> Pod:
    """The pod, after it was refused, carries these annotations."""
    story.tell(PodSeen(pod))
    assert story.filter(pod) == []
    pod = asks_for_room(pod, annotations)
    story.tell(PodSeen(pod))
    return pod


def kept(story: Story) -> list[tuple[int, int]]:
    """What is booked of each GPU for pods that wait: units and slices."""
    books = story.engine.nodes["n1"].books
    assert books is not None
    mine = [entry.charges for uid, entry in books.entries.items() if uid.startswith("room-")]
    each = [[charges[uuid] for charges in mine if uuid in charges] for uuid in books.gpus]
    return [(sum(d.mem for d in found), sum(d.slices for d in found)) for found in each]


def test_what_is_free_is_booked_at_once_and_the_rest_in_the_step_in_which_it_becomes_free() -> None:
    story = a_town()
    train = waits(story, a_pod("train", whole=2), **reserved("n1", 0, 1))
    assert kept(story) == [(4, 100), (4, 100)]
    assert not story.tell(PodGone("uid-b"))
    assert kept(story) == [(4, 100), (10, 100)]
    told = story.tell(PodGone("uid-a"))
    assert kept(story) == [(10, 100), (10, 100)]
    assert [(wake.pod.name, wake.node) for wake in told if isinstance(wake, Requeue)] == [("train", "n1")]
    assert story.run(train) == "n1:0,1"
    assert kept(story) == [(0, 0), (0, 0)]


def test_nobody_else_gets_it() -> None:
    story = a_town()
    train = waits(story, a_pod("train", mem=9), **reserved("n1", 0))
    assert story.run(a_pod("small", mem=3)) == "n1:1"
    assert story.filter(a_pod("smaller", mem=2)) == []
    story.tell(PodGone("uid-a"))
    assert story.filter(a_pod("grand", mem=5, spec={"priority": 1000})) == []
    assert story.run(train) == "n1:0"


def test_the_pod_may_be_asked_for_again_and_again() -> None:
    story = a_town()
    train = waits(story, a_pod("train", mem=9), **reserved("n1", 0))
    for _ in range(3):
        assert story.filter(train) == []
        assert kept(story) == [(4, 0), (0, 0)]
    story.tell(PodGone("uid-a"))
    assert story.filter(train) == ["n1"]
    assert kept(story) == [(0, 0), (0, 0)]  # it is softly charged itself
    story.now += 2
    story.tell(Tick())
    assert kept(story) == [(9, 0), (0, 0)]
    assert isinstance(story.bind(train, "n1"), PostBinding)
    assert kept(story) == [(0, 0), (0, 0)]


def test_it_is_given_up_with_its_time_the_pod_or_the_word() -> None:
    def again() -> tuple[Story, Pod]:
        story = a_town()
        return story, waits(story, a_pod("train", mem=9), **reserved("n1", 0))

    story, train = again()
    story.now += 301  # the setting's five minutes are less than what was asked for
    story.tell(Tick())
    assert kept(story) == [(0, 0), (0, 0)]
    story.tell(PodSeen(train))
    assert kept(story) == [(0, 0), (0, 0)]
    story, train = again()
    story.tell(PodGone(train.metadata.uid))
    assert kept(story) == [(0, 0), (0, 0)]
    story, train = again()
    story.tell(PodSeen(changed(train, {})))
    assert kept(story) == [(0, 0), (0, 0)]


def test_it_ends_when_it_says() -> None:
    story = a_town()
    waits(story, a_pod("train", mem=9), **reserved("n1", 0, until="1970-01-01T00:02:00Z"))
    assert kept(story) == [(4, 0), (0, 0)]
    story.now = 121.0
    story.tell(Tick())
    assert kept(story) == [(0, 0), (0, 0)]


@pytest.mark.parametrize(
    "said",
    [reserved("n1", 0, 1), reserved("n1"), reserved("n2", 0), reserved("n1", 7), reserved("n1", 0, container="other")],
    ids=["two GPUs", "none", "no such node", "no such GPU", "no such container"],
)
def test_no_more_is_kept_than_the_pod_asks(said: dict[str, str]) -> None:
    story = a_town()
    waits(story, a_pod("train", mem=9), **said)
    assert kept(story) == [(0, 0), (0, 0)]


def test_no_gpu_is_kept_that_the_pod_does_not_select() -> None:
    story = a_town()
    waits(story, a_pod("train", mem=9, annotations={names.GPU_UUID: "GPU-n1-1"}), **reserved("n1", 0))
    assert kept(story) == [(0, 0), (0, 0)]


def test_nothing_is_kept_where_the_setting_says_so() -> None:
    story = a_town(reservation_ttl_s=0.0)
    waits(story, a_pod("train", mem=9), **reserved("n1", 0))
    assert kept(story) == [(0, 0), (0, 0)]


def test_nothing_is_kept_for_a_pod_that_another_scheduler_places() -> None:
    story = a_town(scheduler_names=("gangshare",))
    waits(story, a_pod("train", mem=9, spec={"schedulerName": "another"}), **reserved("n1", 0))
    assert kept(story) == [(0, 0), (0, 0)]
    waits(story, a_pod("ours", mem=9, spec={"schedulerName": "gangshare"}), **reserved("n1", 0, pod="ours"))
    assert kept(story) == [(4, 0), (0, 0)]


def test_nonsense_is_told_to_its_owner_once() -> None:
    story = a_town()
    pod = asks_for_room(a_pod("train", mem=9), {names.RESERVATION: '{"v":1,"rooms":{}}'})
    told = [effect for effect in story.tell(PodSeen(pod)) if isinstance(effect, Report)]
    assert [(report.reason.code, "until" in report.reason.numbers) for report in told] == [
        ("ReservationMalformed", True)
    ]
    assert not [effect for effect in story.tell(PodSeen(pod)) if isinstance(effect, Report)]


def test_who_starts_anew_keeps_what_is_left_of_it() -> None:
    story = Story()
    train = asks_for_room(a_pod("train", mem=9), reserved("n1", 0))
    story.tell(PodSeen(train))  # pods may come before nodes
    story.tell(NodeSeen(a_node("n1", 10, 10)))
    assert kept(story) == [(9, 0), (0, 0)]


def test_a_pod_that_does_not_come_is_woken_again() -> None:
    story = a_town()
    waits(story, a_pod("train", mem=9), **reserved("n1", 0))
    story.tell(PodGone("uid-a"))
    assert story.wakes(1.0) == []
    assert story.wakes(5.0) == ["train"]
    assert story.wakes(5.0) == []
    assert story.wakes(6.0) == ["train"]


def test_a_gang_starts_with_all_that_is_kept_for_it() -> None:
    world = GangStory(a_node("n1", 10, 10), a_node("n2", 10))
    world.create(a_pod("holder", mem=6, annotations={names.GPU_UUID: "GPU-n1-1"}))
    assert world.come("holder") == ["flying"]
    world.land("holder")
    places = {"m0": ("n1", 0), "m1": ("n1", 1), "m2": ("n2", 0)}
    until = "2100-01-01T00:00:00Z"
    world.create(
        *(
            asks_for_room(a_member(name, whole=1), reserved(*place, until=until, pod=name))
            for name, place in places.items()
        )
    )
    world.run_slice()
    assert world.phase() is Phase.WAITING
    assert world.booked() == ["holder"]
    world.create(a_pod("other", mem=4))
    assert world.come("other") == ["NoRoom"]
    world.delete("holder")
    assert world.phase() is Phase.STARTING
    held = {pod.ref.name: pod.node for pod in world.engine.pods.values() if pod.state == "held"}
    assert held == {name: node for name, (node, _) in places.items()}


def test_a_gang_starts_with_room_for_any_of_its_members_that_are_enough() -> None:
    world = GangStory(a_node("n1", 10, 10))
    until = "2100-01-01T00:00:00Z"
    world.create(a_member("m0", least=2, whole=1), *(reserved_member(i, until, gpu=i - 1) for i in (1, 2)))
    world.run_slice()
    assert {pod.ref.name for pod in world.engine.pods.values() if pod.state == "held"} == {"m1", "m2"}


def reserved_member(number: int, until: str, gpu: int | None = None) -> Pod:
    said = reserved("n1", number if gpu is None else gpu, until=until, pod=f"m{number}")
    return asks_for_room(a_member(f"m{number}", least=2, whole=1), said)


def test_a_gang_of_other_members_is_planned_like_any_other() -> None:
    world = GangStory(a_node("n1", 10, 10))
    world.create(a_pod("holder", mem=6, annotations={names.GPU_UUID: "GPU-n1-1"}))
    assert world.come("holder") == ["flying"]
    world.land("holder")
    until = "2100-01-01T00:00:00Z"
    world.create(*(reserved_member(i, until) for i in range(2)))
    world.run_slice()
    world.delete("m1")
    world.create(a_member("m2", least=2, whole=1))
    world.delete("holder")
    for _ in range(20):
        world.later(1)
        world.come("m0", "m2")  # while it asks, its room is lent to it
    assert not any(pod.state == "held" for pod in world.engine.pods.values())
    for _ in range(20):
        world.later(1)
        world.come("m0", "m2")
    assert {pod.ref.name for pod in world.engine.pods.values() if pod.state != "waiting"} == {"m0", "m2"}


def test_a_gang_whose_start_comes_to_nothing_has_its_room_again() -> None:
    world = GangStory(a_node("n1", 10, 10))
    until = "2100-01-01T00:00:00Z"
    mine = [reserved_member(i, until) for i in range(2)]
    world.create(*mine)
    world.run_slice()
    assert world.phase() is Phase.STARTING
    while not world.engine.counters["gang_starts", "stuck"]:
        world.later(1)
    world.create(a_pod("other", mem=4))
    assert world.come("other") == ["NoRoom"]


# -- what happens elsewhere


def test_room_is_kept_once_its_queue_has_quota_whatever_node_that_comes_from() -> None:
    story = Story(a_node("n1", 10), a_node("n2", 10))
    story.tell(QueueSeen(Queue(name="q", capability={GPUS: GPU})))
    in_queue = {names.QUEUE: "q"}
    holder = a_pod("holder", whole=1, annotations={names.GPU_UUID: "GPU-n2-0", **in_queue})
    assert story.run(holder) == "n2:0"
    train = a_pod("train", whole=1, annotations=in_queue)
    waits(story, train, **reserved("n1", 0), **in_queue)
    story.wakes()
    assert kept(story) == [(0, 0)]
    story.tell(PodGone("uid-holder"))
    story.wakes()
    assert kept(story) == [(10, 100)]


def test_no_room_is_kept_in_a_queue_that_closes() -> None:
    story = a_town()
    story.tell(QueueSeen(Queue(name="q")))
    said = {names.QUEUE: "q"}
    waits(story, a_pod("train", whole=2, annotations=said), **reserved("n1", 0, 1), **said)
    story.wakes()
    assert kept(story) == [(4, 100), (4, 100)]
    story.tell(QueueSeen(Queue(name="q", closed=True)))
    story.wakes()
    assert kept(story) == [(0, 0), (0, 0)]


def test_no_room_is_kept_for_a_gang_that_starts_elsewhere() -> None:
    world = GangStory(a_node("n1", 10, 10))
    world.create(a_pod("holder", mem=6, annotations={names.GPU_UUID: "GPU-n1-1"}))
    assert world.come("holder") == ["flying"]
    world.land("holder")
    world.create(*(reserved_member(i, "2100-01-01T00:00:00Z") for i in range(2)))
    world.run_slice()
    assert len(world.engine.ledger.keepers) == 2
    world.tell(NodeSeen(a_node("n2", 10, 10)))
    world.later(1)
    assert {pod.node for pod in world.engine.pods.values() if pod.state == "held"} == {"n2"}
    world.later(1)
    assert not world.engine.ledger.keepers


def test_no_room_is_kept_for_a_gang_that_goes_to_a_queue_without_quota() -> None:
    world = GangStory(a_node("n1", 10, 10))
    world.create(a_pod("holder", mem=6, annotations={names.GPU_UUID: "GPU-n1-1"}))
    assert world.come("holder") == ["flying"]
    world.land("holder")
    world.tell(QueueSeen(Queue(name="none", capability={GPUS: 0})))
    world.create(a_pod("known", mem=1, annotations={names.QUEUE: "none"}))
    world.create(*(reserved_member(i, "2100-01-01T00:00:00Z") for i in range(2)))
    world.run_slice()
    world.later(1)
    assert len(world.engine.ledger.keepers) == 2
    world.tell(GroupSeen(VOLCANO, GroupKey("default", "g"), a_declaration(min_member=2, queue="none")))
    world.later(1)
    assert not world.engine.ledger.keepers


# -- one annotation for several pods


def a_pair(**said: dict[str, str]) -> Story:
    """Two pods that wait for a GPU each, with what stands on them."""
    story = Story(a_node("n1", 10, 10))
    for name in ("one", "two"):
        story.tell(PodSeen(asks_for_room(a_pod(name, mem=6), said.get(name))))
    return story


BOTH = asked({"one": a_room("n1", 0), "two": a_room("n1", 1)})


def test_the_word_of_one_pod_keeps_room_for_others_whoever_comes_first() -> None:
    assert kept(a_pair(one=BOTH)) == [(6, 0), (6, 0)]
    assert kept(a_pair(two=BOTH)) == [(6, 0), (6, 0)]


def test_room_that_two_pods_name_is_kept_while_one_of_them_is_there() -> None:
    story = a_pair(one=BOTH, two=BOTH)
    story.tell(PodGone("uid-one"))
    assert kept(story) == [(0, 0), (6, 0)]
    story = a_pair(one=BOTH)
    story.tell(PodGone("uid-one"))
    assert kept(story) == [(0, 0), (0, 0)]


def test_room_is_kept_for_the_others_when_the_one_whose_word_it_is_has_its_node() -> None:
    story = a_pair(one=BOTH)
    assert story.run(asks_for_room(a_pod("one", mem=6), BOTH)) == "n1:0"
    assert kept(story) == [(0, 0), (6, 0)]


def test_no_room_is_kept_for_pods_of_other_namespaces() -> None:
    story = Story(a_node("n1", 10, 10))
    story.tell(PodSeen(asks_for_room(a_pod("one", mem=6), BOTH)))
    story.tell(PodSeen(a_pod("two", mem=6, namespace="elsewhere")))
    assert kept(story) == [(6, 0), (0, 0)]

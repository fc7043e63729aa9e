"""Running pods get more or less GPU memory: booked on the GPUs that they have, answered once, and never forged."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from extender.engine.types.effects import Report, SetAnnotation
from extender.engine.types.events import PodSeen, QueueSeen
from protos.contract import names, resize
from protos.contract.isolation import Isolation
from protos.contract.objects import Pod
from protos.contract.queue import GPU, GPUS, Queue
from protos.contract.resize import Resized
from tests.builders import MAKER, a_container, a_node, a_pod
from tests.unit.engine.preemption_story import PreemptionStory, a_single
from tests.unit.engine.story import Story, bound, changed, owned_by

DRIVER = Isolation(memory="driver")


def a_town(*, isolation: Isolation = DRIVER, mem: int = 16) -> Story:
    return Story(a_node("a", mem, isolation=isolation))


class Run:
    """A pod of 4 units that runs, and what users and the API server do with it."""

    def __init__(self, town: Story, name: str = "p", annotations: dict[str, str] | None = None, **ask: Any) -> None:
        self.town = town
        pod = a_pod(name, annotations=annotations, containers=[a_container("main", **(ask or {"mem": 4}))])
        nodes = town.filter(pod)
        answer = town.bind(pod, nodes[0])
        self.pod: Pod = bound(pod, answer, [MAKER])
        town.tell(PodSeen(self.pod))

    def wants(self, text: str) -> list[Any]:
        return self.edit({**self.pod.metadata.annotations, names.RESIZE: text})

    def edit(self, annotations: dict[str, str], managed: list[dict[str, Any]] | None = None) -> list[Any]:
        self.pod = changed(self.pod, annotations, managed)
        return self.town.tell(PodSeen(self.pod))

    def written(self, effects: list[Any]) -> Resized:
        """The API server takes the answer."""
        (effect,) = [e for e in effects if isinstance(e, SetAnnotation)]
        assert effect.key == names.RESIZED
        answer = resize.resized.decode(effect.value)
        assert answer is not None
        annotations = {**self.pod.metadata.annotations, names.RESIZED: effect.value or ""}
        assert self.edit(annotations, [MAKER, *owned_by(names.EXTENDER, "status", names.RESIZED)]) == []
        return answer

    @property
    def used(self) -> int:
        books = self.town.engine.nodes["a"].books
        assert books is not None
        return sum(book.mem_used for book in books.gpus.values())


def wish(number: str = "1", **amounts: int) -> str:
    containers = ",".join(f'"{name}":{amount}' for name, amount in (amounts or {"main": 8}).items())
    return f'{{"v":1,"id":"{number}","containers":{{{containers}}}}}'


def test_more_is_booked_and_answered_once() -> None:
    run = Run(a_town())
    assert run.used == 4
    effects = run.wants(wish(main=8))
    assert run.used == 8
    assert run.written(effects) == Resized(1, "1", {"main": 8}, {"main": 8})
    assert run.used == 8
    assert run.town.run(a_pod("more", mem=9)) == ""
    assert run.town.run(a_pod("fits", mem=8)) == "a:0"


def test_what_is_booked_stays_when_less_is_wanted() -> None:
    run = Run(a_town())
    run.written(run.wants(wish("1", main=8)))
    assert run.written(run.wants(wish("2", main=2))) == Resized(1, "2", {"main": 2}, {"main": 8})
    assert run.used == 8
    small = Run(a_town())
    assert small.written(small.wants(wish(main=2))) == Resized(1, "1", {"main": 2}, {"main": 2})
    assert small.used == 4, "never less than it requests"


def test_two_wishes_in_a_row_are_both_answered_and_old_news_changes_nothing() -> None:
    run = Run(a_town())
    run.wants(wish("1", main=8))
    effects = run.wants(wish("2", main=10))
    assert run.used == 10
    run.town.tell(PodSeen(run.pod))
    assert run.used == 10
    assert run.written(effects).id == "2"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (wish(main=17), "GPU 0 has room for 8 more units, 13 are wanted"),
        (wish(main=13), "GPU 0 has room for 8 more units, 9 are wanted"),
        (wish(other=5), "container other requests no GPUs"),
    ],
)
def test_what_cannot_be_is_refused_with_numbers_and_nothing_is_booked(text: str, why: str) -> None:
    run = Run(a_town())
    assert run.town.run(a_pod("other", mem=4)) == "a:0"
    effects = run.wants(text)
    (told,) = [e for e in effects if isinstance(e, Report)]
    assert (told.reason.code, why in str(told.reason)) == ("ResizeRefused", True)
    answer = run.written(effects)
    assert why in answer.refused
    assert (answer.containers, answer.booked, run.used) == ({}, {}, 8)


def test_nodes_without_limits_of_the_driver_whole_gpus_and_slices_are_refused() -> None:
    promised = Run(a_town(isolation=Isolation(why="old driver")))
    assert "old driver" in promised.written(promised.wants(wish())).refused
    for ask in ("whole", "slices"):
        run = Run(a_town(), "p", None, **{ask: 1})
        assert "requests no amount of GPU memory" in run.written(run.wants(wish())).refused


@pytest.mark.parametrize("text", ["", "12", "[" * 9000, '{"v":1,"id":"","containers":{"main":1}}', wish(main=0)])
def test_a_wish_that_cannot_be_read_is_told_once(text: str) -> None:
    run = Run(a_town())
    (told,) = run.wants(text)
    assert isinstance(told, Report)
    assert told.reason.code == "ResizeRefused"
    assert run.town.tell(PodSeen(run.pod)) == []
    assert run.used == 4


def test_a_new_extender_books_what_was_answered_and_answers_no_wish_twice() -> None:
    run = Run(a_town())
    run.written(run.wants(wish(main=8)))
    new = a_town()
    assert new.tell(PodSeen(run.pod)) == []
    run.town = new
    assert run.used == 8


def test_a_new_extender_answers_the_wish_that_the_former_one_did_not() -> None:
    run = Run(a_town())
    run.wants(wish(main=8))
    run.town = new = a_town()
    effects = new.tell(PodSeen(run.pod))
    assert run.written(effects) == Resized(1, "1", {"main": 8}, {"main": 8})
    assert run.used == 8


def test_the_answer_of_another_extender_goes_before_ones_own() -> None:
    run = Run(a_town())
    run.wants(wish(main=8))
    assert run.used == 8
    said = resize.resized.encode(Resized(1, "1", refused="no room"))
    owners = [MAKER, *owned_by(names.EXTENDER, "status", names.RESIZED)]
    assert run.edit({**run.pod.metadata.annotations, names.RESIZED: said}, owners) == []
    assert run.used == 4


@pytest.mark.parametrize("seed", range(20))
def test_no_gpu_is_ever_booked_beyond_its_memory(seed: int) -> None:
    random, town = Random(seed), Story(a_node("a", 16, 12, isolation=DRIVER))
    runs = [Run(town, f"p{number}", mem=random.randint(1, 5)) for number in range(4)]
    for number in range(40):
        run = random.choice(runs)
        effects = run.wants(wish(f"{number}", main=random.randint(1, 16)))
        books = town.engine.nodes["a"].books
        assert books is not None
        assert books.overused() == ()
        if random.random() < 0.7:
            run.written(effects)


def test_a_forged_answer_counts_for_nothing_and_is_put_back() -> None:
    run = Run(a_town())
    forged = resize.resized.encode(Resized(1, "x", {"main": 1}, {"main": 12}))
    run.edit({**run.pod.metadata.annotations, names.RESIZED: forged}, [MAKER, *owned_by("kubectl", "", names.RESIZED)])
    assert run.used == 4
    run = Run(a_town())
    answer = run.written(run.wants(wish(main=8)))
    for text in (forged, None):
        annotations = {k: v for k, v in run.pod.metadata.annotations.items() if k != names.RESIZED}
        if text:
            annotations[names.RESIZED] = text
        (effect,) = run.edit(annotations, [MAKER, *(owned_by("kubectl", "", names.RESIZED) if text else [])])
        assert isinstance(effect, SetAnnotation)
        assert resize.resized.decode(effect.value) == answer
        assert run.used == 8


def test_the_queue_of_the_pod_admits_the_difference_or_not() -> None:
    town = a_town()
    town.tell(QueueSeen(Queue(name="q", capability={GPUS: GPU // 2})))
    run = Run(town, "p", {names.QUEUE: "q"}, mem=4)
    answer = run.written(run.wants(wish("1", main=9)))
    assert "queue q may have 0.5 GPUs: 0.25 are in use" in answer.refused
    assert run.written(run.wants(wish("2", main=8))).refused == ""
    assert town.engine.tenancy.queues.root.allocated[GPUS] == GPU // 2


def test_preemption_frees_what_is_booked() -> None:
    story = PreemptionStory(a_node("a", 16, isolation=DRIVER))
    story.runs(a_single("p", 4))
    story.change("p", annotations={**story.pods["p"].metadata.annotations, names.RESIZE: wish(main=16)})
    (told,) = [e for e in story.done if isinstance(e, SetAnnotation) and e.key == names.RESIZED]
    answered = {**story.pods["p"].metadata.annotations, names.RESIZED: told.value or ""}
    story.change("p", annotations=answered, managed=[MAKER, *owned_by(names.EXTENDER, "status", names.RESIZED)])
    story.waits(a_single("urgent", 10, 1000))
    assert story.preempt() == ["p"]


def test_the_new_amount_is_shown() -> None:
    run = Run(a_town())
    run.written(run.wants(wish(main=8)))
    state = run.town.engine.pods["uid-p"]
    assert state.booked is not None
    (share,) = state.booked.containers["main"]
    assert share.mem == 8


def test_a_pod_that_ends_gives_back_what_was_booked() -> None:
    run = Run(a_town())
    run.written(run.wants(wish(main=8)))
    run.pod = changed(run.pod, run.pod.metadata.annotations, phase="Succeeded")
    run.town.tell(PodSeen(run.pod))
    assert run.used == 0

"""Internal errors over one object: it is quarantined with what it holds, reported once, and retried on a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec
import pytest

from extender.engine.gangs.gates import Gates
from extender.engine.gangs.observer import GangObserver
from extender.engine.placement.indexes import Indexes
from extender.engine.policies.backfill.backfill import Backfill
from extender.engine.policies.elastic.elastic import Elastic
from extender.engine.policies.preemption.preempt import Preemption
from extender.engine.queueing.tenancy import Tenancy
from extender.engine.queueing.waking import Waking
from extender.engine.state import quarantine
from extender.engine.state.classes import Classes
from extender.engine.state.presence import Presence
from extender.engine.state.quarantine import CaughtError, Quarantine
from extender.engine.state.reservations import Reservations
from extender.engine.state.running_pods import RunningPods
from extender.engine.types import refusals
from extender.engine.types.effects import Effect, Fault, PostBinding, Refuse, Report
from extender.engine.types.events import BindDone, NodeSeen, PodGone, PodSeen, Tick
from extender.engine.types.subject import Subject, of_node, of_pod
from protos.contract.objects import Pod
from tests.builders import a_node, a_pod
from tests.unit.engine.story import Story, bound

pytestmark = pytest.mark.faults


class Poison(Exception):
    """What the code under test would never raise."""


def poison(of: Any, method: str, monkeypatch: pytest.MonkeyPatch, when: Callable[..., bool] = lambda *_: True) -> None:
    """From now on this method of this part fails, as far as `when` says."""
    kind = of if isinstance(of, type) else type(of)
    right = getattr(kind, method)

    def wrong(self: Any, *args: Any, **kwargs: Any) -> Any:
        if when(*args):
            raise Poison(f"{method} meets something unexpected")
        return right(self, *args, **kwargs)

    monkeypatch.setattr(kind, method, wrong)


def again(pod: Pod, version: str) -> Pod:
    """The pod after a change."""
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, resource_version=version))


def faults(effects: list[Effect]) -> list[Fault]:
    return [effect for effect in effects if isinstance(effect, Fault)]


def reports(effects: list[Effect]) -> list[str]:
    return [f"{effect.pod.name}: {effect.reason.code}" for effect in effects if isinstance(effect, Report)]


def entries(story: Story) -> list[str]:
    """Who holds GPUs of n1."""
    books = story.engine.nodes["n1"].books
    assert books is not None
    return list(books.entries)


@pytest.fixture
def story() -> Story:
    return Story(a_node("n1", 16, 16))


PARTS = ["gates", "classes", "runtimes", "running_pods", "reservations", "tenancy", "gangs.observer", "presence"]


@pytest.mark.parametrize("part", PARTS)
def test_a_bound_pod_over_which_a_part_fails_keeps_its_gpus_and_others_go_on(
    part: str, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = a_pod("one", mem=16), a_pod("other", mem=16)
    nodes = story.filter(one)
    place = story.bind(one, nodes[0])
    assert isinstance(place, PostBinding)
    method = "seen" if part == "presence" else "see"
    of_one = lambda first, *_: getattr(first, "metadata", None) is None or first.metadata.uid == "uid-one"  # noqa: E731
    poison(attrgetter(part)(story.engine._components), method, monkeypatch, of_one)

    effects = story.tell(PodSeen(bound(one, place)))

    assert [(fault.subject, fault.name) for fault in faults(effects)] == [(of_pod("uid-one"), "default/one")]
    assert "one: SetAside" in reports(effects)
    assert story.engine.pods["uid-one"].node == "n1"
    story.tell(BindDone("uid-one", "bound"))
    assert story.engine.pods["uid-one"].state == "bound"
    monkeypatch.undo()
    assert story.run(other) == "n1:1"  # the GPU of the one is still taken


def test_a_pod_that_cannot_be_read_stays_charged_in_its_queue(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = a_pod("p", mem=4)
    place = story.bind(pod, story.filter(pod)[0])
    story.tell(PodSeen(bound(pod, place)))
    story.tell(BindDone(pod.metadata.uid, "bound"))
    root = story.engine.tenancy.queues.root
    assert (root.running, root.waiting) == (1, 0)
    before = dict(root.allocated)
    poison(RunningPods, "read", monkeypatch)
    for version in ("7", "8"):
        story.tell(PodSeen(again(bound(pod, place), version)))
        assert of_pod(pod.metadata.uid) in story.engine.quarantine
        root = story.engine.tenancy.queues.root
        assert (root.running, root.waiting, root.allocated) == (1, 0, before)


def test_a_pending_pod_that_is_set_aside_is_still_pending(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = a_pod("p", mem=4)
    story.tell(PodSeen(pod))
    poison(RunningPods, "see", monkeypatch)
    story.tell(PodSeen(again(pod, "7")))
    assert of_pod(pod.metadata.uid) in story.engine.quarantine
    assert story.engine.tenancy.queues.root.waiting == 1
    monkeypatch.undo()
    story.tell(PodSeen(again(pod, "8")))
    assert story.engine.tenancy.queues.root.waiting == 1
    story.tell(PodGone(pod.metadata.uid))
    assert story.engine.tenancy.queues.root.waiting == 0


def test_a_pod_that_failed_is_left_alone_until_it_changes(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = again(a_pod("one", mem=16), "1")
    poison(story.engine._components.running_pods, "see", monkeypatch)
    assert len(faults(story.tell(PodSeen(pod)))) == 1
    assert story.filter(pod) == []
    assert story.engine.filter(pod, ["n1"], story.now).reason == refusals.SET_ASIDE
    assert isinstance(story.bind(pod, "n1"), Refuse)

    story.tell(PodSeen(pod))  # listed once more
    assert story.engine._components.counters["faults", "PodSeen"] == 1

    monkeypatch.undo()
    story.tell(PodSeen(pod))
    assert story.filter(pod) == []
    story.tell(PodSeen(again(pod, "2")))
    assert story.run(pod) == "n1:0"
    assert not list(story.engine.quarantine.all())


def test_a_pod_that_nobody_changes_is_tried_again_after_a_while(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = again(a_pod("one", mem=16), "1")
    poison(story.engine._components.running_pods, "see", monkeypatch)
    story.tell(PodSeen(pod))
    monkeypatch.undo()
    assert story.filter(pod) == []
    story.now += quarantine.AGAIN_S
    assert story.filter(pod) == ["n1"]


def test_each_version_is_told_once_and_not_more_often_than_people_read(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = a_pod("one", mem=16)
    poison(story.engine._components.running_pods, "see", monkeypatch)
    told = [len(faults(story.tell(PodSeen(again(pod, str(version)))))) for version in range(1, 50)]
    assert sum(told) == 1
    assert story.engine._components.counters["faults", "PodSeen"] == 49
    story.now += quarantine.REPORT_S
    assert len(faults(story.tell(PodSeen(again(pod, "50"))))) == 1


def test_many_objects_that_fail_at_once_do_not_flood_the_log(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(story.engine._components.running_pods, "see", monkeypatch)
    told = sum(len(faults(story.tell(PodSeen(a_pod(f"p{number}", mem=1))))) for number in range(100))
    assert told == quarantine.MOST_REPORTED
    assert Counter(subject.kind for subject, _ in story.engine.quarantine.all()) == {"pod": 100}


GOES = (Gates, Classes, RunningPods, Tenancy, Reservations, GangObserver, Waking)


@pytest.mark.parametrize("part", GOES)
def test_a_pod_that_goes_leaves_nothing_whatever_fails(part: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    goes: list[bool] = []
    poison(part, "forget", monkeypatch, lambda *_: bool(goes))
    story = Story(a_node("n1", 16, 16))
    assert story.run(a_pod("one", mem=16)) == "n1:0"
    goes.append(True)
    effects = story.tell(PodGone("uid-one"))
    assert len(faults(effects)) == 1
    assert "uid-one" not in story.engine.pods
    assert entries(story) == []
    assert not [subject for subject, _ in story.engine.quarantine.all() if subject.kind == "pod"]
    goes.clear()
    assert story.run(a_pod("other", mem=16)) == "n1:0"


def test_a_node_that_fails_takes_nobody_new_and_keeps_who_is_there(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = a_pod("one", mem=16)
    assert story.run(one) == "n1:0"
    story.tell(NodeSeen(a_node("n2", 16)))
    poison(story.engine._components.observer, "node", monkeypatch)
    effects = story.tell(NodeSeen(a_node("n1", 16, 16, allocatable={"cpu": "32"})))
    assert [fault.subject for fault in faults(effects)] == [of_node("n1")]
    assert "SetAside" not in reports(effects)
    assert entries(story) == ["uid-one"]
    assert story.run(a_pod("two", mem=16)) == "n2:0"
    assert story.run(a_pod("three", mem=16)) == ""
    monkeypatch.undo()
    story.tell(NodeSeen(a_node("n1", 16, 16, allocatable={"cpu": "32"})))
    assert story.run(a_pod("four", mem=16)) == "n1:1"
    assert not list(story.engine.quarantine.all())


def test_a_part_that_fails_each_time_rests_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    poison(Backfill, "tick", monkeypatch)
    story = Story(a_node("n1", 16, 16))
    seen: list[float] = []

    def lost(_: Presence, __: Any, now: float) -> list[str]:
        seen.append(now)
        return []

    monkeypatch.setattr(Presence, "lost", lost)
    told = []
    for _ in range(1000):
        story.now += 0.2
        told += faults(story.tell(Tick()))
    assert [fault.subject for fault in told] == [Subject("part", "backfill")]
    assert story.engine.counters["faults", "backfill"] <= 10
    assert len(seen) == 1000  # what comes after it


def test_nothing_spins_where_planning_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for part, method in ((Indexes, "learn"), (Preemption, "work"), (Elastic, "work"), (Backfill, "work")):
        poison(part, method, monkeypatch)
    story = Story(a_node("n1", 16, 16))
    for _ in range(100):
        assert not story.engine.run_slice(story.now)
    assert sum(n for (what, _), n in story.engine.counters.items() if what == "faults") == 4


@pytest.mark.parametrize("part", ["indexes", "offers", "barrier", "tenancy", "holds"])
def test_a_question_that_fails_is_refused_with_a_constant_sentence(
    part: str, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = {"indexes": "of", "offers": "of", "barrier": "filter", "tenancy": "refused", "holds": "drop"}
    pod = again(a_pod("one", mem=16), "1")
    story.tell(PodSeen(pod))
    poison(getattr(story.engine._components, part), methods[part], monkeypatch)
    first = story.engine.filter(pod, ["n1"], story.now)
    second = story.engine.filter(pod, ["n1"], story.now)
    assert (first.nodes, first.reason) == ((), refusals.SET_ASIDE)
    assert first == second
    monkeypatch.undo()
    assert story.run(a_pod("other", mem=16)) == "n1:0"
    story.tell(PodSeen(again(pod, "2")))
    assert story.run(pod) == "n1:1"


@pytest.mark.parametrize("method", ["choose", "book", "place"])
def test_a_bind_that_fails_books_nothing(method: str, story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = again(a_pod("one", mem=16), "1")
    story.tell(PodSeen(pod))
    assert story.filter(pod) == ["n1"]
    if method == "choose":
        story.wakes(after=story.engine.settings.soft_charge_s)
    poison(story.engine._components.booking, method, monkeypatch)
    answer = story.bind(pod, "n1")
    assert isinstance(answer, Refuse)
    assert answer.reason.code == "SetAside"
    assert story.engine.pods["uid-one"].state == "waiting"
    assert entries(story) == []
    monkeypatch.undo()
    story.tell(PodSeen(again(pod, "2")))
    assert story.run(pod) == "n1:0"


def test_preempt_and_prioritize_that_fail_are_answered(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = a_pod("one", mem=16)
    story.tell(PodSeen(pod))
    poison(story.engine._components.observer, "ask", monkeypatch)
    assert story.engine.preempt(pod, {"n1": ["uid-x"]}) == {}
    poison(story.engine._components.indexes, "among", monkeypatch)
    assert story.engine.prioritize(pod, ["n1"]) == {"n1": 0}


def test_a_wake_that_fails_does_not_keep_others_asleep(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        assert story.run(a_pod(name, mem=16)).startswith("n1")
    waiting = [a_pod("one", mem=16), a_pod("two", mem=16)]
    for pod in waiting:
        story.tell(PodSeen(pod))
        assert story.filter(pod) == []
    poison(story.engine._components.holds, "put", monkeypatch, lambda pod, *_: pod.ref.name == "one")
    story.tell(PodGone("uid-a"))
    assert story.wakes() == ["two"]
    assert [subject for subject, _ in story.engine.quarantine.all()] == [of_pod("uid-one")]


def test_memory_errors_are_nobodys(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(story.engine._components.running_pods, "see", out_of_memory)
    with pytest.raises(MemoryError):
        story.engine.step(PodSeen(a_pod("one", mem=1)), story.now)


def test_an_endless_recursion_is_an_error_over_its_object(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    def deeper(*args: Any) -> None:
        deeper(*args)

    monkeypatch.setattr(story.engine._components.running_pods, "see", deeper)
    (fault,) = faults(story.tell(PodSeen(a_pod("one", mem=1))))
    assert isinstance(fault.error, RecursionError)


def test_what_is_remembered_is_bounded_and_forgotten() -> None:
    kept = Quarantine(Counter())
    for number in range(quarantine.MOST + 10):
        kept.caught(CaughtError(of_pod(str(number)), "place", Poison("x" * 10_000)))
    assert len(list(kept.all())) == quarantine.MOST
    assert max(len(aside.problem) for _, aside in kept.all()) == quarantine.LONGEST
    for subject, _ in list(kept.all()):
        kept.release(subject)
    kept.now += quarantine.AGAIN_S + quarantine.CALM_S + 1
    assert kept.due() == []
    assert not kept


def test_an_object_that_fails_again_and_again_is_tried_less_and_less() -> None:
    kept, subject, times = Quarantine(Counter()), of_pod("one"), []
    for _ in range(12):
        kept.caught(CaughtError(subject, "place", Poison()))
        times.append(kept._known[subject].again_at - kept.now)
        kept.now = kept._known[subject].again_at
        kept.release(subject)
    assert times[:3] == [60, 120, 240]
    assert times[-1] == quarantine.AGAIN_MOST_S

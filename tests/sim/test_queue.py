"""The scheduling queue: who wakes whom, and when."""

from __future__ import annotations

from typing import Any

import pytest

from extender.sim.scheduler.queue import EXTENDER, Event, Place, QueuedPod, SchedulingQueue
from tests.sim.builders import a_pod

NOW = 1000.0


def stored(name: str, **spec: Any) -> dict[str, Any]:
    pod = a_pod(name, **spec)
    pod["metadata"]["uid"] = name
    return pod


def touched(pod: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**pod, "spec": {**pod["spec"], **spec}}


def refused(queue: SchedulingQueue, name: str, *plugins: str, at: float = NOW) -> QueuedPod:
    queue.add(stored(name), at)
    entry = queue.pop(at)
    assert entry
    queue.refused(entry, plugins or (EXTENDER,), at)
    return entry


def popped(queue: SchedulingQueue, at: float) -> str | None:
    entry = queue.pop(at)
    return entry.pod["metadata"]["name"] if entry else None


def test_pods_come_by_priority_then_age() -> None:
    queue = SchedulingQueue()
    queue.add(stored("old"), NOW)
    queue.add(stored("urgent", priority=10), NOW + 2)
    queue.add(stored("young"), NOW + 1)
    assert [popped(queue, NOW + 3) for _ in range(4)] == ["urgent", "old", "young", None]


@pytest.mark.parametrize("event", [e for e in Event if e not in (Event.OWN_POD, Event.OWN_TOLERATIONS)])
def test_any_event_of_a_pod_or_node_wakes_what_an_extender_refused(event: Event) -> None:
    queue = SchedulingQueue()
    refused(queue, "a")
    refused(queue, "b")
    assert popped(queue, NOW + 60) is None
    queue.move(event, NOW + 60)
    assert {popped(queue, NOW + 60), popped(queue, NOW + 60)} == {"a", "b"}


def test_an_annotation_of_a_node_does_not_wake_what_only_in_tree_filters_refused() -> None:
    queue = SchedulingQueue()
    entry = refused(queue, "a", "NodeResourcesFit")
    queue.move(Event.NODE_ANNOTATIONS, NOW + 60)
    assert entry.place is Place.REFUSED
    queue.move(Event.POD_DELETED, NOW + 60)
    assert popped(queue, NOW + 60) == "a"


def test_an_update_of_the_pod_itself_wakes_only_that_pod() -> None:
    queue = SchedulingQueue()
    a = refused(queue, "a")
    refused(queue, "b")
    queue.update(touched(a.pod), NOW + 60)
    assert popped(queue, NOW + 60) == "a"
    assert popped(queue, NOW + 60) is None


def test_an_update_does_not_wake_a_pod_that_only_in_tree_filters_refused() -> None:
    queue = SchedulingQueue()
    a = refused(queue, "a", "NodeResourcesFit")
    queue.update(touched(a.pod), NOW + 60)
    assert popped(queue, NOW + 60) is None


def test_an_event_during_the_attempt_counts_when_the_pod_is_refused() -> None:
    queue = SchedulingQueue()
    queue.add(stored("a"), NOW)
    entry = queue.pop(NOW)
    assert entry
    queue.move(Event.POD_ADDED, NOW)
    queue.refused(entry, [EXTENDER], NOW)
    assert entry.place is Place.BACKOFF


def test_backoff_is_skipped_while_nothing_is_active_and_kept_while_something_is() -> None:
    queue = SchedulingQueue()
    refused(queue, "waits")
    queue.move(Event.POD_DELETED, NOW)
    assert popped(queue, NOW) == "waits"
    queue = SchedulingQueue()
    refused(queue, "waits")
    queue.move(Event.POD_DELETED, NOW)
    queue.add(stored("fresh"), NOW)
    assert popped(queue, NOW) == "fresh"


def test_backoff_doubles_up_to_the_limit() -> None:
    queue = SchedulingQueue(1, 10)
    entry = refused(queue, "a")
    waits: list[float] = []
    for _ in range(5):
        queue.move(Event.POD_DELETED, entry.since)
        start, queue_filler = entry.since, f"filler-{len(waits)}"
        second = start
        while True:  # keep the queue busy, so that the backoff is observed
            second += 1
            queue.add(stored(queue_filler), second - 10_000)
            assert popped(queue, second) == queue_filler
            queue.delete(queue_filler)
            if entry.place is Place.ACTIVE:
                break
        waits.append(second - start)
        assert popped(queue, second) == "a"
        queue.refused(entry, [EXTENDER], second)
    assert waits == [1, 2, 4, 8, 10]


def test_an_error_is_retried_without_any_event_but_not_before_its_backoff() -> None:
    queue = SchedulingQueue()
    queue.add(stored("a"), NOW)
    entry = queue.pop(NOW)
    assert entry
    queue.failed(entry, NOW)
    queue.update(touched(entry.pod), NOW)
    queue.move(Event.POD_DELETED, NOW)
    assert popped(queue, NOW + 0.9) is None
    assert queue.next_expiry() == NOW + 1
    assert popped(queue, NOW + 1) == "a"


def test_a_gated_pod_sleeps_until_its_last_gate_is_gone() -> None:
    queue = SchedulingQueue()
    pod = stored("a", schedulingGates=[{"name": "g"}])
    queue.add(pod, NOW)
    queue.move(Event.POD_DELETED, NOW)
    assert popped(queue, NOW) is None
    queue.update(touched(pod, schedulingGates=[]), NOW)
    assert popped(queue, NOW) == "a"


def test_a_deleted_pod_is_forgotten_wherever_it_is() -> None:
    queue = SchedulingQueue()
    queue.add(stored("active"), NOW)
    queue.delete("active")
    entry = refused(queue, "refused")
    queue.delete("refused")
    queue.failed(entry, NOW)
    queue.move(Event.POD_DELETED, NOW + 60)
    assert popped(queue, NOW + 60) is None
    assert not queue._pods

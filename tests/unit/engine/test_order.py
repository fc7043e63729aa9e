"""One order of pending workloads: whoever picks the next one takes the same."""

from __future__ import annotations

import math

import pytest

from extender.engine.cycle.engine import Engine
from extender.engine.queueing.line import PATIENCE, UNKNOWN_S, due
from extender.engine.queueing.order import LAST
from extender.engine.types.events import PodGone, PodSeen, QueueSeen, WallMoved
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.queue import GPU, GPUS, Queue
from tests.builders import a_node, a_pod
from tests.unit.engine.story import Story
from tests.unit.engine.test_waking import full


def waiting(name: str, *, runs: str = "", priority: int = 0) -> Pod:
    """A pod for all 16 units of a node, which is expected to run so long."""
    said = {names.EXPECTED_RUNTIME: runs} if runs else {}
    return a_pod(name, mem=16, annotations=said, spec={"priority": priority})


def deadline(engine: Engine, name: str) -> float:
    """Its due date."""
    return engine._components.order.of_pod(engine.pods[f"uid-{name}"]).rank


def test_pods_are_requeued_by_priority_then_due_date_then_age() -> None:
    story = full("a")
    long, unknown, short = waiting("long", runs="30h"), waiting("unknown"), waiting("short", runs="1h")
    high = waiting("high", runs="30h", priority=5)
    for pod in (long, unknown, short, high):
        story.tell(PodSeen(pod))
        assert story.filter(pod) == []
    order = []
    story.tell(PodGone("uid-on-a"))
    for _ in range(4):
        (woken,) = story.wakes()
        order.append(woken)
        story.run(next(pod for pod in (long, unknown, short, high) if pod.metadata.name == woken))
        story.tell(PodGone(f"uid-{woken}"))
    assert order == ["high", "short", "unknown", "long"]


def test_backfill_and_preemption_ask_the_same_order() -> None:
    story = full("a")
    for pod in (waiting("short", runs="1h"), waiting("unknown")):
        story.tell(PodSeen(pod))
        assert story.filter(pod) == []
    engine = story.engine
    since = engine._components.order.since(engine.pods["uid-short"])
    assert deadline(engine, "short") == pytest.approx(since + PATIENCE * 3600)
    assert deadline(engine, "unknown") == pytest.approx(since + PATIENCE * UNKNOWN_S)
    for name in ("short", "unknown"):
        state = engine.pods[f"uid-{name}"]
        assert engine.backfill.heads.of_pod(state).turn == engine._components.order.of_pod(state)


def test_pods_without_room_in_their_queue_are_requeued_in_the_same_order_whatever_their_namespaces() -> None:
    """One GPU becomes free in the queue: one pod is requeued, not one of each namespace."""
    story = Story(a_node("a", 16, 16, 16))
    story.tell(QueueSeen(Queue(name="team", capability={GPUS: GPU})))
    said = {names.QUEUE: "team"}
    first = a_pod("first", mem=16, annotations=said)
    assert story.run(first)
    for name, namespace, runs in (("long", "a", "30h"), ("short", "b", "1h"), ("unknown", "c", "")):
        runtime = {names.EXPECTED_RUNTIME: runs} if runs else {}
        pod = a_pod(name, mem=16, annotations=said | runtime, namespace=namespace)
        story.tell(PodSeen(pod))
        assert story.filter(pod) == []
    story.tell(PodGone("uid-first"))
    assert story.wakes() == ["short"]


def test_a_clock_that_was_set_changes_the_order_of_nobody() -> None:
    """Who was created later stands behind, whichever of them was refused before the clock was set."""
    story = full("a")
    made = {"later": "1970-01-01T00:00:50Z", "older": "1970-01-01T00:00:45Z"}
    for name, created in made.items():
        pod = a_pod(name, mem=16, creationTimestamp=created)
        story.tell(PodSeen(pod))
        assert story.filter(pod) == []
        story.tell(WallMoved(-20.0))
    story.tell(PodGone("uid-on-a"))
    assert story.wakes() == ["older"]


def test_surplus_members_stand_behind_all_others_but_pods_that_did_not_come() -> None:
    assert math.inf > LAST
    assert due(1e9, math.inf) < LAST


def test_a_pod_that_ends_while_room_is_held_for_it_counts_in_no_queue_any_more() -> None:
    story = Story(a_node("a", 16))
    pod = a_pod("p", mem=16)
    story.tell(PodSeen(pod))
    assert story.filter(pod) == ["a"]
    assert story.engine.pods["uid-p"].state == "held"
    story.tell(PodGone("uid-p"))
    root = story.engine.tenancy.queues.root
    assert (root.waiting, root.running, root.requested) == (0, 0, {})

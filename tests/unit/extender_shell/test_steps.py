"""The event loop's steps are counted, and garbage is collected a little at a time."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from prometheus_client import generate_latest

from extender.engine.cycle.engine import Engine
from extender.engine.types.events import Tick
from extender.engine.types.settings import Settings
from extender.metrics import Metrics
from extender.server.core import Core
from extender.server.garbage import IDLE_S, MOST, OLD, STEPS, YOUNG, Garbage
from extender.steps import BUCKETS, Steps


class Clock:
    """One that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_step_is_counted_in_the_bucket_of_its_length_and_by_what_it_was_about() -> None:
    clock = Clock()
    steps = Steps(clock)

    def work(seconds: float) -> float:
        clock.now += seconds
        return seconds

    for seconds in (0.00005, 0.00009, 0.003, 7.0):
        assert steps.timed("Tick", work, seconds) == seconds
    assert steps.counts["Tick"][0] == 2
    assert steps.counts["Tick"][BUCKETS.index(0.005)] == 1
    assert steps.counts["Tick"][-1] == 1
    with pytest.raises(ZeroDivisionError):
        steps.timed("filter", lambda: 1 // 0)
    assert sum(steps.counts["filter"]) == 1


def test_prometheus_is_told_each_bucket_with_those_below_it() -> None:
    engine = Engine(Settings())
    metrics = Metrics(engine.counters)
    core = Core(engine, metrics, lambda _: None)
    core.tell(Tick())
    core.run_slice()
    text = generate_latest(metrics.registry).decode()
    assert 'gangshare_loop_step_seconds_bucket{le="+Inf",step="Tick"} 1.0' in text
    assert 'gangshare_loop_step_seconds_count{step="RunSlice"} 1.0' in text


@pytest.fixture
def collector() -> Iterator[list[int]]:
    """The generations collected; all of Python's own settings come back afterwards."""
    before, found = gc.get_threshold(), list[int]()

    def collected(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            found.append(info["generation"])

    gc.callbacks.append(collected)
    yield found
    gc.callbacks.remove(collected)
    gc.set_threshold(*before)
    gc.unfreeze()
    gc.collect()


class Node:
    """A thing of the books."""

    def __init__(self) -> None:
        self.parts: list[object] = []


def test_the_books_are_never_looked_through_again(collector: list[int]) -> None:
    garbage = Garbage(Steps())
    garbage.settle()
    collector.clear()
    books: list[Node] = []
    for _ in range(10 * OLD):
        books += [Node() for _ in range(YOUNG)]
        garbage.tick(leads=True)
    assert 2 not in collector
    assert collector.count(1) >= 5
    assert len(gc.get_objects(1)) + len(gc.get_objects(2)) < (OLD + 2) * 3 * YOUNG
    assert gc.get_freeze_count() >= YOUNG * OLD


def test_cycles_that_are_left_young_go(collector: list[int]) -> None:
    garbage = Garbage(Steps())
    garbage.settle()
    for _ in range(YOUNG * 3 // 4):
        one = Node()
        one.parts.append(one)
    del one
    garbage.tick(leads=True)
    assert not [each for each in gc.get_objects() if isinstance(each, Node)]


def test_those_that_are_made_in_the_place_of_old_ones_are_looked_through_as_well(collector: list[int]) -> None:
    """Python counts fewer objects made than there are young, as old ones are freed meanwhile."""
    books, steps = [Node() for _ in range(3 * YOUNG)], Steps()
    garbage = Garbage(steps)
    garbage.settle()
    collector.clear()
    for i in range(len(books)):
        books[i] = Node()
        if i % 40 == 39:
            steps.note("event", 0.001)
            garbage.look()
    assert gc.get_count()[0] < YOUNG
    assert len(gc.get_objects(0)) < 4 * 40 * STEPS
    assert 0 < collector.count(0) + collector.count(1) <= len(books) // (40 * STEPS) + OLD


def test_young_objects_are_looked_through_after_events_and_slices(collector: list[int]) -> None:
    engine = Engine(Settings(), 0.0, 0.0)
    metrics = Metrics(engine.counters)
    garbage = Garbage(metrics.steps)
    core = Core(engine, metrics, lambda _: None)
    garbage.settle()
    for step in (lambda: core.tell(Tick()), core.run_slice):
        kept = [Node() for _ in range(YOUNG * 3 // 4)]
        collector.clear()
        step()
        assert collector
        kept.clear()


def test_all_is_looked_through_once_while_another_process_leads(collector: list[int]) -> None:
    clock = Clock()
    garbage = Garbage(Steps(), clock)
    garbage.settle()
    kept = Node()
    kept.parts.append(kept)
    gc.freeze()
    del kept
    collector.clear()
    for _ in range(10):
        clock.now += IDLE_S / 4
        garbage.tick(leads=False)
    assert collector.count(2) == 1
    assert not [each for each in gc.get_objects() if isinstance(each, Node)]


def test_nothing_is_done_before_all_was_read(collector: list[int]) -> None:
    gc.set_threshold(MOST)
    books = [Node() for _ in range(2 * YOUNG)]
    collector.clear()
    Garbage(Steps()).tick(leads=True)
    assert len(books) == 2 * YOUNG
    assert collector == []


def test_collections_are_counted_while_the_process_serves() -> None:
    steps = Steps()
    with steps.collections():
        gc.collect(0)
    gc.collect(0)
    assert sum(steps.counts["garbage"]) == 1

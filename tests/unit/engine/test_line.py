import math
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from extender.engine.queueing.line import MOST_PATIENCE_S, PATIENCE, Line, Turn, Waiter, Walk, due


def waiter(name: int, rank: float = 0, *, priority: int = 0, queue: str = "q", shape: str = "s") -> Waiter:
    return Waiter(name, queue, shape, Turn(-priority, rank, 0, name))


def names(line: Line, share: Counter[str] | None = None) -> list[object]:
    return [each.name for each in line.walk((share or Counter[str]()).__getitem__)]


def test_priority_goes_before_rank() -> None:
    line = Line()
    for one in (waiter(1, 5), waiter(2, 3), waiter(3, 9, priority=1)):
        line.join(one)
    assert names(line) == [3, 2, 1]


def test_who_joins_again_changes_its_place_and_who_leaves_has_none() -> None:
    line = Line()
    for one in (waiter(1, 5), waiter(2, 3), waiter(1, 1, shape="other"), waiter(3)):
        line.join(one)
    line.leave(3)
    line.leave(3)
    assert (names(line), len(line)) == ([1, 2], 2)


def test_the_queue_that_has_least_goes_first_and_gives_way_once_it_has_more() -> None:
    line, has = Line(), Counter({"rich": 5, "poor": 1})
    for one in (waiter(1, 1, queue="rich"), *(waiter(n, 2, queue="poor") for n in (2, 3, 4))):
        line.join(one)
    seen = []
    for one in line.walk(has.__getitem__):
        seen.append(one.name)
        has[one.queue] += 3
    assert seen == [2, 3, 1, 4]


def test_a_shape_that_does_not_fit_is_left_out_in_all_queues() -> None:
    line = Line()
    for name, shape, queue in ((1, "big", "a"), (2, "big", "b"), (3, "small", "a"), (4, "big", "a")):
        line.join(waiter(name, name, shape=shape, queue=queue))
    walk = line.walk(Counter[str]().__getitem__)
    assert next(iter(walk)).name == 1
    walk.leave_out("big")
    assert [one.name for one in walk] == [3]


def test_the_next_of_a_queue_is_looked_at_only_once_the_one_before_was_dealt_with() -> None:
    seen = []

    def queue() -> Iterator[Waiter]:
        for name in (1, 2):
            seen.append(name)
            yield waiter(name)

    walk = Walk([queue(), iter(())], lambda _: 0)
    assert (next(iter(walk)).name, list(seen)) == (1, [1])
    assert ([one.name for one in walk], seen) == ([2], [1, 2])


@pytest.mark.parametrize("seed", range(3))
def test_the_line_is_what_sorting_would_give(seed: int) -> None:
    rng, line, there = random.Random(seed), Line(), dict[int, Waiter]()
    for name in (rng.randrange(40) for _ in range(200)):
        if name in there and rng.random() < 0.5:
            line.leave(there.pop(name).name)
        else:
            there[name] = waiter(name, rng.randrange(5), priority=rng.randrange(2), shape=rng.choice("xyz"))
            line.join(there[name])
    assert names(line) == [one.name for one in sorted(there.values(), key=lambda one: one.turn)]


def test_nobody_is_passed_by_one_submitted_after_its_due_date() -> None:
    mine = due(100.0, 50.0)
    assert mine == 100 + PATIENCE * 50
    assert all(due(mine + later, expected) > mine for later in (0.1, 10, 1e6) for expected in (0.0, 1, 1e9))


def test_a_claim_of_endless_run_time_does_not_make_one_wait_for_ever() -> None:
    assert due(0, 1e12) == MOST_PATIENCE_S
    assert due(0, math.inf) < MOST_PATIENCE_S

"""Histories of small shared clusters: each tenant gets its fair share, and no pod is evicted in vain."""

from __future__ import annotations

import pytest

from tests.property.tenant_world import MIN_RUN_S, MOST, Job, Reclaim, TenantWorld

STEPS, MOST_JOBS = 40, 9
SETTLED_S, LONG_S = 12, 80
"""For evictions, and for what comes free to be taken; for searches that are made ever more rarely, too."""
CROWD, LARGE, URGENT = 20, 9, 10
"""Jobs of one GPU that there are at least; members of a large one, at least; its priority."""
MORE = [pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 100)]


def turned(reclaims: list[Reclaim], within: float) -> list[tuple[Reclaim, Reclaim]]:
    """Reclaims of one queue from another that soon took it back."""
    pairs = [(one, two) for i, one in enumerate(reclaims) for two in reclaims[i + 1 :]]
    return [(one, two) for one, two in pairs if (one.by, one.of) == (two.of, two.by) and two.at - one.at < within]


@pytest.mark.parametrize("seed", [*range(3), *MORE])
def test_each_tenant_gets_its_due_and_nobody_goes_in_vain(seed: int) -> None:
    life = TenantWorld(seed)
    draw = life.draw
    for _ in range(STEPS):
        if len(life.jobs) < MOST_JOBS and draw.random() < 0.6:
            life.submit(life.a_job())
        if life.jobs and draw.random() < 0.1:
            life.end(draw.choice(list(life.jobs.values())))
        life.pass_time(killed=draw.random() < 0.08)
    assert not turned(life.reclaims, MIN_RUN_S)
    demand_stays(life)
    nobody_ends(life)
    all_runs_in_the_end(life)


def crowded_life(seed: int) -> list[int]:
    """Large gangs come among many small jobs; returns how many units each plan evicted."""
    life = TenantWorld(seed, each=6, sizes=(1,))
    draw = life.draw
    for _ in range(STEPS):
        while len(life.jobs) < CROWD:
            life.submit(life.a_job())
        if draw.random() < 0.2:
            size = draw.randint(LARGE, MOST)
            life.submit(Job(draw.choice(life.queues), size, size, URGENT, draw.randint(4, 8)))
        life.pass_time()
    return life.plans


@pytest.mark.parametrize("seed", [0, *MORE[:39]])
def test_where_many_go_for_one_no_part_of_them_would_do(seed: int) -> None:
    assert any(max(crowded_life(10 * seed + number), default=0) >= LARGE for number in range(10))


def demand_stays(life: TenantWorld) -> None:
    """Jobs that end are submitted again: every queue comes near its fair share, and no two take from each other."""
    while len(life.jobs) < MOST_JOBS:
        life.submit(life.a_job())
    largest = max(job.size for job in life.jobs.values())
    length = max(job.seconds for job in life.jobs.values())
    life.reclaims.clear()
    off: dict[str, int] = {}
    for second in range(int(length) + 2 * SETTLED_S):
        for job in life.pass_time():
            life.submit(job)
        for queue in life.queues if second >= length else ():
            has, due = life.has(queue), life.due(queue)
            off[queue] = off.get(queue, 0) + 1 if abs(has - due) > largest + 0.01 else 0
            assert off[queue] < SETTLED_S, f"{queue} has {has} and is due {due:g}"
    assert not turned(life.reclaims, 2.0 * length)


def nobody_ends(life: TenantWorld) -> None:
    """Jobs run for ever: in the end no queue lacks more of its fair share than the largest job."""
    lengths = {job.name: job.seconds for job in life.jobs.values()}
    for job in life.jobs.values():
        job.seconds = float("inf")
    for _ in range(LONG_S):
        life.pass_time()
    largest = max(job.size for job in life.jobs.values())
    assert all(lacking <= largest for lacking in life.entitled().values()), life.entitled()
    for job in life.jobs.values():
        job.seconds = lengths[job.name]


def all_runs_in_the_end(life: TenantWorld) -> None:
    """No more jobs come: all of them run once."""
    longest = sum(job.seconds for job in life.jobs.values())
    for _ in range(int(longest) + life.total * SETTLED_S):
        life.pass_time()
        if not life.jobs:
            return
    waiting = {job.name: (job.queue, job.size) for job in life.jobs.values()}
    raise AssertionError(f"{waiting} wait for ever")

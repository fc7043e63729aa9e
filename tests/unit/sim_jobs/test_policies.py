import math

import pytest

from extender.engine.queueing import line
from extender.sim.jobtrace import replay
from extender.sim.jobtrace.choices import Policy
from tests.unit.sim_jobs.made import a_job, some_jobs, starts

RUNS, BIG = a_job(0, 0, 100, 6), a_job(1, 1, 50, 8)
"""One that runs until 100, and one that needs all that it leaves."""


def test_strictly_nobody_goes_before_the_first_that_does_not_fit() -> None:
    assert starts("fifo", [RUNS, BIG, a_job(2, 2, 10)]) == {0: 0, 1: 100, 2: 150}


def test_with_skipping_whoever_fits_goes() -> None:
    assert starts("skip", [RUNS, BIG, a_job(2, 2, 110), a_job(3, 3, 10)]) == {0: 0, 1: 112, 2: 2, 3: 3}


@pytest.mark.parametrize("policy", ["easy", "gangshare"])
def test_one_passes_that_ends_before_the_first_in_line_can_start(policy: Policy) -> None:
    assert starts(policy, [RUNS, BIG, a_job(2, 2, 98), a_job(3, 3, 98)]) == {0: 0, 1: 100, 2: 2, 3: 150}


@pytest.mark.parametrize("policy", ["easy", "gangshare"])
def test_one_passes_that_keeps_off_the_nodes_of_the_first_in_line(policy: Policy) -> None:
    there = [a_job(0, 0, 100, 6), a_job(1, 0, 900, 6)]
    found = starts(policy, [*there, a_job(2, 1, 50, 8), a_job(3, 2, 5000, 2), a_job(4, 3, 5000, 2)], nodes=2)
    assert (found[2], found[3], found[4]) == (100, 2, 150)


@pytest.mark.parametrize("policy", ["easy", "gangshare"])
def test_of_one_whose_run_time_is_unknown_nobody_believes_that_it_ends_in_time(policy: Policy) -> None:
    found = starts(policy, [RUNS, BIG, a_job(2, 2, 1, expected=math.inf)])
    assert found == {0: 0, 1: 100, 2: 150}


@pytest.mark.parametrize("policy", ["easy", "gangshare"])
def test_one_that_runs_longer_than_expected_may_end_at_any_moment(policy: Policy) -> None:
    late = a_job(0, 0, 100, 6, expected=10)
    assert starts(policy, [late, a_job(1, 20, 50, 8), a_job(2, 30, 50)]) == {0: 0, 1: 100, 2: 150}


@pytest.mark.parametrize("policy", ["skip", "easy", "gangshare"])
def test_a_job_goes_where_least_is_free(policy: Policy) -> None:
    jobs = [a_job(0, 0, 100, 4), a_job(1, 1, 100, 1), a_job(2, 2, 100, 8)]
    assert starts(policy, jobs, nodes=2)[2] == 2


@pytest.mark.parametrize("policy", ["fifo", "skip", "easy", "gangshare"])
def test_a_gang_gets_all_its_nodes_at_once(policy: Policy) -> None:
    assert starts(policy, [a_job(0, 0, 10), a_job(1, 1, 5, 16)], nodes=2) == {0: 0, 1: 10}


def test_the_shorter_goes_first_and_the_longer_is_not_passed_for_ever() -> None:
    """The longer is due at 1 + 3 * 20: the shorter submitted at 40 is due before that, that of 50 after it."""
    jobs = [a_job(0, 0, 100, 8), a_job(1, 1, 20, 8), a_job(2, 40, 5, 8), a_job(3, 50, 5, 8)]
    assert starts("gangshare", jobs) == {0: 0, 2: 100, 1: 105, 3: 125}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_without_patience_our_line_and_backfill_are_easy(
    monkeypatch: pytest.MonkeyPatch, seed: int, known: bool
) -> None:
    monkeypatch.setattr(line, "PATIENCE", 0.0)
    jobs = some_jobs(seed, known=known)
    assert starts("gangshare", jobs, nodes=4) == starts("easy", jobs, nodes=4)


@pytest.mark.parametrize("seed", range(5))
def test_every_job_runs_once_and_never_more_than_there_are_gpus(seed: int) -> None:
    ran = replay.replay(some_jobs(seed), 4, 8, "gangshare")
    assert sorted(one.job.number for one in ran) == list(range(60))
    for one in ran:
        start = one.end - one.job.duration
        there = [o.job.gpus for o in ran if o.end - o.job.duration <= start < o.end]
        assert sum(there) <= 32


def test_the_queue_that_has_less_goes_first() -> None:
    jobs = [a_job(0, 0, 100, 6, queue="a"), a_job(1, 0, 40, 2, queue="b")]
    jobs += [a_job(2, 1, 10, 2, queue="a"), a_job(3, 2, 10, 2, queue="b")]
    assert starts("gangshare", jobs) == {0: 0, 1: 0, 3: 40, 2: 50}

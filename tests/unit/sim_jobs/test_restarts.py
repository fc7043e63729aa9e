import math

import pytest

from extender.sim.jobtrace.restarts import level, level_end
from extender.sim.jobtrace.trace import Job
from tests.unit.sim_jobs.made import a_job, ends


def blind(number: int, submit: float, duration: float, gpus: int = 8) -> Job:
    return a_job(number, submit, duration, gpus, expected=math.inf)


def test_one_that_has_had_much_makes_room_for_a_newcomer_and_pays_to_go_on() -> None:
    """8 GPUs for an hour are 8 GPU-hours, so it has left the first level when the other comes."""
    assert ends([blind(0, 0, 7200), blind(1, 3600, 100)], cost=60) == {1: 3700, 0: 7360}


def test_one_of_the_same_level_does_not() -> None:
    assert ends([blind(0, 0, 400), blind(1, 100, 100)], cost=60) == {0: 400, 1: 500}


def test_one_leaves_its_level_while_it_runs() -> None:
    """After 3600 GPU-seconds, at 450 s, the other goes first; after as much it waits for the first again."""
    found = ends([blind(0, 0, 500), blind(1, 1, 500)], cost=0)
    assert {job: round(end) for job, end in found.items()} == {0: 950, 1: 1000}


def test_who_can_stay_where_it_is_pays_nothing() -> None:
    jobs = [blind(0, 0, 7200, gpus=4), blind(1, 3600, 100, gpus=4)]
    assert ends(jobs, cost=60) == {0: 7200, 1: 3700}


def test_where_run_times_are_known_least_work_left_goes_first() -> None:
    assert ends([a_job(0, 0, 7200, 8), a_job(1, 10, 100, 8)], cost=60) == {1: 110, 0: 7360}


def test_no_node_is_given_away_twice() -> None:
    jobs = [blind(number, 7.0 * number, 900, gpus) for number, gpus in enumerate((8, 4, 16, 2, 6, 16, 1, 8))]
    found = ends(jobs, cost=5, nodes=2)
    work = sum(job.gpus * job.duration for job in jobs)
    assert sorted(found) == list(range(8))
    assert max(found.values()) * 16 >= work


@pytest.mark.parametrize("found", range(5))
def test_a_level_ends_where_the_next_begins(found: int) -> None:
    assert level(level_end(found) - 1) == found
    assert level(level_end(found)) == found + 1

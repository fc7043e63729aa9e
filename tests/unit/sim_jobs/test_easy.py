import math

import pytest

from extender.sim.jobtrace.baselines import Easy
from extender.sim.jobtrace.simulation import NO_RESERVATION, Reservation
from extender.sim.jobtrace.trace import Job, Shape
from tests.unit.sim_jobs.made import a_job


def a_full_cluster() -> Easy:
    """Three nodes with one GPU each; their jobs end at 10, 20 and 30."""
    simulation = Easy(3, 1)
    for number, (end, node) in enumerate([(10, 0b001), (20, 0b100), (30, 0b010)]):
        simulation.start(a_job(number, 0, end), node)
    return simulation


def a_wide_job(nodes: int) -> Job:
    return Job(9, "wide", 0, 50, nodes, Shape(nodes, 1))


def test_a_reservation_is_for_the_first_moment_at_which_the_job_fits() -> None:
    assert a_full_cluster().reserve(a_wide_job(2)) == Reservation(20, 0b101)


def test_a_job_that_never_fits_keeps_no_nodes_from_the_others() -> None:
    assert a_full_cluster().reserve(a_wide_job(4)) is NO_RESERVATION
    assert NO_RESERVATION.closed(math.inf) == 0


@pytest.mark.parametrize(("end", "closed"), [(19, 0), (20, 0), (20.5, 0b101), (math.inf, 0b101)])
def test_its_nodes_are_closed_to_jobs_that_end_after_its_start(end: float, closed: int) -> None:
    assert Reservation(20, 0b101).closed(end) == closed

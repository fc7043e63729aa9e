"""The smallest recorded list, against the figures of an independent implementation of the known policies."""

import pytest

from extender.sim.jobtrace import figures, replay, restarts
from extender.sim.jobtrace.choices import Durations, Policy
from tests.unit.sim_jobs.made import recorded

NODES, GPUS = 8, 64
PUBLISHED_TIRESIAS = 347213


def came_to(policy: Policy, durations: Durations = "trace") -> figures.Figures:
    return figures.figures(policy, replay.replay(recorded("trace3", durations), NODES, 8, policy), GPUS)


@pytest.mark.parametrize(
    ("policy", "mean", "large"), [("fifo", 991215, 976881), ("skip", 480913, 1418722), ("easy", 411805, 733271)]
)
def test_the_known_policies_come_out_as_elsewhere(policy: Policy, mean: int, large: int) -> None:
    found = came_to(policy)
    assert found.mean_jct_s == pytest.approx(mean, abs=1)
    assert found.wait_by_size[">8"] == pytest.approx(large, abs=1)


@pytest.mark.parametrize("durations", ["trace", "noisy"])
def test_ours_is_as_fast_as_skipping_and_as_fair_to_large_gangs_as_easy(durations: Durations) -> None:
    ours, skip, easy = came_to("gangshare", durations), came_to("skip"), came_to("easy", durations)
    large, bound = ours.wait_by_size[">8"], easy.wait_by_size[">8"]
    assert large is not None
    assert bound is not None
    assert ours.mean_jct_s <= skip.mean_jct_s
    assert large <= bound


def test_with_restarts_ours_beats_the_published_policy_without_knowing_run_times() -> None:
    ran = restarts.replay(recorded("trace3", "none"), NODES, 8, cost=60)
    assert figures.figures("gangshare", ran, GPUS).mean_jct_s < PUBLISHED_TIRESIAS

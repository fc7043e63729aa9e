"""kube-scheduler checks a random part of the nodes: no GPU is given twice, and whoever fits runs in the end."""

from __future__ import annotations

import pytest

from tests.property.sampled_world import SampledWorld

DEEDS = 250


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 200))])
def test_lives_of_a_cluster_of_which_a_part_is_checked(seed: int) -> None:
    world = SampledWorld(seed)
    for _ in range(DEEDS):
        world.deed()
    world.comes_to_rest()

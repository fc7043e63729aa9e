"""What the links of a node's GPUs are worth."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest

from protos.contract.links import Topology


@pytest.mark.parametrize("seed", range(10))
def test_what_is_lost_is_the_same_whatever_was_reckoned_before(seed: int) -> None:
    """Of a node with 256 GPUs one pod takes one: that is not worth a look at all pairs."""
    draw = random.Random(seed)
    every = [(a, b) for a in range(30) for b in range(a) if draw.random() < 0.8]
    pairs = [(a, b, draw.choice(("NV1", "NV18", "PIX", "SYS"))) for a, b in every]
    numa = [(index, draw.choice((-1, 0, 1))) for index in range(28)]
    long, idle = Topology(pairs, numa), set(range(30))
    for _ in range(40):
        for index in draw.sample(range(30), draw.choice((1, 1, 2, 20))):
            idle ^= {index}
        wanted = tuple(sorted(idle))
        assert dict(long.lost(wanted)) == Topology(pairs, numa).lost(wanted)
    long.lost(tuple(range(30)))
    with patch.object(Topology, "_lost", side_effect=AssertionError("all pairs were looked at")):
        long.lost(tuple(range(1, 30)))

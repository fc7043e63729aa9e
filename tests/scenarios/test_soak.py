"""A tenth of a week's pods, and a quick look at the same: `python -m tests.bench soak` has all of it."""

from __future__ import annotations

import pytest

from extender.steps import GARBAGE
from tests.bench import soak


@pytest.mark.parametrize(("nodes", "pods"), [(50, 340), pytest.param(1_000, 10_000, marks=pytest.mark.long)])
def test_what_goes_on_for_a_week_leaves_nothing_behind(nodes: int, pods: int) -> None:
    (seen,) = soak.measure(nodes, pods, lives=1)
    assert seen.violations == 0
    assert seen.differ == 0
    assert seen.bound > pods / 2
    assert seen.finished > pods * soak.LYING / 3
    assert {
        "Tick requeue",
        "RunSlice",
        "filter",
        "prepare",
        "PodSeen",
        "PodGone",
        "NodeSeen",
        "Leading",
    } <= seen.steps.keys()
    if pods >= 10_000:
        assert seen.hours[-1] < soak.GROWTH * seen.hours[0]
        assert max(seen.hours) < soak.MIB
        assert seen.steps[GARBAGE][0] > 10

"""What a replay comes to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from statistics import fmean
from typing import Literal

import msgspec

from extender.sim.jobtrace.choices import Policy
from extender.sim.jobtrace.replay import Ran

Size = Literal["1", "2-8", ">8"]


class Figures(msgspec.Struct, frozen=True):
    """Seconds, and the share of the GPUs' time that was used, from the first submission to the last end."""

    policy: Policy
    mean_jct_s: float
    p95_jct_s: float
    p99_jct_s: float
    mean_wait_s: float
    wait_by_size: dict[Size, float | None]
    """Means by number of GPUs; None where there is no such job."""
    utilisation: float
    makespan_s: float


def figures(policy: Policy, ran: Sequence[Ran], gpus: int) -> Figures:
    """Of at least one job, on so many GPUs in all."""
    times = sorted(one.completion for one in ran)
    first = min(one.job.submit for one in ran)
    makespan = max(one.end for one in ran) - first
    worked = sum(one.job.duration * one.job.gpus for one in ran)
    return Figures(
        policy=policy,
        mean_jct_s=round(fmean(times), 1),
        p95_jct_s=round(_percentile(times, 95), 1),
        p99_jct_s=round(_percentile(times, 99), 1),
        mean_wait_s=round(fmean(one.wait for one in ran), 1),
        wait_by_size={
            "1": _mean(one.wait for one in ran if one.job.gpus == 1),
            "2-8": _mean(one.wait for one in ran if 1 < one.job.gpus <= 8),
            ">8": _mean(one.wait for one in ran if one.job.gpus > 8),
        },
        utilisation=round(worked / (makespan * gpus), 4) if makespan else 0.0,
        makespan_s=round(makespan, 1),
    )


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """The least of the values that so many per cent of them do not exceed."""
    return ordered[ceil(len(ordered) * percent / 100) - 1]


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return round(fmean(listed), 1) if listed else None

"""The figures of a replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from statistics import fmean
from typing import Literal

import msgspec

from extender.sim.jobtrace.choices import Policy
from extender.sim.jobtrace.replay import Ran

Size = Literal["1", "2-8", ">8"]


class Figures(msgspec.Struct, frozen=True):
    """Times in seconds, and the share of all GPU time in use between the first submission and the last end."""

    policy: Policy
    mean_jct_s: float
    p95_jct_s: float
    p99_jct_s: float
    mean_wait_s: float
    wait_by_size: dict[Size, float | None]
    """Mean waits by number of GPUs; None if there is no such job."""
    utilisation: float
    makespan_s: float


def figures(policy: Policy, ran: Sequence[Ran], gpus: int) -> Figures:
    """The figures of at least one job; `gpus` of the whole cluster."""
    times = sorted(each.completion for each in ran)
    makespan = max(each.end for each in ran) - min(each.job.submit for each in ran)
    worked = sum(each.job.duration * each.job.gpus for each in ran)
    return Figures(
        policy=policy,
        mean_jct_s=round(fmean(times), 1),
        p95_jct_s=round(_percentile(times, 95), 1),
        p99_jct_s=round(_percentile(times, 99), 1),
        mean_wait_s=round(fmean(each.wait for each in ran), 1),
        wait_by_size={
            "1": _mean_wait(ran, lambda gpus: gpus == 1),
            "2-8": _mean_wait(ran, lambda gpus: 1 < gpus <= 8),
            ">8": _mean_wait(ran, lambda gpus: gpus > 8),
        },
        utilisation=round(worked / (makespan * gpus), 4) if makespan else 0.0,
        makespan_s=round(makespan, 1),
    )


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """The nearest-rank percentile of sorted values."""
    return ordered[ceil(len(ordered) * percent / 100) - 1]


def _mean_wait(ran: Sequence[Ran], chosen: Callable[[int], bool]) -> float | None:
    waits = [each.wait for each in ran if chosen(each.job.gpus)]
    return round(fmean(waits), 1) if waits else None

"""Small lists of jobs, and the recorded ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from extender.sim.jobtrace import replay, restarts, trace
from extender.sim.jobtrace.choices import Durations, Policy
from extender.sim.jobtrace.trace import Job, Shape

FOLDER = Path(__file__).parents[2] / "data" / "jobs"


def a_job(
    number: int, submit: float, duration: float, gpus: int = 1, *, expected: float | None = None, queue: str = "default"
) -> Job:
    """On one node, or on equal shares of several nodes with 8 GPUs; named by its number."""
    workers = -(-gpus // 8)
    shape = Shape(workers, -(-gpus // workers))
    told = duration if expected is None else expected
    return Job(number, str(number), submit, duration, gpus, shape, queue, told)


def starts(policy: Policy, jobs: Sequence[Job], nodes: int = 1, gpus: int = 8) -> dict[int, float]:
    """When each job starts, by number."""
    ran = replay.replay(jobs, nodes, gpus, policy)
    return {one.job.number: one.end - one.job.duration for one in ran}


def ends(jobs: Sequence[Job], cost: float, nodes: int = 1) -> dict[int, float]:
    """When each job ends where jobs are stopped and go on, by number."""
    return {one.job.number: one.end for one in restarts.replay(jobs, nodes, 8, cost)}


def recorded(name: str, durations: Durations = "trace") -> list[Job]:
    """One of the recorded lists."""
    return trace.with_expected(trace.read_jobs(FOLDER / f"{name}.csv.gz"), durations, 0)


def some_jobs(seed: int, *, known: bool = True) -> list[Job]:
    """More than four nodes can do at once."""
    rng = random.Random(seed)
    made = []
    for number in range(60):
        gpus, duration = rng.choice((1, 1, 2, 4, 8, 16, 32)), rng.randint(1, 100)
        expected = duration * rng.uniform(0.5, 1.5) if known else float("inf")
        made.append(a_job(number, rng.randint(0, 300), duration, gpus, expected=expected))
    return made

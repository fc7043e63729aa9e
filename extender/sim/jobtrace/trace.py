"""The list of jobs, read from CSV, and the run times that policies know."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from extender.sim.jobtrace.choices import Durations
from extender.sim.table import Row, read

COLUMNS = ("job", "submit_s", "duration_s", "num_gpus", "workers", "gpus_per_worker")
MOST_GPUS = 10**6
NOISE = 0.5
"""Largest relative error of a noisy run time."""
ONE_QUEUE = "default"


class Shape(NamedTuple):
    """The nodes that a job needs, and the GPUs on each."""

    workers: int
    gpus: int


class Job(msgspec.Struct, frozen=True, eq=False):
    """A job of the list."""

    number: int
    """Its place in the list."""
    name: str
    submit: float
    duration: float
    """True run time in seconds. Policies do not know it."""
    gpus: int
    shape: Shape
    queue: str = ONE_QUEUE
    expected: float = math.inf
    """The run time that policies know, infinity if unknown."""
    where: str = "the list"
    """Its file and line."""


def read_jobs(path: Path, queue: str | None = None) -> list[Job]:
    """The jobs in the order of the list, with queues from the column named `queue`; raises TraceError."""
    columns = (*COLUMNS, queue) if queue else COLUMNS
    rows = read(path, columns, lambda row: _job(row, queue))
    return [msgspec.structs.replace(job, number=number) for number, job in enumerate(rows)]


def _job(row: Row, queue: str | None) -> Job:
    gpus = row.number("num_gpus", least=1, most=MOST_GPUS)
    shape = Shape(row.number("workers", 1, MOST_GPUS), row.number("gpus_per_worker", 1, MOST_GPUS))
    if shape.workers * shape.gpus < gpus:
        raise row.wrong("num_gpus", f"at most workers times gpus_per_worker, which is {shape.workers * shape.gpus}")
    submit, duration = row.seconds("submit_s"), row.seconds("duration_s")
    return Job(
        0, row.text("job"), submit, duration, gpus, shape, row.text(queue) if queue else ONE_QUEUE, where=row.where
    )


def with_expected(jobs: Sequence[Job], durations: Durations, seed: int) -> list[Job]:
    """The same jobs with the run times that policies know."""
    draw = random.Random(f"durations of {seed}")
    if durations == "none":
        return [msgspec.structs.replace(job, expected=math.inf) for job in jobs]
    noise = NOISE if durations == "noisy" else 0.0
    return [msgspec.structs.replace(j, expected=j.duration * draw.uniform(1 - noise, 1 + noise)) for j in jobs]

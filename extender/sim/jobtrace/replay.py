"""Event by event, jobs are submitted, start and end."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from extender.sim.jobtrace import baselines
from extender.sim.jobtrace.choices import Policy
from extender.sim.jobtrace.ours import Gangshare
from extender.sim.jobtrace.simulation import Simulation
from extender.sim.jobtrace.trace import Job
from extender.sim.progress import Progress, silent
from extender.sim.table import TraceError


class Ran(NamedTuple):
    """A job that has run."""

    job: Job
    end: float

    @property
    def completion(self) -> float:
        """Seconds from submission to end."""
        return self.end - self.job.submit

    @property
    def wait(self) -> float:
        """Seconds of its completion time in which the job made no progress."""
        return self.completion - self.job.duration


class Replayed(Protocol):
    """A simulated cluster with its jobs; see `Simulation`."""

    @property
    def next_event(self) -> float: ...

    def advance(self, now: float) -> Iterator[Job]: ...

    def join(self, job: Job) -> None: ...

    def decide(self) -> None: ...


POLICIES: Mapping[Policy, Callable[[int, int], Simulation]] = {
    "fifo": baselines.Fifo,
    "skip": baselines.Skip,
    "easy": baselines.Easy,
    "gangshare": Gangshare,
}


def replay(jobs: Sequence[Job], nodes: int, gpus: int, policy: Policy, progress: Progress = silent) -> list[Ran]:
    """Run all jobs on nodes with this number of GPUs each; raises TraceError if a job can never fit."""
    return run(jobs, nodes, gpus, POLICIES[policy], progress)


def run(
    jobs: Sequence[Job], nodes: int, gpus: int, make: Callable[[int, int], Replayed], progress: Progress
) -> list[Ran]:
    """Run all jobs on the simulated cluster that `make` returns; raises TraceError if a job can never fit."""
    for job in jobs:
        if job.shape.workers > nodes or job.shape.gpus > gpus:
            needs = f"{job.shape.workers} nodes with {job.shape.gpus} GPUs each"
            raise TraceError(
                f"{job.where}: job {job.name!r} needs {needs}: expected at most {nodes} nodes with {gpus} each"
            )
    simulation = make(nodes, gpus)
    coming = deque(sorted(jobs, key=lambda job: (job.submit, job.number)))
    ran: list[Ran] = []
    while (now := min(simulation.next_event, coming[0].submit if coming else math.inf)) < math.inf:
        ran += [Ran(job, now) for job in simulation.advance(now)]
        while coming and coming[0].submit <= now:
            simulation.join(coming.popleft())
        simulation.decide()
        progress(len(ran), len(jobs))
    return ran

"""Event by event, jobs that come and jobs that end: who starts when."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from extender.sim.jobtrace import baselines, trace
from extender.sim.jobtrace.choices import Policy
from extender.sim.jobtrace.cluster import Cluster
from extender.sim.jobtrace.floor import Floor
from extender.sim.jobtrace.ours import Gangshare
from extender.sim.jobtrace.trace import Job


class Ran(NamedTuple):
    """A job that has run."""

    job: Job
    end: float

    @property
    def completion(self) -> float:
        """Seconds from its submission to its end."""
        return self.end - self.job.submit

    @property
    def wait(self) -> float:
        """Seconds of these in which it got nothing done."""
        return self.completion - self.job.duration


class Decider(Protocol):
    """A policy."""

    def join(self, job: Job) -> None:
        """The job is submitted."""

    def decide(self, floor: Floor) -> None:
        """Something has ended or was submitted: start who may start."""


POLICIES: Mapping[Policy, Callable[[], Decider]] = {
    "fifo": lambda: baselines.Skip(strict=True),
    "skip": baselines.Skip,
    "easy": baselines.Easy,
    "gangshare": Gangshare,
}


def replay(jobs: Sequence[Job], nodes: int, gpus: int, policy: Policy) -> list[Ran]:
    """Run all jobs on so many nodes with so many GPUs each; raises TraceError if one would never fit."""
    trace.check(jobs, nodes, gpus)
    floor, decider = Floor(Cluster(nodes, gpus)), POLICIES[policy]()
    coming = deque(sorted(jobs, key=lambda job: (job.submit, job.number)))
    ran: list[Ran] = []
    while coming or floor.next_end is not None:
        floor.now = min(t for t in (coming[0].submit if coming else None, floor.next_end) if t is not None)
        ran += (Ran(running.job, floor.now) for running in floor.end())
        while coming and coming[0].submit <= floor.now:
            decider.join(coming.popleft())
        decider.decide(floor)
    return ran

"""A simulated cluster with its running jobs and, for backfill, the reservation of the first pending job.

EASY backfill makes one reservation: the first pending job that does not fit gets the earliest time at which it will
fit if running jobs end as expected, and the nodes it gets then. Other jobs may pass if they end by that time or keep
off those nodes. Every decision makes the reservation again.
Source: Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 2001.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec
from sortedcontainers import SortedKeyList

from extender.engine.queueing.runtimes import end_of_running
from extender.sim.jobtrace.cluster import Cluster
from extender.sim.jobtrace.trace import Job


class Running(msgspec.Struct, frozen=True, eq=False):
    """A job on its nodes."""

    job: Job
    start: float
    nodes: int


class Reservation(NamedTuple):
    """The expected start of the first pending job, and its nodes."""

    start: float
    nodes: int

    def closed(self, end: float) -> int:
        """The nodes closed to a job that is expected to end then; infinity if its run time is unknown."""
        return self.nodes if end > self.start else 0


NO_RESERVATION = Reservation(math.inf, 0)


class Simulation(ABC):
    """The cluster, its running jobs and the time. A subclass is a policy: it keeps pending jobs and starts them."""

    def __init__(self, nodes: int, gpus: int) -> None:
        self.cluster = Cluster(nodes, gpus)
        self.now = 0.0
        self.running: dict[Job, Running] = {}
        self.used = Counter[str]()
        """GPUs in use by queue."""
        self._ends: list[tuple[float, int, Running]] = []
        self._by_expected_end = SortedKeyList[Running](key=_expected_end)

    @abstractmethod
    def join(self, job: Job) -> None:
        """Add a submitted job."""

    @abstractmethod
    def decide(self) -> None:
        """Start the jobs that may start, after jobs have ended or were submitted."""

    def start(self, job: Job, nodes: int) -> None:
        """Start a job on these nodes now."""
        running = self.running[job] = Running(job, self.now, nodes)
        self.cluster.take(nodes, job.shape.gpus)
        self.used[job.queue] += job.gpus
        self._by_expected_end.add(running)
        heappush(self._ends, (self.now + job.duration, job.number, running))

    @property
    def next_event(self) -> float:
        """When the next job ends, infinity if none runs. Policies do not know it."""
        return self._ends[0][0] if self._ends else math.inf

    def advance(self, now: float) -> Iterator[Job]:
        """Set the time, and remove and return the jobs that have ended."""
        self.now = now
        while self._ends and self._ends[0][0] <= now:
            running = heappop(self._ends)[2]
            del self.running[running.job]
            self.used[running.job.queue] -= running.job.gpus
            self._by_expected_end.remove(running)
            self.cluster.take(running.nodes, -running.job.shape.gpus)
            yield running.job

    def reserve(self, job: Job) -> Reservation:
        """The reservation of a job that does not fit now; none if it does not even fit an empty cluster."""
        later = self.cluster.copy()
        for running in self._by_expected_end:
            later.take(running.nodes, -running.job.shape.gpus)
            nodes = later.fit(job.shape)
            if nodes:
                return Reservation(end_of_running(running.start, running.job.expected, self.now), nodes)
        return NO_RESERVATION


def _expected_end(running: Running) -> tuple[float, float, int]:
    """Jobs in the order of their expected ends; unknown ends come last, the job started last before the others."""
    end = running.start + running.job.expected
    return end, 0.0 if end < math.inf else -running.start, running.job.number

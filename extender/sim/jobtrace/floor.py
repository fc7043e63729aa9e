"""What runs where, and who waits to be started: what a policy sees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush

import msgspec
from sortedcontainers import SortedKeyList

from extender.engine.queueing.runtimes import end_of_running
from extender.sim.jobtrace import easy
from extender.sim.jobtrace.cluster import Cluster
from extender.sim.jobtrace.easy import Reservation
from extender.sim.jobtrace.trace import Job


class Running(msgspec.Struct, frozen=True, eq=False):
    """A job on its nodes."""

    job: Job
    start: float
    nodes: int


class Floor:
    """The cluster, the jobs that run there, and the time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.now = 0.0
        self.running: dict[Job, Running] = {}
        self.used = Counter[str]()
        """GPUs by queue."""
        self._ends: list[tuple[float, int, Running]] = []
        self._expected = SortedKeyList[Running](key=_expected_end)

    def start(self, job: Job, nodes: int) -> None:
        """Put the job there now."""
        running = self.running[job] = Running(job, self.now, nodes)
        self.cluster.take(nodes, job.shape.gpus)
        self.used[job.queue] += job.gpus
        self._expected.add(running)
        heappush(self._ends, (self.now + job.duration, job.number, running))

    @property
    def next_end(self) -> float | None:
        """When the next job ends, which no policy knows."""
        return self._ends[0][0] if self._ends else None

    def end(self) -> Iterator[Running]:
        """The jobs that end by now, gone already."""
        while self._ends and self._ends[0][0] <= self.now:
            running = heappop(self._ends)[2]
            del self.running[running.job]
            self.used[running.job.queue] -= running.job.gpus
            self._expected.remove(running)
            self.cluster.take(running.nodes, -running.job.shape.gpus)
            yield running

    def reserve(self, job: Job) -> Reservation:
        """When and where a job would start for which there is no room now."""
        ends = ((end_of_running(one.start, one.job.expected, self.now), one) for one in self._expected)
        return easy.reserve(_Later(self.cluster.copy(), job), ends)


def _expected_end(running: Running) -> tuple[float, float, int]:
    """The order in which jobs are expected to end, which stays the same: known ends, then who has run least."""
    end = running.start + running.job.expected
    return end, 0.0 if end < math.inf else -running.start, running.job.number


class _Later:
    """The cluster as running jobs leave it."""

    def __init__(self, cluster: Cluster, job: Job) -> None:
        self._cluster, self._job = cluster, job

    def leave(self, who: Running) -> None:
        self._cluster.take(who.nodes, -who.job.shape.gpus)

    def fit(self) -> int:
        return self._cluster.fit(self._job.shape)

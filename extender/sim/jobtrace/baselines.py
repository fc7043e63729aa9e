"""Known policies, in order of submission: FIFO, FIFO with skipping, and EASY backfill."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from itertools import islice

from extender.sim.jobtrace.simulation import NO_RESERVATION, Reservation, Simulation
from extender.sim.jobtrace.trace import Job, Shape

MAX_BACKFILL_SCAN = 2000
"""Jobs that EASY examines behind the first that does not fit."""


class _SubmissionOrder(Simulation):
    """Keeps the pending jobs in order of submission."""

    def __init__(self, nodes: int, gpus: int) -> None:
        super().__init__(nodes, gpus)
        self._pending: list[Job] = []

    def join(self, job: Job) -> None:
        self._pending.append(job)

    def decide(self) -> None:
        before = len(self.running)
        self._start_jobs()
        if len(self.running) > before:
            self._pending = [job for job in self._pending if job not in self.running]

    @abstractmethod
    def _start_jobs(self) -> None:
        """Start pending jobs; they stay in the list meanwhile."""


class Skip(_SubmissionOrder):
    """Every job that fits starts. A `strict` policy stops at the first job that does not fit."""

    strict = False

    def _start_jobs(self) -> None:
        failed = set[Shape]()
        for job in self._pending:
            if job.shape in failed:
                continue
            nodes = self.cluster.fit(job.shape)
            if nodes:
                self.start(job, nodes)
            elif self.strict:
                break
            else:
                failed.add(job.shape)


class Fifo(Skip):
    """No job starts before the first that does not fit."""

    strict = True


class Easy(_SubmissionOrder):
    """The first job that does not fit gets a reservation; other jobs pass if they do not delay it."""

    def _start_jobs(self) -> None:
        pending = iter(self._pending)
        for job in pending:
            nodes = self.cluster.fit(job.shape)
            if not nodes:
                reservation = self.reserve(job)
                if reservation is not NO_RESERVATION:
                    self._backfill(islice(pending, MAX_BACKFILL_SCAN), reservation)
                return
            self.start(job, nodes)

    def _backfill(self, pending: Iterable[Job], reservation: Reservation) -> None:
        failed: tuple[set[Shape], set[Shape]] = (set(), set())
        longest = reservation.start - self.now
        for job in pending:
            late = job.expected > longest
            if job.shape in failed[late]:
                continue
            nodes = self.cluster.fit(job.shape, reservation.nodes if late else 0)
            if nodes:
                self.start(job, nodes)
            else:
                failed[late].add(job.shape)

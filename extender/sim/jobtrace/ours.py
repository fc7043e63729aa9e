"""Policy `gangshare`: the engine's queue order and backfill, without preemption."""

from __future__ import annotations

import math

from extender.engine.queueing.line import Line, Turn, Waiter, due
from extender.sim.jobtrace.simulation import NO_RESERVATION, Simulation
from extender.sim.jobtrace.trace import Job, Shape


class Gangshare(Simulation):
    """Pending jobs in the engine's line."""

    def __init__(self, nodes: int, gpus: int) -> None:
        super().__init__(nodes, gpus)
        self._line = Line()
        self._pending: dict[int, Job] = {}
        """By job number."""

    def join(self, job: Job) -> None:
        self._pending[job.number] = job
        turn = Turn(0, due(job.submit, job.expected), job.submit, job.number)
        alike = job.shape, job.expected == math.inf
        self._line.join(Waiter(job.number, job.queue, alike, turn))

    def decide(self) -> None:
        walk = self._line.walk(self.used.__getitem__)
        reservation, failed = NO_RESERVATION, set[tuple[Shape, int]]()
        started: list[Job] = []
        for waiter in walk:
            job = self._pending[waiter.turn.name]
            closed = reservation.closed(self.now + job.expected)
            if (job.shape, closed) in failed:
                continue
            nodes = self.cluster.fit(job.shape, closed)
            if nodes:
                self.start(job, nodes)
                started.append(job)
                continue
            failed.add((job.shape, closed))
            if not closed or job.expected == math.inf:
                walk.leave_out(waiter.shape)
            if reservation is NO_RESERVATION:
                reservation = self.reserve(job)
        for job in started:
            self._line.leave(job.number)
            del self._pending[job.number]

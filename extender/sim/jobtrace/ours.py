"""Policy `gangshare`: the engine's line and backfill. Nobody is stopped once it runs."""

from __future__ import annotations

import math

from extender.engine.queueing.line import Line, Turn, Waiter, due
from extender.sim.jobtrace.easy import OPEN
from extender.sim.jobtrace.floor import Floor
from extender.sim.jobtrace.trace import Job, Shape


class Gangshare:
    """The line, and how much each queue has."""

    def __init__(self) -> None:
        self._line = Line()
        self._jobs: dict[int, Job] = {}
        """Those in line, by number."""

    def join(self, job: Job) -> None:
        self._jobs[job.number] = job
        turn = Turn(0, due(job.submit, job.expected), job.submit, job.number)
        alike = job.shape, job.expected == math.inf
        self._line.join(Waiter(job.number, job.queue, alike, turn))

    def decide(self, floor: Floor) -> None:
        walk = self._line.walk(floor.used.__getitem__)
        kept, failed = OPEN, set[tuple[Shape, int]]()
        started: list[Job] = []
        for waiter in walk:
            job = self._jobs[waiter.turn.name]
            closed = kept.closed(floor.now + job.expected)
            if (job.shape, closed) in failed:
                continue
            nodes = floor.cluster.fit(job.shape, closed)
            if nodes:
                floor.start(job, nodes)
                started.append(job)
                continue
            failed.add((job.shape, closed))
            if not closed or job.expected == math.inf:
                walk.leave_out(waiter.shape)
            if kept is OPEN:
                kept = floor.reserve(job)
        for job in started:
            self._line.leave(job.number)
            del self._jobs[job.number]

"""Policy `gangshare` with preemption: jobs may stop and continue later, at a cost.

Each event orders all jobs again and places them in that order on empty nodes. A running job stays on its nodes unless
an earlier job takes them; a job without nodes stops. A job's level is that of the service it has received, or of its
remaining work where run times are known. Source: Tiresias (Gu et al., NSDI 2019).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from extender.engine.queueing.line import Line, Turn, Waiter
from extender.sim.jobtrace.cluster import Cluster
from extender.sim.jobtrace.replay import Ran, run
from extender.sim.jobtrace.trace import Job
from extender.sim.progress import Progress, silent

FIRST_LEVEL = 3600.0
"""GPU-seconds of service at which a job leaves the first level."""
NEXT_LEVEL = 10.0
"""Factor between the ends of two levels."""
EPS_S = 1e-3
"""A shorter time counts as none."""


def level(service: float) -> int:
    """The level for this number of GPU-seconds, received or remaining; lower levels go first."""
    found = 0
    while service >= level_end(found):
        found += 1
    return found


def level_end(number: int) -> float:
    """The GPU-seconds at which a level ends."""
    return FIRST_LEVEL * NEXT_LEVEL**number


class RestartableJob(msgspec.Struct, eq=False):
    """A job that has not ended, and its progress."""

    job: Job
    done: float = 0.0
    """Seconds of its run time."""
    loading: float = 0.0
    """Seconds until it makes progress after a restart."""
    nodes: int = 0
    """Its nodes as bits by node number; 0 if it does not run."""
    begun: bool = False

    @property
    def left(self) -> float:
        """Seconds until it ends. Policies do not know it."""
        return self.loading + self.job.duration - self.done

    @property
    def level(self) -> int:
        known = self.job.expected < math.inf
        seconds = max(0.0, self.job.expected - self.done) if known else self.done
        return level(seconds * self.job.gpus)

    @property
    def level_change(self) -> float:
        """Seconds until its level gets worse, if it runs."""
        if self.job.expected < math.inf:
            return math.inf
        return self.loading + level_end(self.level) / self.job.gpus - self.done + EPS_S

    def place(self, nodes: int, cost: float) -> None:
        """Start it on these nodes, or stop it (0). A restart costs this number of seconds."""
        self.nodes = nodes
        if nodes:
            self.loading, self.begun = cost if self.begun else 0.0, True

    def run(self, seconds: float) -> None:
        loading = min(seconds, self.loading)
        self.loading -= loading
        self.done += seconds - loading


def replay(jobs: Sequence[Job], nodes: int, gpus: int, cost: float, progress: Progress = silent) -> list[Ran]:
    """Run all jobs on nodes with this number of GPUs each; a restart or a move costs a job `cost` seconds.

    Raises TraceError if a job can never fit.
    """
    return run(jobs, nodes, gpus, partial(_Restarts, cost=cost), progress)


class _Restarts:
    """The jobs that have not ended, in the engine's line."""

    def __init__(self, nodes: int, gpus: int, cost: float) -> None:
        self._nodes, self._gpus, self._cost = nodes, gpus, cost
        self._now = 0.0
        self._line = Line()
        self._jobs: dict[int, RestartableJob] = {}
        self._running: list[RestartableJob] = []

    def join(self, job: Job) -> None:
        self._jobs[job.number] = RestartableJob(job)
        self._requeue(self._jobs[job.number])

    def _requeue(self, state: RestartableJob) -> None:
        """Order by level. Running jobs have shapes of their own: the walk never leaves them out."""
        job, alike = state.job, (state.job.shape, state.nodes > 0)
        self._line.join(Waiter(job.number, job.queue, alike, Turn(0, state.level, job.submit, job.number)))

    @property
    def next_event(self) -> float:
        """When a job ends or changes its level."""
        return min((self._now + min(job.left, job.level_change) for job in self._running), default=math.inf)

    def advance(self, now: float) -> Iterator[Job]:
        seconds, self._now = now - self._now, now
        for state in self._running:
            state.run(seconds)
            if state.left < EPS_S:
                self._line.leave(state.job.number)
                yield self._jobs.pop(state.job.number).job
            else:
                self._requeue(state)
        self._running = [state for state in self._running if state.job.number in self._jobs]

    def decide(self) -> None:
        """Place all jobs in order."""
        plan, used = Cluster(self._nodes, self._gpus), Counter[str]()
        walk = self._line.walk(used.__getitem__)
        placed: list[tuple[RestartableJob, int]] = []
        for waiter in walk:
            state = self._jobs[waiter.turn.name]
            shape = state.job.shape
            stays = state.nodes and plan.has_free(shape.gpus, state.nodes)
            nodes = state.nodes if stays else plan.fit(shape)
            if nodes:
                plan.take(nodes, shape.gpus)
                used[state.job.queue] += state.job.gpus
            elif not state.nodes:
                walk.leave_out(waiter.shape)
            placed.append((state, nodes))
        for state, nodes in placed:
            if nodes != state.nodes:
                state.place(nodes, self._cost)
                self._requeue(state)
        self._running = [state for state, nodes in placed if nodes]

"""Policy `gangshare` where jobs may be stopped and go on later, at a cost.

All that are there are put in order anew at each event, and given room in that order as if all nodes stood empty; one
that runs stays where it is unless an earlier one takes its place. Who is left without room stops. A job's level is that
of the service it has had, or of the work that is left where run times are known. Source: Tiresias (Gu et al., NSDI
2019).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence

import msgspec

from extender.engine.queueing.line import Line, Turn, Waiter
from extender.sim.jobtrace import trace
from extender.sim.jobtrace.cluster import Cluster
from extender.sim.jobtrace.replay import Ran
from extender.sim.jobtrace.trace import Job

FIRST_LEVEL = 3600.0
"""GPU-seconds of service at which a job leaves the first level."""
NEXT_LEVEL = 10.0
"""How many times that of the level before a level ends at."""
EPS_S = 1e-3
"""Less than that is no time."""


def level(service: float) -> int:
    """The level of one that has had, or still wants, so many GPU-seconds; lower goes first."""
    found, end = 0, FIRST_LEVEL
    while service >= end:
        found, end = found + 1, end * NEXT_LEVEL
    return found


def level_end(found: int) -> float:
    """The GPU-seconds at which this level ends."""
    return FIRST_LEVEL * NEXT_LEVEL**found


class Restartable(msgspec.Struct, eq=False):
    """A job that is there, with what it has done."""

    job: Job
    done: float = 0.0
    """Seconds of its run time."""
    loading: float = 0.0
    """Seconds until it goes on doing something."""
    nodes: int = 0
    """Where it runs: bits by node number; 0 if it does not."""
    begun: bool = False

    @property
    def left(self) -> float:
        """Seconds until it ends, which no policy knows."""
        return self.loading + self.job.duration - self.done

    @property
    def level(self) -> int:
        known = self.job.expected < math.inf
        seconds = max(0.0, self.job.expected - self.done) if known else self.done
        return level(seconds * self.job.gpus)

    @property
    def stays(self) -> float:
        """Seconds for which its level stays the same if it runs, or it gets a better one then."""
        if self.job.expected < math.inf:
            return math.inf
        return self.loading + level_end(self.level) / self.job.gpus - self.done + EPS_S

    def put(self, nodes: int, cost: float) -> None:
        """It goes there, or stops; to go on costs so many seconds."""
        self.nodes = nodes
        if nodes:
            self.loading, self.begun = cost if self.begun else 0.0, True

    def run(self, seconds: float) -> None:
        """So much time passes."""
        loading = min(seconds, self.loading)
        self.loading -= loading
        self.done += seconds - loading


def replay(jobs: Sequence[Job], nodes: int, gpus: int, cost: float) -> list[Ran]:
    """Run all jobs on so many nodes with so many GPUs each; to go on, or elsewhere, costs a job so many seconds.

    Raises TraceError if one would never fit.
    """
    trace.check(jobs, nodes, gpus)
    coming = deque(sorted(jobs, key=lambda job: (job.submit, job.number)))
    yard, ran, now = _Yard(nodes, gpus, cost), list[Ran](), 0.0
    while coming or yard.there:
        then = min(yard.next_event(now), coming[0].submit if coming else math.inf)
        ran += (Ran(job, then) for job in yard.run(then - now))
        now = then
        while coming and coming[0].submit <= now:
            yard.join(coming.popleft())
        yard.decide()
    return ran


class _Yard:
    """The jobs that are there."""

    def __init__(self, nodes: int, gpus: int, cost: float) -> None:
        self._nodes, self._gpus, self._cost = nodes, gpus, cost
        self._line = Line()
        self.there: dict[int, Restartable] = {}
        self._running: list[Restartable] = []

    def join(self, job: Job) -> None:
        self.there[job.number] = Restartable(job)
        self._queue(self.there[job.number])

    def _queue(self, one: Restartable) -> None:
        """Its place in line is that of its level; those that run are seen in any case."""
        job, alike = one.job, (one.job.shape, one.nodes > 0)
        self._line.join(Waiter(job.number, job.queue, alike, Turn(0, one.level, job.submit, job.number)))

    def next_event(self, now: float) -> float:
        """When a job ends or gets another level."""
        return min((now + min(one.left, one.stays) for one in self._running), default=math.inf)

    def run(self, seconds: float) -> Iterator[Job]:
        """So much time passes; returns the jobs that end, gone already."""
        for one in self._running:
            one.run(seconds)
            if one.left < EPS_S:
                self._line.leave(one.job.number)
                yield self.there.pop(one.job.number).job
            else:
                self._queue(one)
        self._running = [one for one in self._running if one.job.number in self.there]

    def decide(self) -> None:
        """Give room to all in turn."""
        plan, used = Cluster(self._nodes, self._gpus), Counter[str]()
        walk = self._line.walk(used.__getitem__)
        found: list[tuple[Restartable, int]] = []
        for waiter in walk:
            one = self.there[waiter.turn.name]
            shape = one.job.shape
            stays = one.nodes and plan.holds(shape.gpus, one.nodes)
            nodes = one.nodes if stays else plan.fit(shape)
            if nodes:
                plan.take(nodes, shape.gpus)
                used[one.job.queue] += one.job.gpus
            elif not one.nodes:
                walk.leave_out(waiter.shape)
            found.append((one, nodes))
        for one, nodes in found:
            if nodes != one.nodes:
                one.put(nodes, self._cost)
                self._queue(one)
        self._running = [one for one, nodes in found if nodes]

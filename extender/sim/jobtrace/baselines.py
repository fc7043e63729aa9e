"""Known policies, in order of submission: strict, with skipping, and EASY backfill.

They are written for themselves: of our own policy they use only what is assumed of ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from extender.sim.jobtrace.easy import OPEN, Reservation
from extender.sim.jobtrace.floor import Floor
from extender.sim.jobtrace.trace import Job, Shape

MOST_SCANNED = 2000
"""Jobs that EASY looks at behind the first that does not fit."""


class Skip:
    """Who fits goes; `strict`: nobody goes before the first that does not fit."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._waiting: list[Job] = []

    def join(self, job: Job) -> None:
        self._waiting.append(job)

    def decide(self, floor: Floor) -> None:
        before, failed = len(floor.running), set[Shape]()
        for job in self._waiting:
            if job.shape in failed:
                continue
            nodes = floor.cluster.fit(job.shape)
            if nodes:
                floor.start(job, nodes)
            elif self._strict:
                break
            else:
                failed.add(job.shape)
        if len(floor.running) > before:
            self._waiting = [job for job in self._waiting if job not in floor.running]


class Easy:
    """One reservation, for the first that does not fit; who does not push it back may pass."""

    def __init__(self) -> None:
        self._waiting: list[Job] = []

    def join(self, job: Job) -> None:
        self._waiting.append(job)

    def decide(self, floor: Floor) -> None:
        waiting, before, kept = iter(self._waiting), len(floor.running), OPEN
        for job in waiting:
            nodes = floor.cluster.fit(job.shape)
            if not nodes:
                kept = floor.reserve(job)
                break
            floor.start(job, nodes)
        if kept is not OPEN:
            self._pass(floor, islice(waiting, MOST_SCANNED), kept)
        if len(floor.running) > before:
            self._waiting = [job for job in self._waiting if job not in floor.running]

    def _pass(self, floor: Floor, behind: Iterable[Job], kept: Reservation) -> None:
        """Those behind the first go if they end by its start, or else on other nodes."""
        failed: tuple[set[Shape], set[Shape]] = (set(), set())
        longest = kept.start - floor.now
        for job in behind:
            late = job.expected > longest
            if job.shape in failed[late]:
                continue
            nodes = floor.cluster.fit(job.shape, kept.nodes if late else 0)
            if nodes:
                floor.start(job, nodes)
            else:
                failed[late].add(job.shape)

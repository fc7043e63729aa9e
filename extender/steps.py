"""A histogram of how long each step holds the event loop, by kind of step.

A step is what runs between two turns of the loop: an event, a tick, a slice of planning, a verb, a part of a page.
A collection of garbage runs inside a step, and is also counted on its own.
"""

import gc
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from prometheus_client.core import HistogramMetricFamily

BUCKETS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
"""Seconds."""
GARBAGE = "garbage"

P = ParamSpec("P")
R = TypeVar("R")


class Steps:
    """Counts and sums by kind of step. A step costs two reads of the clock and no lock."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.counts: dict[str, list[int]] = {}
        """By kind, the steps in each bucket; the last bucket has those longer than all bounds."""
        self.seconds: dict[str, float] = {}
        self.taken = 0
        """All steps together."""
        self._collecting = 0.0
        self.tidy: Callable[[], None] = lambda: None
        """To be called after each step that may leave much garbage; `Garbage` sets it."""

    def timed(self, kind: str, step: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the step and count it."""
        began = self.clock()
        try:
            return step(*args, **kwargs)
        finally:
            self.note(kind, self.clock() - began)

    def note(self, kind: str, seconds: float) -> None:
        counts = self.counts.get(kind)
        if counts is None:
            counts = self.counts[kind] = [0] * (len(BUCKETS) + 1)
            self.seconds[kind] = 0.0
        counts[bisect_left(BUCKETS, seconds)] += 1
        self.seconds[kind] += seconds
        self.taken += 1

    @contextmanager
    def collections(self) -> Iterator[None]:
        """Also count collections of garbage inside this context."""
        gc.callbacks.append(self._collected)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = self.clock()
        else:
            self.note(GARBAGE, self.clock() - self._collecting)

    def fill(self, family: HistogramMetricFamily) -> HistogramMetricFamily:
        """Add all counts as Prometheus wants them: each bucket includes those below it."""
        for kind, counts in sorted(self.counts.items()):
            total, buckets = 0, []
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                total += count
                buckets.append((bound, float(total)))
            family.add_metric([kind], buckets, sum_value=self.seconds[kind])
        return family

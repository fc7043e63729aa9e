"""How long the event loop is held at a time: a histogram of its steps, by what each was about.

A step is what happens between two turns of the loop that others could have had: an event taken in, a tick, a slice of
planning, a verb, a part of a page. A collection of garbage falls into a step and is counted on its own as well.
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
    """Counts, sums and the longest, by kind. Two looks at the clock for each step, and no lock."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.counts: dict[str, list[int]] = {}
        """By kind, how many were not longer than each of the buckets and longer than the one before; the rest last."""
        self.seconds: dict[str, float] = {}
        self.longest: dict[str, float] = {}
        self.worked = 0.0
        """Seconds of all steps together."""
        self._collecting = 0.0

    def timed(self, kind: str, step: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do this step, and count it."""
        began = self.clock()
        try:
            return step(*args, **kwargs)
        finally:
            self.note(kind, self.clock() - began)

    def note(self, kind: str, seconds: float) -> None:
        counts = self.counts.get(kind)
        if counts is None:
            counts = self.counts[kind] = [0] * (len(BUCKETS) + 1)
            self.seconds[kind] = self.longest[kind] = 0.0
        counts[bisect_left(BUCKETS, seconds)] += 1
        self.seconds[kind] += seconds
        self.worked += seconds
        if seconds > self.longest[kind]:
            self.longest[kind] = seconds

    @contextmanager
    def collections(self) -> Iterator[None]:
        """Meanwhile count collections of garbage, too."""
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
        """All of it as Prometheus counts: each bucket with those below it."""
        for kind, counts in sorted(self.counts.items()):
            total, buckets = 0, []
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                total += count
                buckets.append((bound, float(total)))
            family.add_metric([kind], buckets, sum_value=self.seconds[kind])
        return family

"""When garbage is collected: in small steps between other work, and never all memory while this process leads.

Nearly all objects of the books are freed by reference counts. The collector is needed for cycles only: those of
requests, tasks and exceptions, which live for a moment. Python looks for cycles among all objects from time to time,
which takes a tenth of a second and more with 8,000 pods. So here

- young objects are collected after a few thousand allocations, after a step rather than in the middle of an answer;
- objects that survive several collections are taken for books, and are never looked at again (`gc.freeze`).

A cycle that lives so long and is dropped later is found only while another process leads. So connections, and what
fails on them, leave no cycles: reference counts free them when they end.
"""

import gc
import time
from collections.abc import Callable

from extender.steps import Steps

YOUNG, OLD = 1_500, 2
"""Allocations until a collection, and collections until the survivors are frozen: together at most some 2 ms."""
STEPS = 50
"""Steps until a collection in any case. Python's count of allocations sinks with each object that is freed, so it does
not show that new objects replace old ones."""
MOST = 2_500
"""Allocations until Python collects by itself, in the middle of a step."""
NEVER = 1_000_000
IDLE_S = 60.0
"""Seconds for which another process leads until all objects are collected."""


class Garbage:
    """The garbage collection of this process, from `settle` on."""

    def __init__(self, steps: Steps, clock: Callable[[], float] = time.monotonic) -> None:
        """`steps` counts the steps, and has garbage looked for after each step that may leave much."""
        self._steps, self._clock = steps, clock
        steps.tidy = self.look
        self._idle_since: float | None = None
        self._settled = self._collected_all = False
        self._collected_at = 0
        """The steps taken by then."""

    def settle(self) -> None:
        """The cluster is read completely: freeze the books."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(MOST, NEVER, NEVER)
        self._settled = True

    def tick(self, *, leads: bool) -> None:
        """Do what is due. Nothing is until the cluster is read."""
        if self._settled:
            self.look()
            self._idle(leads=leads)

    def look(self) -> None:
        """Collect young objects after a step, if there may be many."""
        if not self._settled:
            return
        young, looks, _ = gc.get_count()
        if young < YOUNG and self._steps.taken < self._collected_at + STEPS:
            return
        if looks >= OLD:
            gc.collect(1)
            gc.freeze()
        else:
            gc.collect(0)
        self._collected_at = self._steps.taken

    def _idle(self, *, leads: bool) -> None:
        """Collect all objects once in each period in which another process leads."""
        if leads:
            self._idle_since, self._collected_all = None, False
            return
        now = self._clock()
        self._idle_since = now if self._idle_since is None else self._idle_since
        if not self._collected_all and now >= self._idle_since + IDLE_S:
            self._collected_all = True
            gc.unfreeze()
            gc.collect()
            gc.freeze()

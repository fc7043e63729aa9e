"""When garbage is collected: little by little, between other things, and never the whole memory while people wait.

Nearly all that the books are made of is freed at once when nobody names it any more. What is left for the collector
are cycles: of requests, tasks and exceptions, which live for a moment. Python looks for them among all objects, from
time to time: a tenth of a second and more, once 8,000 pods have come. So here

- the young are looked through when a few thousand were made, after a step that nobody waits for, rather than in the
  midst of an answer;
- what has lived through several such looks is taken to be of the books, and is never looked at again (`gc.freeze`).

A cycle that is held for so long and dropped later is not found again before another process leads for a while, when
nobody waits for this one. So connections and what fails on them leave no cycles: they are freed when they end.
"""

import gc
import time
from collections.abc import Callable

from extender.steps import Steps

YOUNG, OLD = 1_500, 2
"""Objects made until the young are looked through, and such looks until those that are left are spared: together no
more than some 2 ms."""
WORK_S = 0.01
"""Seconds of work after which the young are looked through anyway: Python takes those that are freed off the count of
those that are made, and so does not see that many are made in the place of old ones."""
MOST = 2_500
"""Objects made until Python does so by itself, in the midst of a step."""
NEVER = 1_000_000
IDLE_S = 60.0
"""Seconds for which another process leads until all is looked through."""


class Garbage:
    """What is done about it in this process, from `settle` on."""

    def __init__(self, steps: Steps, clock: Callable[[], float] = time.monotonic) -> None:
        """`steps` says how much work was done."""
        self._steps, self._clock = steps, clock
        self._idle_since: float | None = None
        self._settled = self._looked_through = False
        self._looked_at = 0.0
        """In seconds of work."""

    def settle(self) -> None:
        """All was read: spare the books."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(MOST, NEVER, NEVER)
        self._settled = True

    def tick(self, *, leads: bool) -> None:
        """Do what is due."""
        if self._settled:  # else all is still being read
            self.look()
            self._idle(leads=leads)

    def look(self) -> None:
        """A step is done: look through the young, if many may have been made since the last time."""
        if not self._settled:
            return
        young, looks, _ = gc.get_count()
        if young < YOUNG and looks < OLD and self._steps.worked < self._looked_at + WORK_S:
            return
        if looks >= OLD:
            gc.collect(1)
            gc.freeze()
        else:
            gc.collect(0)
        self._looked_at = self._steps.worked

    def _idle(self, *, leads: bool) -> None:
        """Once in a time in which another process leads, look through everything."""
        if leads:
            self._idle_since, self._looked_through = None, False
            return
        now = self._clock()
        self._idle_since = now if self._idle_since is None else self._idle_since
        if not self._looked_through and now >= self._idle_since + IDLE_S:
            self._looked_through = True
            gc.unfreeze()
            gc.collect()
            gc.freeze()

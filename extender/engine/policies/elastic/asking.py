"""Workers that a job's operator is asked to let go, before anybody is evicted.

The operator takes a worker off the job and only then deletes it: no work is lost. What it has not let go in time is
evicted like any other pod, by whoever asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from extender.engine.state.scalers import Scalers
from extender.engine.types.effects import Effect, PodRef
from gangfilter.group import GroupKey


class Asking:
    """Workers of one or more jobs that are asked for together, until a deadline."""

    def __init__(self, scalers: Scalers, workers: Mapping[GroupKey, Sequence[PodRef]], patience_s: float) -> None:
        """`patience_s`: seconds that a job has, no less than its workers have to end."""
        self._scalers, self._patience_s = scalers, patience_s
        self.workers = workers
        self._until: float | None = None
        self.over = not workers

    def look(self, goes: Callable[[str], bool], now: float) -> Iterator[Effect]:
        """Ask for those that do not go yet (by UID); it is `over` when all do, or the deadline has passed."""
        if self.over:
            return
        left = {key: [pod for pod in pods if not goes(pod.uid)] for key, pods in self.workers.items()}
        left = {key: pods for key, pods in left.items() if pods}
        if self._until is None:
            asked = (self._scalers.asked_at(key, [pod.name for pod in pods], now) for key, pods in left.items())
            self._until = max(asked, default=now) + self._patience_s
        self.over = not left or now >= self._until
        for key, pods in left.items():
            if self.over:
                self._scalers.overdue()
            else:
                yield from self._scalers.shrink(key, [pod.name for pod in pods], now)

"""Workers that a job's operator is asked to remove before pods are evicted.

The operator takes a worker off the job and only then deletes it, so that no work is lost. Workers that it has not
removed in time are evicted like other pods, by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from extender.engine.state.scalers import Scalers
from extender.engine.types.effects import Effect, PodRef
from gangfilter.group import GroupKey


class Asking:
    """Workers of one or more jobs that are to be removed together, before a deadline."""

    def __init__(self, scalers: Scalers, workers: Mapping[GroupKey, Sequence[PodRef]], patience_s: float) -> None:
        """`patience_s`: seconds that a job has, at least the grace period of its workers."""
        self._scalers, self._patience_s = scalers, patience_s
        self.workers = workers
        self._until: float | None = None
        self.over = not workers

    def look(self, goes: Callable[[str], bool], now: float) -> Iterator[Effect]:
        """Ask for the workers (by UID) that do not go yet; it is `over` if all go, or after the deadline."""
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

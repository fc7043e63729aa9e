"""The engine and what hangs on it in this process: the one place from which it is stepped."""

import asyncio
import time
from collections.abc import Callable, Iterable

from extender.engine.effects import (
    ClassStatus,
    Deny,
    Effect,
    Event,
    Evict,
    GroupStatus,
    Open,
    PhaseLeft,
    PutBack,
    QueueStatus,
    Report,
    Scale,
    Unscale,
    Wake,
)
from extender.engine.engine import Engine
from extender.metrics import Metrics

Write = Wake | Report | PutBack | Evict | Scale | Unscale | GroupStatus | ClassStatus | QueueStatus
"""Effects that are writes to the API server."""
Release = Open | Deny
"""Effects that end the waiting of a held bind."""


class Core:
    """One engine, the clock it is told, its metrics, and who carries out its effects."""

    def __init__(
        self,
        engine: Engine,
        metrics: Metrics,
        write: Callable[[Iterable[Write]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine, self.metrics, self.clock, self._write = engine, metrics, clock, write
        self.release: Callable[[Release], None] = lambda _: None
        """Who holds the binds; nobody does while none can be asked for."""
        self.stirred = asyncio.Event()
        """Set whenever there may be something new to plan."""
        self.calm = asyncio.Event()
        """Not set while the Bindings of a gang are written: what has time waits for it, a moment at most."""
        self.calm.set()

    def tell(self, event: Event) -> None:
        """Step the engine and hand on what it wants done."""
        self._act(self.engine.step(event, self.clock()))
        self.stirred.set()

    def flush(self) -> None:
        """Hand on what it wants done after an answer to kube-scheduler."""
        self._act(self.engine.effects())
        self.stirred.set()

    def think(self) -> bool:
        """Plan for a moment; whether there is more to plan."""
        more = self.engine.think(self.clock())
        self._act(self.engine.effects())
        return more

    def _act(self, effects: Iterable[Effect]) -> None:
        writes: list[Write] = []
        for effect in effects:
            match effect:
                case Open() | Deny():
                    self.release(effect)
                case PhaseLeft(phase, seconds):
                    self.metrics.gang_seconds.labels(str(phase)).observe(seconds)
                case _:
                    writes.append(effect)
        if writes:
            self._write(writes)

"""The engine and what hangs on it in this process: the one place from which it is stepped."""

import time
from collections.abc import Callable, Iterable

from extender.engine.effects import Effect, Event
from extender.engine.engine import Engine
from extender.metrics import Metrics


class Core:
    """One engine, the clock it is told, its metrics, and who carries out its effects."""

    def __init__(
        self,
        engine: Engine,
        metrics: Metrics,
        act: Callable[[Iterable[Effect]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine, self.metrics, self.clock, self._act = engine, metrics, clock, act

    def tell(self, event: Event) -> None:
        """Step the engine and hand on what it wants done."""
        effects = self.engine.step(event, self.clock())
        if effects:
            self._act(effects)

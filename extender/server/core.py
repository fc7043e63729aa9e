"""The engine and what hangs on it in this process: the one place from which the engine is stepped."""

import asyncio
import time
from collections.abc import Callable, Iterable

import structlog

from extender.cluster.pending import Write
from extender.engine.cycle.engine import Engine
from extender.engine.types.effects import Deny, Effect, Fault, Open, PhaseLeft
from extender.engine.types.events import Event, PodGone, PodSeen, Tick
from extender.metrics import Metrics
from extender.server.observer import Observer
from protos.logs import trace

Release = Open | Deny
"""Effects that let a held bind go on, or refuse it."""

log = structlog.get_logger(__name__)


class Core:
    """One engine with its clock and metrics. It hands each effect to the part that carries it out.

    An error that the engine could not handle does not end the process: a new one would meet it again.
    """

    def __init__(
        self,
        engine: Engine,
        metrics: Metrics,
        write: Callable[[Iterable[Write]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine, self.metrics, self.clock, self._write = engine, metrics, clock, write
        self.release: Callable[[Release], None] = lambda _: None
        """Set by `Binds`, which has the held binds."""
        self.observer = Observer()
        """Is told what happens to pods."""
        self.stirred = asyncio.Event()
        """Set whenever there may be something new to plan."""
        self.calm = asyncio.Event()
        """Unset while the Bindings of a large gang are written. Less urgent work waits for it, for a moment at most."""
        self.calm.set()

    def tell(self, event: Event) -> None:
        """Step the engine and carry out its effects."""
        kind = type(event).__name__
        if isinstance(event, Tick) and event.part:
            kind = f"{kind} {event.part}"
        self.metrics.steps.timed(kind, self._tell, event)
        self.metrics.steps.tidy()
        self.stirred.set()

    def _tell(self, event: Event) -> None:
        with self.metrics.faults.over("step"):
            self._act(self.engine.step(event, self.clock()))
            match event:
                case PodSeen(pod):
                    self.observer.seen(pod.metadata.uid)
                case PodGone(uid):
                    self.observer.gone(uid)

    def flush(self) -> None:
        """Carry out the effects of an answer to kube-scheduler."""
        with self.metrics.faults.over("effects"):
            self._act(self.engine.effects())
        self.stirred.set()

    def run_slice(self) -> bool:
        """Plan for a moment; whether there is more to plan."""
        more = self.metrics.steps.timed("RunSlice", self._run_slice)
        self.metrics.steps.tidy()
        return more

    def _run_slice(self) -> bool:
        more = False
        with self.metrics.faults.over("run_slice"):
            more = self.engine.run_slice(self.clock())
            self._act(self.engine.effects())
        return more

    def _act(self, effects: Iterable[Effect]) -> None:
        writes: list[Write] = []
        for effect in effects:
            with self.metrics.faults.over("effects"):
                self._do(effect, writes)
        if writes:
            self._write(writes)

    def _do(self, effect: Effect, writes: list[Write]) -> None:
        match effect:
            case Open() | Deny():
                self.release(effect)
            case PhaseLeft(phase, seconds):
                self.metrics.gang_seconds.labels(str(phase)).observe(seconds)
            case Fault(subject, name, place, error):
                log.error("set_aside", kind=subject.kind, object=name, place=place, traceback=trace(error))
                writes.append(effect)
            case _:
                writes.append(effect)

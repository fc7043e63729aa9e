"""Random errors: in every listener, in every component, in the work for one object, and deep in the books."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from extender.engine.cycle.engine import Engine


class Injected(Exception):
    """An error that no code would raise."""


WORK: tuple[tuple[str, str], ...] = (
    ("ledger", "bind hold unbind drop_node set_node"),
    ("ledger.stock", "put"),
    ("holds", "put drop"),
    ("waking", "refused _requeue"),
    ("observer", "pod node"),
    ("tenancy", "see moved join node refused admits"),
    ("tenancy.queues", "see promise"),
    ("gangs.observer", "see declare forget"),
    ("gangs.controller", "_settle recheck tick stand_by"),
    ("gangs.starts", "take"),
    ("gangs.members", "leave wake seat post"),
    ("gangs.replacements", "keep refill trim drop"),
    ("gangs.planner", "advance want unwant asked"),
    ("gangs.assignments", "hold learn"),
    ("gangs.roster", "say agree"),
    ("gangs.reporter", "tell report"),
    ("barrier", "filter bind prepare bind_done"),
    ("booking", "choose book place release"),
    ("offers", "of"),
    ("indexes", "of prepare work learn"),
    ("reservations", "see _review lend _book _reread"),
    ("activator", "_look_at"),
    ("running_pods", "see"),
    ("runtimes", "see"),
    ("gates", "see opening repeat"),
    ("classes", "see"),
    ("pending_reasons", "report"),
    ("presence", "seen"),
    ("preemption", "search _take _choose"),
    ("preemption._units", "_unit"),
    ("preemption._candidates", "_gang _pod _may_preempt"),
    ("backfill", "_put _reservation"),
    ("backfill.heads", "wanted of_gang _is_short"),
    ("elastic._growth", "_act _missing"),
    ("elastic._leaving", "_leave"),
)
"""Components of the engine, and their methods that fail."""


class Faults:
    """Raises in an engine as long as it is on."""

    def __init__(self, engine: Engine, draw: random.Random, rate: float) -> None:
        self.on, self._draw, self._rate = True, draw, rate
        self.raised: Counter[str] = Counter()
        for event, listeners in engine._listeners.of.items():
            engine._listeners.of[event] = tuple(self._wrap(event.__name__, each) for each in listeners)
        upkeep = engine._upkeep
        upkeep._ticks = tuple((place, self._wrap(place, work)) for place, work in upkeep._ticks)
        upkeep._slices = deque((place, guard, self._wrap(place, work)) for place, guard, work in upkeep._slices)
        for path, methods in WORK:
            part: Any = engine._components
            for name in path.split("."):
                part = getattr(part, name)
            for method in methods.split():
                setattr(part, method, self._wrap(f"{path}.{method}", getattr(part, method)))

    def _wrap(self, where: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, which sometimes fails: before it has done anything, or after all of it."""

        def maybe(*args: Any, **kwargs: Any) -> Any:
            if not self.on or self._draw.random() >= self._rate:
                return work(*args, **kwargs)
            self.raised[where] += 1
            if self._draw.random() < 0.5:
                work(*args, **kwargs)
            raise Injected(where)

        return maybe

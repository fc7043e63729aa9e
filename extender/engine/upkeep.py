"""What is done as time passes: at each tick of the clock, and in slices between two events."""

from __future__ import annotations

from extender.engine.lifecycle import Lifecycle
from extender.engine.parts import Parts

WARM_NODES = 200
"""Nodes looked at per tick for shapes that will be asked soon."""
COUNTED_NODES = 200
"""Nodes whose free GPUs are counted per tick."""


class Upkeep:
    """Has each part go on."""

    def __init__(self, parts: Parts, pods: Lifecycle) -> None:
        self._parts, self._pods = parts, pods

    def tick(self, now: float) -> None:
        """Time has passed."""
        parts, ledger = self._parts, self._parts.ledger
        parts.holds.expire(now)
        parts.gates.seek(WARM_NODES)
        parts.tenancy.tick()
        parts.gangs.tick(now)  # before pods that go singly are woken: some of them stand behind gangs
        self._wake(now)
        parts.indexes.scorer.look()
        parts.indexes.work(WARM_NODES)
        parts.preemption.tick(now)
        parts.backfill.tick(now)
        ledger.stock.recount(ledger.takes_pods, COUNTED_NODES)
        parts.effects += [*parts.classes.news(), *parts.tenancy.news(), *parts.elastic.tick(now)]
        self._pods.forget_lost(now)

    def _wake(self, now: float) -> None:
        """Bring those back for whom there is room."""
        parts = self._parts
        fits = parts.waking.due(lambda pod, node, charges: parts.holds.put(pod, node, charges, now), now)
        wakes = [*map(parts.gates.opening, fits), *parts.gates.due(now), *parts.tenancy.due(now)]
        parts.effects += wakes
        parts.counters["wakes", ""] += len(wakes)

    def think(self, now: float) -> bool:
        """Do a slice of planning; returns whether there is more to do. Effects may come of it."""
        parts = self._parts
        learning = parts.indexes.learn(WARM_NODES)
        planning = parts.gangs.work(now)
        searching, effects = parts.preemption.work(now)
        growing, more_effects = parts.elastic.work(now)
        keeping = parts.backfill.work(now)
        parts.effects += [*effects, *more_effects]
        return learning or planning or searching or growing or keeping

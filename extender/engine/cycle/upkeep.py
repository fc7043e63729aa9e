"""What is done as time passes: at each tick of the clock, and in slices between two events.

A component that fails rests for a moment; the others go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from itertools import islice

from extender.engine.cycle.components import Components
from extender.engine.cycle.lifecycle import Lifecycle
from extender.engine.cycle.recovery import Recovery
from extender.engine.queueing.waking import SLICE, RoundRules
from extender.engine.types.events import Tick
from extender.engine.types.shape import Shape

WARM_NODES, FRESH_NODES = 200, 1600
"""Nodes scored in a slice for expected shapes, some 1 ms in all, and in one tick."""
AGED_NODES = 100
"""Nodes rescored per tick after a change of the mix of requests."""
ROOMY_NODES = 64
"""Nodes offered to surplus members when no pending workload goes before them any more."""
COUNTED_NODES = 200
"""Nodes whose free GPUs are counted per tick."""
Work = Callable[[float], bool]
"""A slice of work; returns whether there is more."""


class Upkeep:
    """Runs the steps of a tick, in order, and slices of longer work, in turn: two tables of named steps."""

    def __init__(self, components: Components, pods: Lifecycle, recovery: Recovery) -> None:
        self._components, self._recovery = components, recovery
        self._quarantine = components.quarantine
        self._looks = 0
        """Nodes that may still be scored for the indexes before the next tick."""
        self._ticks: tuple[tuple[str, Callable[[float], object]], ...] = (
            ("holds", components.holds.expire),
            ("gates", lambda _: components.gates.seek(WARM_NODES)),
            ("queues", lambda _: components.tenancy.tick()),
            # before the requeue: some single pods come after gangs in their queue
            ("gangs", components.gangs.rounds.tick),
            ("requeue", self._requeue),
            ("shapes", lambda _: components.indexes.scorer.look()),
            ("index", lambda _: self._index()),
            ("preemption", components.preemption.tick),
            ("backfill", components.backfill.tick),
            ("nominations", components.nominations.tick),
            ("stock", lambda _: components.ledger.stock.recount(components.ledger.takes_pods, COUNTED_NODES)),
            ("classes", lambda _: components.classes.tick()),
            ("status of queues", lambda _: components.tenancy.report()),
            ("elastic", components.elastic.tick),
            ("lost pods", pods.forget_lost),
        )
        slices: tuple[tuple[str, Work], ...] = (
            ("new shapes", lambda _: components.indexes.learn(WARM_NODES)),
            ("queues", lambda _: components.tenancy.work()),
            ("gang plans", self._plan_gangs),
            ("requeue", lambda _: components.waking.work()),
            ("expected shapes", lambda _: components.indexes.ready(WARM_NODES)),
            ("index", lambda _: self._freshen()),
            ("preemption search", components.preemption.work),
            ("scale-out", components.elastic.work),
            ("reservations of backfill", components.backfill.work),
        )
        self._slices = deque((place, self._quarantine.part(place), work) for place, work in slices)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """One tick, a part for each step."""
        places = [place for place, _ in self._ticks]
        return tuple(Tick(place, last=place == places[-1]) for place in places)

    def tick(self, part: str, now: float) -> None:
        """Do one step of a tick, or all steps if `part` is ""."""
        if part in ("", self._ticks[0][0]):
            self._recovery.retry(now)
        for place, work in self._ticks:
            if part in ("", place) and not self._quarantine.rests(place):
                with self._quarantine.part(place):
                    work(now)

    def _index(self) -> None:
        """Score nodes for expected shapes, so that their filters need not."""
        self._components.indexes.renew(AGED_NODES)
        self._looks = FRESH_NODES
        self._freshen()

    def _freshen(self) -> bool:
        if self._looks <= 0:
            return False
        behind = self._components.indexes.work(WARM_NODES) <= 0
        self._looks = self._looks - WARM_NODES if behind else 0
        return self._looks > 0

    def _requeue(self, now: float) -> None:
        """Requeue pods that fit now, and repeat requeues that may have been lost."""
        components = self._components
        rules = RoundRules(
            hold=components.holds.put,
            first=components.backfill.pods,
            defers=components.surplus_policy.waits,
            room=self._room,
            open_to=components.backfill.open_to,
        )
        components.waking.begin(rules, now)
        components.waking.work()
        components.gates.repeat(now)
        components.tenancy.requeue(now)

    def _room(self, shape: Shape) -> Generator[int, None, list[str]]:
        """The best nodes with capacity for this shape."""
        while self._components.indexes.prepare(shape, WARM_NODES):
            yield SLICE
        return [name for name, _ in islice(self._components.indexes.of(shape).ranked(), ROOMY_NODES)]

    def run_slice(self, now: float) -> bool:
        """Do the next slice of longer work; returns whether there is more. Effects may come of it."""
        self._quarantine.now, more = now, False
        for _ in range(len(self._slices)):
            place, guard, work = self._slices[0]
            self._slices.rotate(-1)
            if not self._quarantine.rests(place):
                with guard:
                    more = work(now)
            if more:
                return True
        return False

    def _plan_gangs(self, now: float) -> bool:
        """Do a part of the round of gangs, and a slice of the current plan."""
        gangs, nominations = self._components.gangs, self._components.nominations
        if nominations and (first := gangs.planner.turns.first()) is not None:
            nominations.yield_to(self._components.order.of_gang(first))
        more = gangs.rounds.work(now)
        return gangs.starts.plan(now, self._components.backfill.before_gang) or more

"""A naive world for gangs: what is bound where, a kube-scheduler that comes only when it would, controllers, kubelets.

It keeps the truth, carries out what the engine wants done, and says when something that was promised of gangs is
broken. In the end it stands still: then whoever fits is placed.
"""

from __future__ import annotations

import random
from typing import Any

from extender.engine.cycle.engine import Engine
from extender.engine.planning.plan import Placement, Plan
from gangfilter.gang import STARTED
from gangfilter.table import Phase
from protos.contract import choose
from protos.contract.objects import Pod
from tests.property import gang_promises
from tests.property.gang_events import GangEvents
from tests.property.gang_truth import NODES
from tests.property.shown import Shown
from tests.unit.engine.gang_story import WALL

LEAP_S = 600.0
"""Seconds that pass unseen while nothing goes on but that room is kept."""


class GangWorld(GangEvents):
    """The truth, what the engine makes of it, and how it ends."""

    def __init__(self, draw: random.Random) -> None:
        self.shown = Shown()
        super().__init__(draw)

    def check(self) -> None:
        """All that must hold at any time."""
        gang_promises.check(self)
        self.shown.look(self.engine)

    def replay_says_the_same(self) -> None:
        """Of what is bound a new process has the same books."""
        if self.flying:
            return
        running, self.engine = self.engine, Engine(self.settings, started=self.now, wall=WALL)
        for event in self.listed():
            self.engine.step(event, self.now)
        fresh, self.engine = self.engine, running
        for name, pod in self.pods.items():
            if pod.spec.node_name and pod.status.phase == "Pending":
                assert _booking(fresh, pod) == _booking(running, pod), name

    # -- liveness

    def stands_still(self) -> None:
        """Only events that must happen still happen: then each workload that fits is placed."""
        self.closed.clear()
        for node in sorted(set(NODES) - set(self.nodes)):
            self.node_comes(node)
        if not self.leads:
            self.lead(True)
        self.everybody_is_asked_again()
        quiet = 0
        for _ in range(600):
            quiet = quiet + 1 if self.is_quiet() else 0
            for name in sorted(self.offers):
                self.goes_to_bind(name)
            for name in sorted(self.coming):
                self.take(name)
            for name in sorted(self.flying):
                self.binding_ends(name, happened=True)
            for name in sorted(self.to_go):
                self.eviction_happens(name)
            for _ in range(len(self.missing)):
                self.controller_acts()
            if quiet > 2:
                break
            self.now += LEAP_S if self.is_at_rest() and self.somebody_is_kept_off() else 0.0
            self.passes_time(2.0)
            self.check()
        assert quiet, "there is always something going on"
        for name in self.waiting():
            assert not self.could_start(name), f"{name} waits although it could start"

    def is_quiet(self) -> bool:
        return self.is_at_rest() and not self.somebody_is_kept_off()

    def is_at_rest(self) -> bool:
        """Nothing is in progress; only backfill reservations may be left."""
        phases = {known.gang.phase for known in self.engine.gangs.roster.known.values()}
        restless = phases & {Phase.STARTING, Phase.BINDING, Phase.UNDOING}
        again = any(
            known.gang.phase is Phase.WAITING and (known.reason is None or known.reason.code == "GangAgain")
            for known in self.engine.gangs.roster.known.values()
        )
        soft = any(pod.state == "held" for pod in self.engine.pods.values())
        busy = self.coming or self.offers or self.flying or self.to_go or self.missing or self.held
        paused = any(
            not k.gang.may_plan(self.now)
            for k in self.engine.gangs.roster.known.values()
            if k.gang.phase is Phase.WAITING
        )
        plans = bool(self.engine.gangs.planner.turns)
        return not (self.engine.ledger.keepers or restless or again or soft or busy or paused or plans)

    def somebody_is_kept_off(self) -> bool:
        """There are backfill reservations; one whose workload does not come ends after a while."""
        gangs = any(self.engine.backfill.of(f"gang {key}") for key in self.engine.gangs.roster.known)
        return gangs or any(self.engine.backfill.pods())

    def could_start(self, name: str) -> bool:
        """Whether the pod could be placed: with the minimum of its gang, or alone where that has started."""
        gang = self.gang_of(name)
        if not gang:
            return self.fits(name)
        sort, found = self.sorts[gang], self.gang(gang)
        if found.phase in (Phase.COMPLETED, Phase.FAILED):
            return False
        if found.phase in STARTED:
            return self.fits(name)
        idle = [n for n in self.of_gang(gang) if not self.pods[n].spec.node_name]
        done = self.done_in(gang) if sort.owner else 0
        if done >= sort.least:
            return self.fits(name)
        return len(idle) + done >= sort.least and self.has_a_plan(gang)

    def fits(self, name: str) -> bool:
        ask = self.engine.pods[self.pods[name].metadata.uid].ask
        return any(
            self.free_cpus(node) > 0
            and (ask is None or ((books := self.engine.nodes[node].books) is not None and choose.choose(ask, books)))
            for node in self.nodes
        )

    def has_a_plan(self, gang: str) -> bool:
        """Whether the planner places the gang in a new plan, with every node open to every member."""
        planner, ledger = self.engine.gangs.planner, self.engine.ledger
        left_out, ledger.excluded = ledger.excluded, {}
        plan = Plan(planner.view, *planner.asked(self.gang(gang)))
        while not plan.advance():
            pass
        ledger.excluded = left_out
        return isinstance(plan.outcome, Placement)


def _booking(engine: Engine, pod: Pod) -> tuple[Any, ...]:
    state = engine.pods[pod.metadata.uid]
    books = engine.nodes[state.node].books
    entry = books.entries.get(pod.metadata.uid) if books is not None else None
    return state.state, state.node, dict(entry.charges) if entry else None

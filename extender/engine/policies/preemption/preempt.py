"""Preemption: pods and gangs that wait take the room of others of lower priority.

Those are looked for whose refusal was told: gangs that do not fit, and single pods for which kube-scheduler has found
no node. For one of them at a time it is searched who has to go; a search that found nobody is not repeated before
something has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import islice

from extender.engine.planning.attempt import STEP
from extender.engine.planning.solver import Wanted
from extender.engine.planning.what_if import WhatIfNodes
from extender.engine.policies.context import PolicyContext
from extender.engine.policies.elastic.elastic import Elastic
from extender.engine.policies.preemption.attempt import AttemptContext, PreemptionAttempt, Preemptor
from extender.engine.policies.preemption.budgets import Register
from extender.engine.policies.preemption.candidates import Backoff, Candidates, Chosen, How, Key, Moment
from extender.engine.policies.preemption.reclaim import ReclaimPolicy
from extender.engine.policies.preemption.units import MayTake, Unit, Units
from extender.engine.policies.preemption.victims import COMING, NoSolution, Search, Victims
from extender.engine.types import refusals
from extender.engine.types.effects import Effect, Report
from extender.engine.types.events import Event, PodGone, PodSeen, Tick
from extender.engine.types.sliced import Sliced
from extender.engine.types.subject import Subject, of_gang, of_pod
from gangfilter.group import GroupKey

LOOK_S, PER_LOOK = 0.1, 2000
"""Seconds between looks for somebody who waits, and one more for each so many who do."""
ENDS: dict[str, How] = {"done": "done", "lapsed": "lapsed"}
"""What the ends of one are for the next; all others are in vain."""


class Preemption:
    """All that is looked for and under way."""

    def __init__(self, context: PolicyContext, elastic: Elastic) -> None:
        self._context = context
        self._gangs, self._running_pods = context.gangs, context.running_pods
        self._candidates = Candidates(context)
        self.budgets = Register()
        self._parts = AttemptContext(context, elastic, self.budgets)
        self._units = Units(context, elastic.spared)
        self._under_way: dict[str, tuple[Key, PreemptionAttempt]] = {}
        """By who takes."""
        self._choice: Sliced[Chosen | None] | None = None
        """Who comes first, while that is being found out."""
        self._search: tuple[Key, Preemptor, Search] | None = None
        self._said: Iterator[Effect] = iter(())
        """What is still to be done to begin with the last one."""
        self._look_at = 0.0
        self._led_at: float | None = None
        """Since when this process may write."""
        self._on = context.settings.preemption and context.settings.reservation_ttl_s > 0

    def lead(self, yes: bool) -> None:
        """Whether this process may write; who begins anew plans what another has left undone."""
        if not yes:
            self._under_way.clear()
            if self._search is not None:
                self._search[2].drop()
            self._choice, self._search, self._said = None, None, iter(())

    # -- what is under way

    def look(self, event: Event, now: float) -> list[Effect]:
        """Go on with what is under way, as far as this event matters to it."""
        uid = None
        match event:
            case PodSeen(pod):
                uid = pod.metadata.uid
            case PodGone(gone):
                uid = gone
            case Tick(last=True):
                uid = ""
        if uid is None or not self._under_way:
            return []
        return self._each(lambda taking: not uid or taking.concerns(uid), lambda taking: taking.look(now, uid), now)

    def refused(self, uid: str, why: str, now: float) -> list[Effect]:
        """A pod was not let go."""
        return self._each(lambda taking: taking.asked(uid), lambda taking: taking.refused(uid, why, now), now)

    def _each(
        self,
        concerned: Callable[[PreemptionAttempt], bool],
        step: Callable[[PreemptionAttempt], Iterator[Effect]],
        now: float,
    ) -> list[Effect]:
        """Go on with those concerned; one that fails is under way no more: what it has kept runs out."""
        effects: list[Effect] = []
        for key, taking in list(self._under_way.values()):
            if concerned(taking):
                whole = False
                with self._context.quarantine.over(_subject(key, taking.by), "preemption"):
                    effects += step(taking)
                    if taking.ended:
                        del self._under_way[taking.by.who]
                        self._rest(key, now, ENDS.get(taking.ended, "vain"))
                    whole = True
                if not whole:
                    self._under_way.pop(taking.by.who, None)
        return effects

    # -- who waits

    def tick(self, now: float) -> None:
        """Begin to search for whoever comes first, if anybody waits."""
        if not self._on or not self._gangs.rounds.leading:
            self._led_at = None
            return
        self._led_at = now if self._led_at is None else self._led_at
        if self._search is None and self._choice is None and now >= self._look_at:
            settled = now >= self._led_at + self._context.settings.patience.gang_bind_timeout_s
            first = self._candidates.first(now, self._moment, self._under_way, replayed=settled)
            self._choice = Sliced(first)

    @property
    def _moment(self) -> Moment:
        queues = self._context.tenancy.queues
        return (
            self._context.ledger.freed,
            self._running_pods.turn,
            self.budgets.turn,
            queues.epoch + queues.revalued,
            queues.dues,
        )

    def _choose(self, choice: Sliced[Chosen | None], now: float) -> None:
        """Go on finding out who comes first; then the search begins."""
        self._choice = None  # unless it goes on
        if not choice.advance():
            self._choice = choice
            return
        self._look_at = now + LOOK_S + self._candidates.seen / PER_LOOK
        if choice.outcome is not None:
            key, by, wanted = choice.outcome
            self._search = key, by, self._searching(by, wanted, now)

    # -- searches

    def _searching(self, by: Preemptor, wanted: Wanted, now: float) -> Search:
        void = self._context.reservations.keepers(by.pods)
        going = frozenset(uid for _, taking in self._under_way.values() for uid in taking.victims)
        going |= frozenset(self._gangs.evictions.leaving())

        def draw() -> WhatIfNodes:
            claims = self._context.reservations.claims(by.pods)
            claims += [claim for _, taking in self._under_way.values() for claim in taking.claims()]
            return WhatIfNodes(self._context.ledger, [*self._running_pods.leaving, *going], void, claims)

        def entitle() -> ReclaimPolicy:
            gone = dict.fromkeys([*self._running_pods.leaving, *going])
            coming = dict.fromkeys(self._context.reservations.preempting())
            coming |= {u: None for _, it in self._under_way.values() for u, pod in it.by.pods.items() if not pod.node}
            others = [uid for uid in coming if uid not in by.pods]
            queues, quota = self._context.tenancy.queues, self._context.tenancy.admission.quota
            return ReclaimPolicy(queues, quota, list(by.pods), by.priority, going=gone, coming=others)

        def candidates(may_take: MayTake) -> Generator[int, None, list[Unit]]:
            def free(unit: Unit) -> bool:
                return may_take(unit) and not any(victim.uid in going for victim in unit.victims)

            return self._units.found(now, free, self._context.settings.min_runtime_s)

        def forbidden(chosen: Sequence[Unit], units: Sequence[Unit]) -> Generator[int, None, Mapping[str, str]]:
            others = (victim for _, taking in self._under_way.values() for victim in taking.going)
            return self.budgets.forbidden(chosen, units, others)

        return Search(self._gangs.planner.view, draw, wanted, candidates, entitle, forbidden)

    def work(self, now: float) -> tuple[bool, Sequence[Effect]]:
        """Do a slice of searching; returns whether there is more to do, and what is to be done."""
        effects = list(islice(self._said, STEP))
        if not effects and self._choice is not None:
            self._choose(self._choice, now)
        elif not effects and self._search is not None:
            (key, by, search), self._search = self._search, None  # unless it goes on
            with self._context.quarantine.over(_subject(key, by), "preemption search"):
                if not search.advance():
                    self._search = key, by, search
                elif search.outcome is not None:
                    self._look_at = now
                    self._said = self._take(key, by, search.outcome, now)
                    self.tick(now)
        return bool(effects or self._choice or self._search), effects

    def _take(self, key: Key, by: Preemptor, outcome: Victims | NoSolution, now: float) -> Iterator[Effect]:
        if any(uid not in self._running_pods.pending or pod.state != "waiting" for uid, pod in by.pods.items()):
            self._rest(key, now, "vain")
            return
        if isinstance(outcome, NoSolution):
            rest = self._rest(key, now, "coming" if outcome is COMING else "vain")
            if outcome.why and outcome.why != rest.told:
                rest.told = outcome.why
                who = next(iter(by.pods.values())).ref
                told = refusals.preemption_postponed if outcome.postponed else refusals.preemption_forbidden
                yield Report(who, told(by.who, outcome.why), warning=not outcome.postponed)
            return
        taking = PreemptionAttempt(self._parts, by, outcome.units, outcome.assignments, now)
        self._under_way[by.who] = key, taking
        self._context.counters["preemptions", "planned"] += 1
        yield from taking.begin()

    def _rest(self, key: Key, now: float, how: How) -> Backoff:
        return self._candidates.rest(key, now, self._moment, self._context.settings.min_runtime_s, how)


def _subject(key: Key, by: Preemptor) -> Subject:
    """Whom work for this one is done for: its gang, or its pod."""
    return of_gang(key) if isinstance(key, GroupKey) else of_pod(next(iter(by.pods)))

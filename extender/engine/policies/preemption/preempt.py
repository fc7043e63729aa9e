"""Preemption: pending pods and gangs take the room of others of lower priority.

Candidates are gangs that were found not to fit, and single pods for which kube-scheduler found no node. One search at a
time looks for victims. A search without result is not repeated before something has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from extender.engine.planning.attempt import STEP, ClusterView
from extender.engine.planning.solver import Wanted
from extender.engine.planning.what_if import Claim, WhatIfNodes
from extender.engine.policies.context import PolicyContext
from extender.engine.policies.elastic.elastic import Elastic
from extender.engine.policies.preemption.attempt import PreemptionAttempt, Preemptor
from extender.engine.policies.preemption.budgets import Register
from extender.engine.policies.preemption.candidates import Backoff, Candidates, Chosen, How, Key, Moment
from extender.engine.policies.preemption.reclaim import ReclaimPolicy
from extender.engine.policies.preemption.units import MayTake, Unit, Units
from extender.engine.policies.preemption.victims import COMING, NoSolution, Search, Victims
from extender.engine.queueing.queues import Queues
from extender.engine.queueing.quota import Quota
from extender.engine.types import refusals
from extender.engine.types.effects import Effect, Report
from extender.engine.types.events import Event, PodGone, PodSeen, Tick
from extender.engine.types.sliced import Sliced
from extender.engine.types.subject import Subject, of_gang, of_pod
from gangfilter.group import GroupKey

LOOK_S, PER_LOOK = 0.1, 2000
"""Seconds between choices of a candidate, and one more for each so many pending workloads."""
ENDS: dict[str, How] = {"done": "done", "lapsed": "lapsed"}
"""What the end of an attempt means for the next one; all other ends are in vain."""


class Preemption:
    """The search under way, and all preemptions under way."""

    def __init__(self, context: PolicyContext, elastic: Elastic) -> None:
        self._context, self._elastic = context, elastic
        self._gangs, self._running_pods = context.gangs, context.running_pods
        self._candidates = Candidates(context, elastic)
        self.budgets = Register()
        self._units = Units(context, elastic)
        self._attempts: dict[str, tuple[Key, PreemptionAttempt]] = {}
        """Preemptions under way, by preemptor."""
        self._choice: Sliced[Chosen | None] | None = None
        """The choice of the next candidate, while it goes on."""
        self._search: tuple[Key, Preemptor, Search] | None = None
        self._beginning: Iterator[Effect] = iter(())
        """Effects that are still to be taken to begin with the last preemption."""
        self._look_at = 0.0
        self._led_at: float | None = None
        """Since when this process leads."""
        self._on = context.settings.preemption and context.settings.reservation_ttl_s > 0

    def lead(self, yes: bool) -> None:
        """Whether this process leads; a new leader plans what another has left undone."""
        if not yes:
            self._attempts.clear()
            if self._search is not None:
                self._search[2].drop()
            self._choice, self._search, self._beginning = None, None, iter(())

    # -- preemptions under way

    def look(self, event: Event, now: float) -> None:
        """Advance the preemptions that this event concerns."""
        uid = None
        match event:
            case PodSeen(pod):
                uid = pod.metadata.uid
            case PodGone(gone):
                uid = gone
            case Tick(last=True):
                uid = ""
        if uid is not None and self._attempts:
            self._each(lambda attempt: not uid or attempt.concerns(uid), lambda attempt: attempt.look(now, uid), now)

    def refused(self, uid: str, why: str, now: float) -> None:
        """The API server refused to evict a pod."""
        self._each(lambda attempt: attempt.asked(uid), lambda attempt: attempt.refused(uid, why, now), now)

    def _each(
        self,
        concerned: Callable[[PreemptionAttempt], bool],
        step: Callable[[PreemptionAttempt], Iterator[Effect]],
        now: float,
    ) -> None:
        """Advance the attempts concerned. An attempt that fails is dropped; its reservations expire."""
        for key, attempt in list(self._attempts.values()):
            if concerned(attempt):
                with self._context.quarantine.over(_subject(key, attempt.by), "preemption"):
                    self._context.outbox.extend(step(attempt))
                    if attempt.ended:
                        del self._attempts[attempt.by.who]
                        self._rest(key, now, ENDS.get(attempt.ended, "vain"))
                    continue
                self._attempts.pop(attempt.by.who, None)  # it failed

    # -- candidates

    def tick(self, now: float) -> None:
        """Begin to choose a candidate, if it is time."""
        if not self._on or not self._gangs.rounds.leading:
            self._led_at = None
            return
        self._led_at = now if self._led_at is None else self._led_at
        if self._search is None and self._choice is None and now >= self._look_at:
            settled = now >= self._led_at + self._context.settings.patience.gang_bind_timeout_s
            self._choice = Sliced(self._candidates.first(now, self._moment, self._attempts, replayed=settled))

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
        self._choice = None  # unless it goes on
        if not choice.advance():
            self._choice = choice
            return
        self._look_at = now + LOOK_S + self._candidates.seen / PER_LOOK
        if choice.outcome is not None:
            key, by, wanted = choice.outcome
            queues = self._context.tenancy.queues
            self._search = key, by, self.search(by, wanted, now, self._gangs.planner.view, queues)

    # -- searches

    @property
    def on(self) -> bool:
        """Whether any pod is ever evicted for others."""
        return self._on

    def search(
        self,
        by: Preemptor,
        wanted: Wanted,
        now: float,
        view: ClusterView,
        queues: Queues,
        taken: Sequence[Claim] = (),
        gone: Iterable[str] = (),
    ) -> Search:
        """A search for victims. `queues` count the preemptor.

        `taken`: room that others get before it, for which pods in `gone` (UIDs) are evicted.
        """
        void = self._context.reservations.keepers(by.pods)
        going = frozenset(victim.uid for _, attempt in self._attempts.values() for victim in attempt.going)
        going |= frozenset(self._gangs.members.evicting()).union(gone)

        def draw() -> WhatIfNodes:
            claims = self._context.reservations.claims(by.pods)
            claims += [*taken, *(claim for _, attempt in self._attempts.values() for claim in attempt.claims())]
            return WhatIfNodes(self._context.ledger, [*self._running_pods.leaving, *going], void, claims)

        def entitle() -> ReclaimPolicy:
            gone = dict.fromkeys([*self._running_pods.leaving, *going])
            coming = dict.fromkeys(self._context.reservations.preempting())
            coming |= {
                u: None for _, each in self._attempts.values() for u, pod in each.by.pods.items() if not pod.node
            }
            others = [uid for uid in coming if uid not in by.pods]
            return ReclaimPolicy(queues, Quota(queues), list(by.pods), by.priority, going=gone, coming=others)

        def candidates(may_take: MayTake) -> Generator[int, None, list[Unit]]:
            def free(unit: Unit) -> bool:
                return may_take(unit) and not any(victim.uid in going for victim in unit.victims)

            return self._units.found(now, free, self._context.settings.min_runtime_s)

        def forbidden(chosen: Sequence[Unit], units: Sequence[Unit]) -> Generator[int, None, Mapping[str, str]]:
            others = (victim for _, attempt in self._attempts.values() for victim in attempt.going)
            return self.budgets.forbidden(chosen, units, others)

        return Search(view, draw, wanted, candidates, entitle, forbidden)

    def work(self, now: float) -> bool:
        """Do a slice of searching; return whether there is more to do."""
        effects = list(islice(self._beginning, STEP))
        if not effects and self._choice is not None:
            self._choose(self._choice, now)
        elif not effects and self._search is not None:
            (key, by, search), self._search = self._search, None  # unless it goes on
            with self._context.quarantine.over(_subject(key, by), "preemption search"):
                if not search.advance():
                    self._search = key, by, search
                elif search.outcome is not None:
                    self._look_at = now
                    self._beginning = self._take(key, by, search.outcome, now)
                    self.tick(now)
        self._context.outbox.extend(effects)
        return bool(effects or self._choice or self._search)

    def _take(self, key: Key, by: Preemptor, outcome: Victims | NoSolution, now: float) -> Iterator[Effect]:
        if any(uid not in self._running_pods.pending or pod.state != "waiting" for uid, pod in by.pods.items()):
            self._rest(key, now, "vain")
            return
        if isinstance(outcome, NoSolution):
            rest = self._rest(key, now, "coming" if outcome is COMING else "vain")
            if outcome.why and outcome.why != rest.told:
                rest.told = outcome.why
                who = next(iter(by.pods.values())).ref
                about = refusals.preemption_postponed if outcome.postponed else refusals.preemption_forbidden
                yield Report(who, about(by.who, outcome.why), warning=not outcome.postponed)
            return
        units, assignments = outcome.units, outcome.assignments
        attempt = PreemptionAttempt(self._context, self._elastic, self.budgets, by, units, assignments, now)
        self._attempts[by.who] = key, attempt
        self._context.counters["preemptions", "planned"] += 1
        yield from attempt.begin()

    def _rest(self, key: Key, now: float, how: How) -> Backoff:
        return self._candidates.rest(key, now, self._moment, self._context.settings.min_runtime_s, how)


def _subject(key: Key, by: Preemptor) -> Subject:
    """The gang or pod that work for this preemptor is done for."""
    return of_gang(key) if isinstance(key, GroupKey) else of_pod(next(iter(by.pods)))

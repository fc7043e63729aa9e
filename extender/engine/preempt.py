"""Preemption: pods and gangs that wait take the room of others of lower priority.

Those are looked for whose refusal was told: gangs that do not fit, and single pods for which kube-scheduler has found
no node. For one of them at a time it is searched who has to go; a search that found nobody is not repeated before
something has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from extender.engine import refusals
from extender.engine.attempt import STEP
from extender.engine.budgets import Register
from extender.engine.cleared import Cleared
from extender.engine.effects import Effect, Report
from extender.engine.gangs import Gangs
from extender.engine.intree import Amounts, counted, lacking
from extender.engine.ledger import Ledger, PodState
from extender.engine.occupants import Occupants
from extender.engine.reservations import Reservations
from extender.engine.roster import Known
from extender.engine.seats import Likeness, Seat
from extender.engine.settings import Settings
from extender.engine.taking import Context, Preemptor, Taking
from extender.engine.tenants import Tenants
from extender.engine.units import Unit, Units
from extender.engine.victims import COMING, Prey, Search, Vain, Wanted
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract.reason import Reason

LOOK_S = 0.5
"""Seconds between looks for somebody who waits."""
PAUSE_S, PAUSE_MOST_S = 1.0, 60.0
"""Seconds after a search, or a preemption that came to nothing, until the next for the same; doubled each time."""
RESTS = 4096
"""Of so many it is known at most when it is worth looking again."""
Key = GroupKey | tuple[Likeness, int]
"""A gang, or all single pods that are alike and of one priority."""


class Rest(msgspec.Struct):
    """When it is worth looking again for somebody."""

    pause: float = PAUSE_S
    again_at: float = 0.0
    sure_at: float = 0.0
    """From then on, whatever has changed: those who had only just started have run long enough."""
    turn: tuple[int, int, int] = (-1, -1, -1)
    """What the cluster was like."""
    told: str = ""
    """What forbids it, as it was told last."""


class Preemption:
    """All that is looked for and under way."""

    def __init__(
        self,
        ledger: Ledger,
        gangs: Gangs,
        occupants: Occupants,
        tenants: Tenants,
        reservations: Reservations,
        settings: Settings,
        counters: Counter[tuple[str, str]],
        wall: float,
    ) -> None:
        self._ledger, self._gangs, self._occupants = ledger, gangs, occupants
        self._tenants, self._reservations, self._settings = tenants, reservations, settings
        self._context = Context(gangs, occupants, reservations, counters, wall)
        self._units = Units(ledger, gangs, occupants)
        self.budgets = Register()
        self._under_way: dict[str, tuple[Key, Taking]] = {}
        """By who takes."""
        self._search: tuple[Key, Preemptor, Search] | None = None
        self._said: Iterator[Effect] = iter(())
        """What is still to be done to begin with the last one."""
        self._rests: dict[Key, Rest] = {}
        self._looked_at = 0.0
        self._led_at: float | None = None
        """Since when this process may write."""
        self._on = settings.preemption and settings.keep_s > 0

    def lead(self, yes: bool) -> None:
        """Whether this process may write; who begins anew plans what another has left undone."""
        if not yes:
            self._under_way.clear()
            self._search, self._said = None, iter(())

    # -- what is under way

    def look(self, now: float) -> list[Effect]:
        """Go on with what is under way."""
        effects: list[Effect] = []
        for key, taking in list(self._under_way.values()):
            effects += taking.look(now)
            self._settle(key, taking, now)
        return effects

    def refused(self, uid: str, why: str, now: float) -> list[Effect]:
        """A pod was not let go."""
        effects: list[Effect] = []
        for key, taking in list(self._under_way.values()):
            if taking.asked(uid):
                effects += taking.refused(uid, why, now)
                self._settle(key, taking, now)
        return effects

    def _settle(self, key: Key, taking: Taking, now: float) -> None:
        if taking.ended:
            del self._under_way[taking.by.who]
            self._rest(key, now, longer=taking.ended != "done")

    # -- who waits

    def tick(self, now: float) -> None:
        """Begin to search for whoever comes first, if anybody waits."""
        if not self._on or not self._gangs.leading:
            self._led_at = None
            return
        self._led_at = now if self._led_at is None else self._led_at
        if self._search is not None or now < self._looked_at + LOOK_S:
            return
        self._looked_at = now
        lowest = self._occupants.lowest
        if lowest is not None:
            self._begin(lowest, now)

    def _begin(self, lowest: int, now: float) -> None:
        waiting = [*self._waiting_gangs(lowest, now), *self._waiting_pods(lowest, now)]
        for _, _, key, found in sorted(waiting, key=lambda each: each[:2]):
            asked = self._gang(found, now) if isinstance(found, Known) else self._pod(found)
            if asked is not None:
                by, wanted = asked
                self._search = key, by, self._searching(by, wanted, now)
                return

    def _waiting_gangs(self, lowest: int, now: float) -> Iterator[tuple[int, float, Key, Known | PodState]]:
        for key, known in self._gangs.known.items():
            gang = known.gang
            short = known.reason is not None and known.reason.code == refusals.GANG_NO_ROOM
            if not short or gang.phase is not Phase.WAITING or not gang.may_plan(now):
                continue
            priority = max((member.priority for member in gang.members.values()), default=0)
            if priority > lowest and not self._gangs.starts.wanted(gang) and self._due(key, now):
                yield -priority, gang.born, key, known

    def _waiting_pods(self, lowest: int, now: float) -> Iterator[tuple[int, float, Key, Known | PodState]]:
        seen: set[Key] = set()
        for uid, wish in self._occupants.wishes.items():
            if wish.priority <= lowest or wish.never or not wish.unschedulable:
                continue
            pod = self._ledger.pods.get(uid)
            if pod is None or pod.state != "waiting" or isinstance(pod.asked, Reason) or pod.forged:
                continue
            if self._gangs.of(uid) is not None or str(pod.ref) in self._under_way or not self._open_to((uid,), now):
                continue
            key = self._seat(pod).likeness, wish.priority
            if key not in seen and self._due(key, now):
                seen.add(key)
                yield -wish.priority, pod.since, key, pod

    def _due(self, key: Key, now: float) -> bool:
        """Whether a search is worth it by now."""
        rest = self._rests.get(key)
        return rest is None or (now >= rest.again_at and (rest.turn != self._turn or now >= rest.sure_at))

    @property
    def _turn(self) -> tuple[int, int, int]:
        return self._ledger.freed, self._occupants.turn, self.budgets.turn

    def _gang(self, known: Known, now: float) -> tuple[Preemptor, Wanted] | None:
        gang = known.gang
        _, minimum, free = self._gangs.starts.asked(gang)
        wishes = [self._occupants.wishes.get(seat.uid) for seat in minimum]
        if not minimum or any(wish is None or wish.never for wish in wishes):
            return None
        if f"gang {gang.key}" in self._under_way or not self._open_to((seat.uid for seat in minimum), now):
            return None
        priority = min(wish.priority for wish in wishes if wish is not None)
        by = Preemptor(f"gang {gang.key}", priority, {seat.uid: self._ledger.pods[seat.uid] for seat in minimum})
        return by, Wanted(self._opened(minimum), free)

    def _pod(self, pod: PodState) -> tuple[Preemptor, Wanted]:
        return Preemptor(str(pod.ref), pod.priority, {pod.ref.uid: pod}), Wanted(self._opened([self._seat(pod)]))

    def _seat(self, pod: PodState) -> Seat:
        return Seat(
            uid=pod.ref.uid,
            ask=pod.ask,
            requests=pod.requests,
            constraints=self._tenants.constraints(pod.ref.uid),
            excluded=pod.excluded,
        )

    def _opened(self, seats: Iterable[Seat]) -> tuple[Seat, ...]:
        """The same, kept only off nodes that they are refused for something else than want of what may come free."""
        known: dict[tuple[int, Amounts], int] = {}
        found = []
        for seat in seats:
            key = seat.excluded, seat.requests
            if key not in known:
                known[key] = self._ruled_out(*key) if seat.excluded else 0
            found.append(msgspec.structs.replace(seat, excluded=known[key]))
        return tuple(found)

    def _ruled_out(self, excluded: int, requests: Amounts) -> int:
        for node in self._ledger.nodes.values():
            ignored = self._gangs.starts.fleet.ignored if node.books is not None else ()
            if excluded >> node.number & 1 and lacking(counted(requests, ignored), node.allocatable, node.used):
                excluded &= ~(1 << node.number)
        return excluded

    def _open_to(self, uids: Iterable[str], now: float) -> bool:
        """Whether no room is kept for these, or such as another process did not finish making.

        What that has left of gangs is sorted out first.
        """
        kept = [found for uid in uids if (found := self._reservations.of(uid)) is not None]
        ours = all(found.told is not None and found.told.preempting for found in kept)
        settled = self._led_at is not None and now >= self._led_at + self._settings.patience.whole_s
        return not kept or (ours and settled and not all(found.complete for found in kept))

    # -- searches

    def _searching(self, by: Preemptor, wanted: Wanted, now: float) -> Search:
        void = self._reservations.keepers(by.pods)
        going = frozenset(uid for _, taking in self._under_way.values() for uid in taking.victims)
        going |= frozenset(self._gangs.leaving())

        def draw() -> Cleared:
            claims = self._reservations.claims(by.pods)
            claims += [claim for _, taking in self._under_way.values() for claim in taking.claims()]
            return Cleared(self._ledger, [*self._occupants.leaving, *going], void, claims)

        def may_take(unit: Unit) -> bool:
            return unit.priority < by.priority and not any(victim.uid in going for victim in unit.victims)

        return Search(
            self._gangs.starts.fleet,
            draw,
            wanted,
            lambda: self._units.found(now, may_take, self._settings.min_run_s),
            self.budgets.forbidden,
        )

    def work(self, now: float) -> tuple[bool, Sequence[Effect]]:
        """Do a slice of searching; returns whether there is more to do, and what is to be done."""
        effects = list(islice(self._said, STEP))
        if effects or self._search is None:
            return bool(effects or self._search), effects
        key, by, search = self._search
        if not search.advance():
            return True, ()
        self._search, self._looked_at = None, now - LOOK_S
        assert search.outcome is not None
        self._said = self._take(key, by, search.outcome, now)
        effects = list(islice(self._said, STEP))
        self.tick(now)
        return True, effects

    def _take(self, key: Key, by: Preemptor, outcome: Prey | Vain, now: float) -> Iterator[Effect]:
        if any(uid not in self._occupants.wishes or pod.state != "waiting" for uid, pod in by.pods.items()):
            return
        if isinstance(outcome, Vain):
            rest = self._rest(key, now, longer=outcome is not COMING)
            if outcome.why and outcome.why != rest.told:
                rest.told = outcome.why
                who = next(iter(by.pods.values())).ref
                yield Report(who, refusals.preemption_forbidden(by.who, outcome.why))
            return
        taking = Taking(self._context, by, outcome.units, outcome.spots, now)
        self._under_way[by.who] = key, taking
        self._context.counters["preemptions", "planned"] += 1
        yield from taking.begin()

    def _rest(self, key: Key, now: float, *, longer: bool) -> Rest:
        if len(self._rests) >= RESTS:
            self._rests.clear()
        rest = self._rests.setdefault(key, Rest())
        rest.turn, rest.again_at = self._turn, now + rest.pause
        rest.sure_at = now + max(rest.pause, self._settings.min_run_s)
        rest.pause = min(PAUSE_MOST_S, 2 * rest.pause) if longer else PAUSE_S
        return rest

"""One preemption under way: the room is asked for on pods that wait, and only then the others have to go.

Spare workers of elastic jobs go first: their operator is asked to let them go. When that is done, or its time is over,
all others are evicted.

All of it can be told from the cluster: the annotations say for whom which room is kept until when, and who is evicted
is being deleted. So whoever starts anew plans what is left to do, with what is kept already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from extender.engine.policies.context import PolicyContext
from extender.engine.policies.elastic.asking import Asking
from extender.engine.policies.elastic.elastic import Elastic
from extender.engine.policies.preemption.budgets import Register
from extender.engine.policies.preemption.units import Unit, Victim
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment
from extender.engine.types import refusals
from extender.engine.types.effects import Effect, Evict, PodRef, Report, SetAnnotation
from extender.engine.types.sliced import Sliced
from gangfilter.group import GroupKey
from gangfilter.members import Stage
from protos.contract import codec, names, reservation
from protos.contract.reason import listed
from protos.contract.reservation import Reservation, Room

COME_S = 60.0
"""Seconds that somebody has to come for the room, once the last victim has used up its grace."""
SEEN_S = 15.0
"""Seconds until what was written on the pods that wait must have come back to us."""
AT_ONCE = 32
"""Evictions that are asked for and not seen yet: so many more may go than a budget allows, should it change."""
AGAIN_S = 5.0
"""Seconds after which an eviction that is not seen is asked for once more."""
ROOMS, COPIES = 64, 2
"""Rooms asked for by one annotation, and on how many pods each is written: one that goes takes none with it."""
NAMED = 8
"""Units named in an Event; the rest is counted."""


class Preemptor(msgspec.Struct, frozen=True):
    """For whom it is."""

    who: str
    """`default/urgent`, `gang default/train`."""
    priority: int
    pods: Mapping[str, PodState]
    """Those that need a place, by UID."""


class AttemptContext(msgspec.Struct, frozen=True):
    """What all of them work on."""

    policy: PolicyContext
    elastic: Elastic
    budgets: Register


class PreemptionAttempt:
    """One of them. `ended` says how it ended, "" while it goes on."""

    def __init__(
        self,
        of: AttemptContext,
        by: Preemptor,
        units: tuple[Unit, ...],
        assignments: Mapping[str, Assignment],
        now: float,
    ) -> None:
        self._of, self._policy, self.by, self._units = of, of.policy, by, units
        victims = {victim.uid: victim for unit in units for victim in unit.victims}
        self._unit_of = {victim.uid: unit for unit in units for victim in unit.victims}
        grace_s = max((victim.grace_s for victim in victims.values()), default=0.0)
        lent = self._lent(units)
        patience_s = max(grace_s, of.policy.settings.scale_in_timeout_s)
        self._asking = Asking(of.elastic.scalers, lent, patience_s)
        self._until = now + grace_s + COME_S + (patience_s if lent else 0.0)
        self._assignments = assignments
        self._texts: dict[str, str] = {}
        """What is written on some of the pods that wait, by UID."""
        self._begun = now
        self._evicting = self._ordered = False
        """Others have to go; the first of them was told."""
        self._todo = victims
        """Not asked to go yet."""
        self._asked: dict[str, tuple[Victim, float]] = {}
        """Asked to go, when, and not seen to."""
        self._lost = 0.0
        self.ended = ""

    def _lent(self, units: Iterable[Unit]) -> dict[GroupKey, list[PodRef]]:
        """Workers that their operator can let go, by job."""
        found: dict[GroupKey, list[PodRef]] = {}
        for unit in units if self._policy.settings.scale_in_timeout_s else ():
            if unit.spare and unit.gang is not None and self._of.elastic.scalers.serves(unit.gang, "ScaleIn"):
                found.setdefault(unit.gang, []).extend(victim.ref for victim in unit.victims)
        return found

    def _written(self) -> dict[str, str]:
        """What asks for all of the room, by the UIDs of the pods on which it is to stand."""
        until, uids = self._policy.wall.text(self._until), list(self._assignments)
        texts: dict[str, str] = {}
        for number, start in enumerate(range(0, len(uids), ROOMS)):
            rooms = {uid: _room(self._assignments[uid]) for uid in uids[start : start + ROOMS]}
            text = reservation.encode(Reservation(codec.VERSION, rooms, until, preempting=True))
            texts |= dict.fromkeys(uids[COPIES * number : COPIES * (number + 1)], text)
        return texts

    @property
    def victims(self) -> frozenset[str]:
        """UIDs of those that are still to go."""
        return frozenset([*self._todo, *self._asked])

    @property
    def going(self) -> Iterator[Victim]:
        """Those that are still to go."""
        yield from self._todo.values()
        yield from (victim for victim, _ in self._asked.values())

    def claims(self) -> Iterator[tuple[PodState, Assignment]]:
        """Places that are not kept yet, and for whom they are."""
        kept = self._policy.reservations
        return ((self.by.pods[uid], place) for uid, place in self._assignments.items() if kept.of(uid) is None)

    def concerns(self, uid: str) -> bool:
        """Whether this pod waits for the room, or is still to go."""
        return uid in self.by.pods or uid in self._asked or uid in self._todo

    def asked(self, uid: str) -> bool:
        """Whether this pod was asked to go, and is not seen to."""
        return uid in self._asked

    def begin(self) -> Iterator[Effect]:
        """Ask for the room."""
        self._texts = self._written()
        for uid, text in self._texts.items():
            self._policy.reservations.promises.allow(uid, self._until)
            yield SetAnnotation(self.by.pods[uid].ref, names.RESERVATION, text, "")
        first = next(iter(self.by.pods.values()))
        over_quota = "; ".join(sorted({unit.over_quota for unit in self._units if unit.over_quota}))
        units, spare = listed((unit.who for unit in self._units), NAMED), all(unit.spare for unit in self._units)
        yield Report(first.ref, refusals.preempting(self.by.who, units, over_quota, spare=spare), warning=False)

    def look(self, now: float, uid: str = "") -> Iterator[Effect]:
        """Go on as far as it does; `uid`: the pod to which something happened, any of them if that is not known."""
        waiting = [one for one in ([uid] if uid else self.by.pods) if one in self.by.pods]
        if any(self.by.pods[one].state in ("binding", "bound") for one in waiting):
            yield from self._end("done", now)
        elif not all(map(self._waits, waiting)):
            yield from self._end("left", now)
        elif now >= self._until:
            yield from self._end("lapsed", now)
        elif self._evicting and not uid and not self._stands():
            yield from self._end("changed", now)  # a node goes, or is gone
        elif self._evicting:
            yield from self._evict(now)
        elif self._kept(waiting):
            self._evicting = True
            yield from self._ask(now) if all(map(self._whole, self._units)) else self._end("changed", now)
        elif now >= self._begun + SEEN_S:
            yield from self._end("unheard", now)

    def refused(self, uid: str, why: str, now: float) -> Iterator[Effect]:
        """This pod was not let go: nobody else is asked to."""
        self._todo[uid], _ = self._asked.pop(uid)
        yield from self._stop(why, now)

    def _stop(self, why: str, now: float) -> Iterator[Effect]:
        """Budgets forbid it by now."""
        yield Report(next(iter(self.by.pods.values())).ref, refusals.preemption_stopped(self.by.who, why))
        yield from self._end("refused", now)

    def _left(self) -> list[Unit]:
        """The units with those of their victims that do not go yet."""
        left = ((unit, tuple(v for v in unit.victims if not self._goes(v.uid))) for unit in self._units)
        return [msgspec.structs.replace(unit, victims=victims) for unit, victims in left if victims]

    def _waits(self, uid: str) -> bool:
        return uid in self._policy.running_pods.pending

    def _kept(self, uids: Iterable[str]) -> bool:
        """Whether all of the room is kept, as far as it is free; it may be since something happened to these pods."""
        kept = self._policy.reservations
        if not any(uid in self._texts for uid in uids):
            return False
        return self._stands() and all(kept.promises.on(uid) == text for uid, text in self._texts.items())

    def _stands(self) -> bool:
        """Whether all of the room still is where it was found."""
        found = map(self._policy.reservations.of, self._assignments)
        return all(kept is not None and kept.assignment for kept in found)

    def _whole(self, unit: Unit) -> bool:
        """Whether nobody of a gang that has to go would stay."""
        known = self._policy.gangs.roster.known.get(unit.gang) if unit.gang is not None and not unit.spare else None
        uids = {victim.uid for victim in unit.victims}
        return known is None or all(member.uid in uids for member in known.gang.at(Stage.POSTED, Stage.BOUND))

    def _spared(self) -> bool:
        """Whether the gangs still can do without those that were chosen as spare, whoever went meanwhile."""
        chosen: dict[GroupKey, set[str]] = {}
        for unit in self._units:
            if unit.spare and unit.gang is not None:
                chosen.setdefault(unit.gang, set()).update(v.ref.name for v in unit.victims if not self._goes(v.uid))
        known = self._policy.gangs.roster.known
        return all(key not in known or self._of.elastic.spares(known[key].gang, some) for key, some in chosen.items())

    def _ask(self, now: float) -> Iterator[Effect]:
        """Begin with those that their operator can let go."""
        for pods in self._asking.workers.values():
            for pod in pods:
                self._policy.gangs.controller.preempt(pod.uid, now, wholly=False)
                yield Report(pod, refusals.scaling_in(self.by.who, self.by.priority), warning=False)
        yield from self._evict(now)

    def _evict(self, now: float) -> Iterator[Effect]:
        if not self._ordered and not self._spared():
            yield from self._end("changed", now)
            return
        yield from self._asking.look(self._goes, now)
        if not self._asking.over:
            return
        if not self._ordered and (why := self._forbidden()):
            yield from self._stop(why, now)
            return
        self._ordered = True
        for uid, (victim, since) in list(self._asked.items()):
            if self._goes(uid):
                del self._asked[uid]
                self._gone(victim)
            elif now >= since + AGAIN_S:
                yield self._order(victim, now)
        while self._todo and len(self._asked) < AT_ONCE:
            uid, victim = next(iter(self._todo.items()))
            del self._todo[uid]
            if not self._goes(uid):
                self._policy.gangs.controller.preempt(uid, now, wholly=self._unit_of[uid].kind == "gang")
                yield self._order(victim, now)

    def _forbidden(self) -> str:
        """Why budgets do not let all that are left go, "" if they do."""
        check = Sliced(self._of.budgets.forbidden(self._left(), ()))
        while not check.advance():
            pass
        return next(iter((check.outcome or {}).values()), "")

    def _order(self, victim: Victim, now: float) -> Evict:
        self._asked[victim.uid] = victim, now
        unit = self._unit_of[victim.uid]
        if unit.over_quota:
            return Evict(victim.ref, refusals.reclaimed(self.by.who, unit.who, unit.over_quota), insist=False)
        return Evict(victim.ref, refusals.preempted(self.by.who, self.by.priority, unit.who), insist=False)

    def _goes(self, uid: str) -> bool:
        seen = self._policy.running_pods.of(uid)
        return seen is None or seen.leaving

    def _gone(self, victim: Victim) -> None:
        self._lost += victim.lost
        unit = self._unit_of[victim.uid]
        self._policy.counters["preemption_victims", f"{unit.kind}/{unit.by}"] += 1

    def _end(self, how: str, now: float) -> Iterator[Effect]:
        """It is over; who was not asked to go stays, and what is kept in vain is given up."""
        self.ended = how
        for victim, _ in self._asked.values():
            self._gone(victim)
        for unit in self._units:
            if unit.gang is not None and any(victim.uid in self._todo for victim in unit.victims):
                self._policy.gangs.controller.spare(unit.gang, now)
        self._policy.counters["preemptions", how] += 1
        self._policy.counters["preemption_lost_gpu_seconds", ""] += round(self._lost)
        if how in ("refused", "unheard", "changed"):
            for uid in self._texts:
                if uid in self._policy.running_pods.pending:
                    yield SetAnnotation(self.by.pods[uid].ref, names.RESERVATION, None, "")


def _room(assignment: Assignment) -> Room:
    containers = {name: tuple(share.uuid for share in given) for name, given in assignment.shares.items()}
    return Room(assignment.node, containers)

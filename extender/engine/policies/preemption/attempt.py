"""One preemption under way: first the room is reserved for the pending pods, then the victims are evicted.

Spare workers of elastic jobs go first: their operator is asked to remove them. When that is done, or its time is over,
all other victims are evicted.

The cluster holds the whole state: annotations say which room is reserved for which pod until when, and evicted pods are
being deleted. After a restart the extender plans what is left to do, with the room that is reserved already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from extender.engine.policies.context import PolicyContext
from extender.engine.policies.elastic.elastic import Asking, Elastic
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
from protos.contract.reason import Reason, listed
from protos.contract.reservation import Reservation, Room

COME_S = 60.0
"""Seconds for which the room stays reserved after the last victim has used up its grace period."""
SEEN_S = 15.0
"""Seconds until the annotations on the pending pods must have come back from the API server."""
AT_ONCE = 32
"""Most evictions under way. If a budget changes, so many more pods may go than it allows."""
AGAIN_S = 5.0
"""Seconds after which an eviction without effect is repeated."""
ROOMS, COPIES = 64, 2
"""Rooms in one annotation, and pods on which each is written, so that the loss of one pod loses no room."""
NAMED = 8
"""Most units named in an Event; the rest is counted."""


class Preemptor(msgspec.Struct, frozen=True):
    """The pending pod or gang that preempts."""

    who: str
    """`default/urgent`, `gang default/train`."""
    priority: int
    pods: Mapping[str, PodState]
    """Its pods that need a place, by UID."""


class PreemptionAttempt:
    """One preemption. `ended` says how it ended, "" while it goes on.

    No victim is evicted before all room is reserved, and none after the attempt has ended.
    """

    def __init__(
        self,
        context: PolicyContext,
        elastic: Elastic,
        budgets: Register,
        by: Preemptor,
        units: tuple[Unit, ...],
        assignments: Mapping[str, Assignment],
        now: float,
    ) -> None:
        self._context, self._elastic, self._budgets, self.by, self._units = context, elastic, budgets, by, units
        self._unit_of = {victim.uid: unit for unit in units for victim in unit.victims}
        victims = {victim.uid: victim for unit in units for victim in unit.victims}
        grace_s = max((victim.grace_s for victim in victims.values()), default=0.0)
        removable = self._removable()
        patience_s = max(grace_s, self._context.settings.scale_in_timeout_s)
        self._asking = Asking(elastic.scalers, removable, patience_s)
        self._until = now + grace_s + COME_S + (patience_s if removable else 0.0)
        self._assignments = assignments
        self._texts: dict[str, str] = {}
        """The annotation of each pod that carries one, by UID."""
        self._begun = now
        self._evicting = self._ordered = False
        """The room is reserved and victims must go; the first of them was evicted."""
        self._todo = victims
        """Victims that are not evicted yet."""
        self._asked: dict[str, tuple[Victim, float]] = {}
        """Victims whose eviction was requested, and when; until they are seen to go."""
        self._lost = 0.0
        self.ended = ""

    def _removable(self) -> dict[GroupKey, list[PodRef]]:
        """Spare workers that the operator of their job can remove, by job."""
        removable: dict[GroupKey, list[PodRef]] = {}
        for unit in self._units if self._context.settings.scale_in_timeout_s else ():
            if unit.spare and unit.gang is not None and self._elastic.scalers.serves(unit.gang, "ScaleIn"):
                removable.setdefault(unit.gang, []).extend(victim.ref for victim in unit.victims)
        return removable

    @property
    def going(self) -> Iterator[Victim]:
        """The victims that are still to go."""
        yield from self._todo.values()
        yield from (victim for victim, _ in self._asked.values())

    def claims(self) -> Iterator[tuple[PodState, Assignment]]:
        """Assignments that are not reserved yet, with their pods."""
        kept = self._context.reservations
        return ((self.by.pods[uid], place) for uid, place in self._assignments.items() if kept.of(uid) is None)

    def concerns(self, uid: str) -> bool:
        """Whether this pod waits for the room, or is still to go."""
        return uid in self.by.pods or uid in self._asked or uid in self._todo

    def asked(self, uid: str) -> bool:
        """Whether the eviction of this pod was requested, without effect so far."""
        return uid in self._asked

    def begin(self) -> Iterator[Effect]:
        """Reserve the room."""
        until, uids = self._context.wall.text(self._until), list(self._assignments)
        for number, start in enumerate(range(0, len(uids), ROOMS)):
            rooms = {uid: _room(self._assignments[uid]) for uid in uids[start : start + ROOMS]}
            text = reservation.encode(Reservation(codec.VERSION, rooms, until, preempting=True))
            self._texts |= dict.fromkeys(uids[COPIES * number : COPIES * (number + 1)], text)
        for uid, text in self._texts.items():
            self._context.reservations.promises.allow(uid, self._until)
            yield SetAnnotation(self.by.pods[uid].ref, names.RESERVATION, text, "")
        over_quota = "; ".join(sorted({unit.over_quota for unit in self._units if unit.over_quota}))
        units, spare = listed((unit.who for unit in self._units), NAMED), all(unit.spare for unit in self._units)
        yield self._report(refusals.preempting(self.by.who, units, over_quota, spare=spare), warning=False)

    def look(self, now: float, uid: str = "") -> Iterator[Effect]:
        """Advance as far as possible; `uid`: the pod that changed, "" if that may be any."""
        pods = [each for each in ([uid] if uid else self.by.pods) if each in self.by.pods]
        if any(self.by.pods[each].state in ("binding", "bound") for each in pods):
            yield from self._end("done", now)
        elif not all(each in self._context.running_pods.pending for each in pods):
            yield from self._end("left", now)
        elif now >= self._until:
            yield from self._end("lapsed", now)
        elif self._evicting and not uid and not self._stands():
            yield from self._end("changed", now)  # a node goes, or is gone
        elif self._evicting:
            yield from self._evict(now)
        elif self._kept(pods):
            self._evicting = True
            yield from self._ask(now) if all(map(self._whole, self._units)) else self._end("changed", now)
        elif now >= self._begun + SEEN_S:
            yield from self._end("unheard", now)

    def refused(self, uid: str, why: str, now: float) -> Iterator[Effect]:
        """The API server refused to evict this pod: no other victim is evicted."""
        self._todo[uid], _ = self._asked.pop(uid)
        yield from self._stop(why, now)

    def _stop(self, why: str, now: float) -> Iterator[Effect]:
        """Budgets forbid the evictions by now."""
        yield self._report(refusals.preemption_stopped(self.by.who, why))
        yield from self._end("refused", now)

    def _kept(self, uids: Iterable[str]) -> bool:
        """Whether all room is reserved, as far as it is free. It can be new only if one of these pods changed."""
        promises = self._context.reservations.promises
        if not any(uid in self._texts for uid in uids):
            return False
        return self._stands() and all(promises.on(uid) == text for uid, text in self._texts.items())

    def _stands(self) -> bool:
        """Whether all of the room is still where it was planned."""
        reserved = map(self._context.reservations.of, self._assignments)
        return all(kept is not None and kept.assignment for kept in reserved)

    def _whole(self, unit: Unit) -> bool:
        """Whether the unit still has all members of its gang, if a whole gang must go."""
        known = self._context.gangs.roster.known.get(unit.gang) if unit.gang is not None and not unit.spare else None
        uids = {victim.uid for victim in unit.victims}
        return known is None or all(member.uid in uids for member in known.gang.at(Stage.POSTED, Stage.BOUND))

    def _spared(self) -> bool:
        """Whether the gangs can still spare the members that were chosen as spare."""
        chosen: dict[GroupKey, set[str]] = {}
        for unit in self._units:
            if unit.spare and unit.gang is not None:
                chosen.setdefault(unit.gang, set()).update(v.ref.name for v in unit.victims if not self._goes(v.uid))
        known = self._context.gangs.roster.known
        spares = self._elastic.spares
        return all(key not in known or spares(known[key].gang, members) for key, members in chosen.items())

    def _ask(self, now: float) -> Iterator[Effect]:
        """Begin with the workers that their operator can remove."""
        for pods in self._asking.workers.values():
            for pod in pods:
                self._context.gangs.controller.preempt(pod.uid, now, wholly=False)
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
                self._count(victim)
            elif now >= since + AGAIN_S:
                yield self._order(victim, now)
        while self._todo and len(self._asked) < AT_ONCE:
            uid, victim = next(iter(self._todo.items()))
            del self._todo[uid]
            if not self._goes(uid):
                self._context.gangs.controller.preempt(uid, now, wholly=self._unit_of[uid].kind == "gang")
                yield self._order(victim, now)

    def _forbidden(self) -> str:
        """Why budgets forbid the evictions that are left, "" if they allow them."""
        left = ((unit, tuple(v for v in unit.victims if not self._goes(v.uid))) for unit in self._units)
        units = [msgspec.structs.replace(unit, victims=victims) for unit, victims in left if victims]
        check = Sliced(self._budgets.forbidden(units, ()))
        while not check.advance():
            pass
        return next(iter((check.outcome or {}).values()), "")

    def _order(self, victim: Victim, now: float) -> Evict:
        self._asked[victim.uid] = victim, now
        unit = self._unit_of[victim.uid]
        if unit.over_quota:
            return Evict(victim.ref, refusals.reclaimed(self.by.who, unit.who, unit.over_quota), insist=False)
        why = refusals.preempted(self.by.who, self.by.priority, unit.who, idle=unit.idle)
        return Evict(victim.ref, why, insist=False)

    def _goes(self, uid: str) -> bool:
        pod = self._context.running_pods.of(uid)
        return pod is None or pod.leaving

    def _count(self, victim: Victim) -> None:
        self._lost += victim.lost
        unit = self._unit_of[victim.uid]
        self._context.counters["preemption_victims", f"{unit.kind}/{unit.by}"] += 1

    def _end(self, how: str, now: float) -> Iterator[Effect]:
        """Victims that are not evicted yet stay; room that was reserved in vain is given up."""
        self.ended = how
        for victim, _ in self._asked.values():
            self._count(victim)
        for unit in self._units:
            if unit.gang is not None and any(victim.uid in self._todo for victim in unit.victims):
                self._context.gangs.controller.spare(unit.gang, now)
        self._context.counters["preemptions", how] += 1
        self._context.counters["preemption_lost_gpu_seconds", ""] += round(self._lost)
        if how in ("refused", "unheard", "changed"):
            for uid in self._texts:
                if uid in self._context.running_pods.pending:
                    yield SetAnnotation(self.by.pods[uid].ref, names.RESERVATION, None, "")

    def _report(self, reason: Reason, *, warning: bool = True) -> Report:
        return Report(next(iter(self.by.pods.values())).ref, reason, warning=warning)


def _room(assignment: Assignment) -> Room:
    containers = {name: tuple(share.uuid for share in given) for name, given in assignment.shares.items()}
    return Room(assignment.node, containers)

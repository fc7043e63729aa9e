"""Leads gangs through their phases: what follows from each change, from time, from policies, and after an error.

`gangfilter.table` has the phases, `gangfilter.facts` says when they change.
"""

from __future__ import annotations

from collections.abc import Collection

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.members import MemberController
from extender.engine.gangs.outsiders import Outsiders
from extender.engine.gangs.replacement_holds import ReplacementHolds
from extender.engine.state.agenda import ALWAYS, NEVER, Agenda
from extender.engine.state.externally_bound import joining, mark, stranded
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo
from extender.engine.state.seats import Assignment
from extender.engine.types import refusals
from extender.engine.types.effects import Open, PhaseLeft
from extender.engine.types.subject import of_gang
from gangfilter import facts
from gangfilter.gang import STARTED, Gang
from gangfilter.group import GroupKey
from gangfilter.members import Member, Stage
from gangfilter.minimum import lacking, minimum
from gangfilter.table import Phase, Trigger

REFUSED_AGAIN_S = 1.0
"""Seconds after which a second refusal of the planned node by kube-scheduler counts."""


class GangController:
    """Does what follows from the phases of gangs. Each caller that changes a gang calls `settle` afterwards."""

    def __init__(self, context: GangContext, members: MemberController, replacements: ReplacementHolds) -> None:
        self._context, self._ledger, self._quarantine = context, context.ledger, context.quarantine
        self._roster, self._reporter, self._planner = context.roster, context.reporter, context.planner
        self._outbox = context.outbox
        self._assignments, self._members, self._replacements = context.assignments, members, replacements
        self.outsiders = Outsiders(context, members)
        self.agenda = Agenda()

    def is_aside(self, gang: Gang) -> bool:
        """Whether the gang is quarantined."""
        return bool(self._quarantine) and of_gang(gang.key) in self._quarantine

    def settle(self, known: GangInfo, now: float) -> None:
        """Move the gang through all phases that it can reach now; one in quarantine stays as it is."""
        if self.is_aside(known.gang):
            self._close(known)
            return
        with self._quarantine.over(of_gang(known.gang.key), "gang"):
            self._settle(known, now)

    def _settle(self, known: GangInfo, now: float) -> None:
        gang = known.gang
        known.parked = False
        if not self._roster.replayed:
            return
        since = gang.since  # 1. phases
        self.outsiders.sort(known, now)
        while (step := facts.step(gang, now)) is not None:
            self._outbox.put(PhaseLeft(step[0], now - since))
            self._follow(known, *step, now)
            self.outsiders.sort(known, now)
            since = gang.since
        self._replacements.refill(known, now)  # 2. replacements, and externally bound members
        self._members.call(gang)
        for member in joining(gang):
            pod = self._ledger.pods[member.uid]
            self._outbox.put(mark(gang, pod, self._context.settings))
        if gang.phase is Phase.WAITING:  # 3. a plan, or why the gang waits
            self._planner.want(known, now)
        if gang.phase is Phase.ASSEMBLING and not self._planner.too_large(known):
            known.reason = refusals.assembling(gang.key, lacking(gang)) if gang.key.name else refusals.UNNAMED
        if gang.phase is Phase.DEGRADED:
            numbers = f"{gang.count(Stage.BOUND)} of {minimum(gang)[0] or 0} members are bound"
            known.reason = (refusals.gang_lost if gang.member_lost else refusals.gang_below)(gang.key, numbers)
        self._reporter.tell(known)  # 4. status
        self._close(known)

    def recheck(self, known: GangInfo, member: Member, now: float) -> None:
        """Check that the held place of a member, if there is one, is still usable."""
        if not self._assignments.sound(member.uid):
            self._members.misplaced(known.gang, member)
            self.settle(known, now)

    def _close(self, known: GangInfo) -> None:
        """Forget the gang if it is empty, and note when to look at it again."""
        gang = known.gang
        if self._roster.clean(known):
            self._planner.unwant(gang)
            self._context.admission.drop(gang.key)
            self._quarantine.forget(of_gang(gang.key))
        self.note(known)

    # -- phases

    def _follow(self, known: GangInfo, left: Phase, trigger: Trigger, now: float) -> None:
        """Act on a change of phase."""
        gang = known.gang
        known.reason, known.planned = None, None
        if left is Phase.WAITING and trigger is not Trigger.PLANNED:
            self._planner.unwant(gang)
        self._act(known, trigger, now)
        if gang.phase in STARTED and left not in STARTED:
            for member in gang.at(Stage.IDLE):
                self._members.wake(gang, member)
        elif left in STARTED and gang.phase not in STARTED:
            self._members.give_back(gang, refusals.gang_starting(gang.key))
            for member in gang.at(Stage.IDLE):
                self._members.no_single(member)

    def _act(self, known: GangInfo, trigger: Trigger, now: float) -> None:
        gang, counters = known.gang, self._context.counters
        match trigger:
            case Trigger.ALL_IN_BIND | Trigger.FOUND:
                for member in gang.at(Stage.IN_BIND):
                    self._outbox.put(Open(self._members.post(gang, member)))
            case Trigger.WHOLE:
                for member in gang.at(Stage.PLANNED):
                    self._members.go_single(gang, member)
            case Trigger.STUCK | Trigger.PLAN_INVALIDATED:
                counters["gang_starts", trigger.name.lower()] += 1
                known.reason = refusals.gang_again(gang.key, str(trigger))
                self._members.give_back(gang, known.reason)
                if self._roster.leading and stranded(gang):  # kube-scheduler bound them for this start
                    self._members.evict(known, now)
            case Trigger.OVERDUE | Trigger.RESTART:
                counters["gang_starts", "undone"] += 1
                known.reason = refusals.gang_undone(gang.key)
                self._members.give_back(gang, known.reason)
                self._members.evict(known, now)
            case Trigger.PREEMPTED:
                counters["gang_starts", "preempted"] += 1
                self._members.give_back(gang, refusals.gang_undone(gang.key))
                for member in gang.at(Stage.BOUND):
                    gang.put(member, Stage.EVICTING)
            case Trigger.DONE if gang.terms.on_completion:
                self._members.evict(known, now)
            case Trigger.UNDONE | Trigger.RENEWED:
                self._roster.agree(known)
            case Trigger.LIMIT:
                known.reason = refusals.gang_limit(gang.key)
                self._reporter.report(known, known.reason, now)

    def stand_by(self, known: GangInfo, now: float) -> None:
        """Another process leads: drop what is planned or held here, and leave evictions to that process."""
        gang = known.gang
        self._planner.unwant(gang)
        gang.give_up(now)
        if gang.phase is not Phase.STARTING:
            self._members.give_back(gang, refusals.gang_starting(gang.key))
        for member in gang.at(Stage.EVICTING):
            gang.put(member, Stage.BOUND)

    # -- time

    def note(self, known: GangInfo) -> None:
        """Note when to look at the gang again, and whether its members are being evicted."""
        key = known.gang.key
        self.agenda.put(key, self._due(known) if key in self._roster.known else NEVER)
        self._members.note_evictions(known)

    def _due(self, known: GangInfo) -> float:
        """When time alone may change the gang."""
        gang = known.gang
        if known.parked or self.is_aside(gang):
            return NEVER
        if gang.phase is Phase.WAITING or known.replacements or gang.count(Stage.PLANNED):
            return ALWAYS
        due = (self._members.evict_again_at(known), self._reporter.due(known), self.outsiders.due(known))
        return min(gang.moves_at, *due)

    def tick(self, known: GangInfo, now: float) -> None:
        """Time has passed. A pending gang costs next to nothing here."""
        gang = known.gang
        if self.is_aside(gang):
            return
        self._remind(known, now)
        if gang.timed or known.replacements or known.outsiders:
            self._replacements.check_all(known)
            self.settle(known, now)
        elif gang.phase is Phase.WAITING:
            self._planner.want(known, now)

    def _remind(self, known: GangInfo, now: float) -> None:
        """Repeat requeues and evictions that may have been missed."""
        gang = known.gang
        for member in gang.at(Stage.PLANNED) if gang.count(Stage.PLANNED) else ():
            if now >= self._assignments.of_member[member.uid].until:
                self._members.go_single(gang, member)
            elif member.denied_at and now >= member.denied_at + REFUSED_AGAIN_S:
                self._members.wake(gang, member)  # kube-scheduler refused its node, perhaps only for a moment
        if now >= self._members.evict_again_at(known):
            self._members.evict(known, now)

    # -- policies

    def preempt(self, uid: str, now: float, *, wholly: bool) -> None:
        """A member is a victim: its GPUs are not held for a replacement.

        `wholly`: all members of its gang are victims; the caller evicts them.
        """
        known = self._roster.of(uid)
        if known is not None:
            known.gang.members[uid].preempted = True
            if wholly and not known.gang.preempted:
                known.gang.preempted = True
                self.settle(known, now)

    def spare(self, key: GroupKey, now: float) -> None:
        """A preemption of the gang ends: its members stay, except those that are evicted already."""
        known = self._roster.known.get(key)
        if known is None:
            return
        for member in known.gang.at(Stage.EVICTING) if known.gang.preempted else ():
            known.gang.put(member, Stage.BOUND)
        self.settle(known, now)

    def grow(self, key: GroupKey, model: PodState, role: str, assignments: Collection[Assignment], now: float) -> None:
        """Hold these places for new members of a running gang, which request what `model` requests."""
        known = self._roster.known[key]
        self._replacements.grow(known, model, role, assignments, now)
        self._replacements.refill(known, now)
        self.note(known)

    def shed(self, key: GroupKey, now: float) -> None:
        """Give back the places held for new members."""
        known = self._roster.known[key]
        for replacement in list(known.replacements):
            if replacement.grown:
                self._replacements.drop(known, replacement)
        self.settle(known, now)

    # -- after an error

    def set_aside(self, key: GroupKey, now: float) -> None:
        """Quarantine a gang: drop its plan and held places, and keep what its bound members hold.

        Each step is taken even if another one fails.
        """
        known, subject = self._roster.known.get(key), of_gang(key)
        if known is None:
            return
        gang, why, quarantine = known.gang, self._quarantine.why(subject), self._quarantine
        known.reason, known.planned, known.parked = why, None, False
        with quarantine.over(subject, "recovery"):
            self._planner.unwant(gang)
        with quarantine.over(subject, "recovery"):
            for member in gang.at(Stage.IN_BIND):  # no Binding is on its way: undo a booking that failed halfway
                pod = self._ledger.pods[member.uid]
                if pod.state == "binding":
                    self._ledger.unbook(pod)
        quarantine.each(gang.holding(), lambda _: subject, "recovery", lambda m: self._members.leave(gang, m, why))
        for member in [*gang.holding(), *gang.at(Stage.POSTED)]:
            state = self._ledger.pods.get(member.uid)
            if state is None or state.state not in ("binding", "bound"):
                gang.put(member, Stage.IDLE)
        idle = [member.uid for member in gang.at(Stage.IDLE)]  # they may have places of a start that failed halfway
        quarantine.each(idle, lambda _: subject, "recovery", self._assignments.drop)
        gang.plan_invalidated = gang.phase is Phase.STARTING
        with quarantine.over(subject, "recovery"):
            self._reporter.report(known, why, now)
            self._reporter.tell(known)
        self.note(known)

    def bring_back(self, key: GroupKey, now: float) -> None:
        """Let a quarantined gang go on from where it was."""
        known = self._roster.known.get(key)
        if known is not None:
            known.reason = known.planned = None
            self.settle(known, now)

"""Leads gangs through their phases: plans wanted, places held and given back, binds opened, members evicted and woken.

What the phases are and when they change is `gangfilter.gang`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from extender.engine.gangs.planner import GangPlanner, Outcome
from extender.engine.gangs.replacement_holds import ReplacementHolds
from extender.engine.gangs.reporter import GangReporter, ref
from extender.engine.planning.plan import Placement
from extender.engine.state.agenda import ALWAYS, NEVER, Agenda
from extender.engine.state.context import EngineContext
from extender.engine.state.externally_bound import joining, mark, stranded
from extender.engine.state.lacking import Lacking
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo, Roster
from extender.engine.state.seats import Assignment
from extender.engine.types import refusals
from extender.engine.types.effects import Deny, Evict, Open, PhaseLeft, PostBinding, Requeue
from extender.engine.types.subject import of_gang
from gangfilter.gang import BEFORE, STARTED, Gang
from gangfilter.group import GroupKey
from gangfilter.members import Member, Stage
from gangfilter.table import Phase, Trigger
from protos.contract.reason import Reason

REFUSED_AGAIN_S = 1.0
"""Seconds after which a second refusal of a planned node by kube-scheduler itself counts."""
EVICTED_AGAIN_S = 5.0
"""Seconds after which what is to go is evicted once more."""
LARGE, REST_S = 64, 0.005
"""A gang of more members that did not fit is not planned again for so many seconds a member: others come and go."""
Release = Callable[[PodState, Gang], PostBinding]
"""Books the place held for a member for good and makes its Binding."""


class GangController:
    """Does what follows from the phases of gangs."""

    def __init__(
        self,
        context: EngineContext,
        roster: Roster,
        reporter: GangReporter,
        release: Release,
        unpromise: Callable[[PodState], None],
        planner: GangPlanner,
    ) -> None:
        """`unpromise` takes back what a pod was promised, or waits for, as a single one."""
        self._context, self._ledger, self._quarantine = context, context.ledger, context.quarantine
        self._settings, self._roster, self._reporter = context.settings, roster, reporter
        self._release, self._unpromise = release, unpromise
        self.planner, self.replacements = planner, ReplacementHolds(context.ledger, planner, context.settings.patience)
        self._lack = Lacking(context.ledger.stock)
        self.agenda = Agenda()
        self.leaving: dict[GroupKey, None] = {}
        """The gangs that have members whose eviction was asked for."""
        self.replayed = False
        """All pods and groups were told; before, no gang goes anywhere."""
        self.leading = True
        """Whether this process may write; if not, nothing is planned, held or evicted."""

    def settle(self, known: GangInfo, now: float) -> None:
        """Let the gang go on as far as it does, and do what follows; one that is set aside stays as it is."""
        if self.is_aside(known.gang):
            self._close(known)
            return
        with self._quarantine.over(of_gang(known.gang.key), "gang"):
            self._settle(known, now)

    def is_aside(self, gang: Gang) -> bool:
        """Whether nobody works for the gang at the moment."""
        return bool(self._quarantine) and of_gang(gang.key) in self._quarantine

    def _settle(self, known: GangInfo, now: float) -> None:
        gang = known.gang
        known.parked = False
        if not self.replayed:
            return
        since = gang.since
        while (step := gang.step(now)) is not None:
            self._reporter.effects.append(PhaseLeft(step[0], now - since))
            self._follow(known, *step, now)
            since = gang.since
        self.refill(known, now)
        self.call(gang)
        for member in joining(gang):
            self._reporter.effects.append(mark(gang, self._ledger.pods[member.uid], self._settings))
        if gang.phase is Phase.WAITING:
            self._want(known, now)
        if gang.phase is Phase.ASSEMBLING and not self._too_large(known):
            known.reason = refusals.assembling(gang.key, gang.lacking())
        if gang.phase is Phase.DEGRADED:
            numbers = f"{gang.count(Stage.BOUND)} of {gang.minimum[0] or 0} members are bound"
            known.reason = (refusals.gang_lost if gang.bereft else refusals.gang_below)(gang.key, numbers)
        self._reporter.tell(known)
        self._close(known)

    def _close(self, known: GangInfo) -> None:
        """Forget the gang, if nothing is left of it."""
        if self._roster.clean(known):
            self.planner.close(known.gang)
            self._quarantine.forget(of_gang(known.gang.key))
        self.note(known)

    def note(self, known: GangInfo) -> None:
        """Keep in mind when the gang is to be looked at again, and whether members of it leave."""
        gang = known.gang
        there = gang.key in self._roster.known
        self.agenda.put(gang.key, self._due(known) if there else NEVER)
        if there and gang.count(Stage.EVICTING):
            self.leaving[gang.key] = None
        else:
            self.leaving.pop(gang.key, None)

    def _due(self, known: GangInfo) -> float:
        """When time alone may change something about the gang."""
        gang = known.gang
        if known.parked or self.is_aside(gang):
            return NEVER
        if gang.phase is Phase.WAITING or known.replacements or gang.count(Stage.PLANNED):
            return ALWAYS
        again = known.evicted_at + EVICTED_AGAIN_S if self._goes(gang) else NEVER
        return min(again, gang.moves_at, self._reporter.due(known))

    def _follow(self, known: GangInfo, left: Phase, fact: Trigger, now: float) -> None:
        gang = known.gang
        known.reason, known.planned = None, None
        if left is Phase.WAITING and fact is not Trigger.PLANNED:
            self.planner.unwant(gang)
        self._act(known, fact, now)
        if gang.phase in STARTED and left not in STARTED:
            for member in gang.at(Stage.IDLE):
                self.wake(gang, member)
        elif left in STARTED and gang.phase not in STARTED:
            self._give_back(gang, refusals.gang_starting(gang.key))
            for member in gang.at(Stage.IDLE):
                self._no_single(member)

    def _act(self, known: GangInfo, fact: Trigger, now: float) -> None:
        gang = known.gang
        match fact:
            case Trigger.ALL_IN_BIND | Trigger.FOUND:
                for member in gang.at(Stage.IN_BIND):
                    self._reporter.effects.append(Open(self.post(gang, member)))
            case Trigger.WHOLE:
                for member in gang.at(Stage.PLANNED):
                    self._go_single(gang, member)
            case Trigger.STUCK | Trigger.PLAN_INVALIDATED:
                self._context.counters["gang_starts", fact.name.lower()] += 1
                known.reason = refusals.gang_again(gang.key, str(fact))
                self._give_back(gang, known.reason)
                self._take_back(known, now)
            case Trigger.OVERDUE | Trigger.RESTART:
                self._context.counters["gang_starts", "undone"] += 1
                known.reason = refusals.gang_undone(gang.key)
                self._give_back(gang, known.reason)
                self._evict(known, now)
            case Trigger.PREEMPTED:
                self._context.counters["gang_starts", "preempted"] += 1
                self._give_back(gang, refusals.gang_undone(gang.key))
                for member in gang.at(Stage.BOUND):
                    gang.put(member, Stage.EVICTING)
            case Trigger.DONE if gang.terms.on_completion:
                self._evict(known, now)
            case Trigger.UNDONE | Trigger.RENEWED:
                self._roster.agree(known)
            case Trigger.LIMIT:
                known.reason = refusals.gang_limit(gang.key)
                self._reporter.report(known, known.reason, now)

    # -- plans

    def _want(self, known: GangInfo, now: float) -> None:
        """Have the gang planned, if there is anything new since it was planned last."""
        gang = known.gang
        if self._too_large(known):
            self.planner.unwant(gang)
            return
        withheld = self.planner.withheld(gang)
        if withheld is not None:
            self._withhold(known, withheld)
            return
        news = self._ledger.freed, gang.turnover
        due = known.planned is None or (known.planned != news and now >= known.rests_until)
        if self.leading and due and not self.planner.wanted(gang) and gang.may_plan(now):
            known.planned = news
            self.planner.want(gang)

    def _withhold(self, known: GangInfo, why: Reason) -> None:
        """Its queue has no room for the gang: it is not planned until there is."""
        self.planner.unwant(known.gang)
        known.planned = None
        if known.reason != why:
            known.reason = why
            self._reporter.tell(known)

    def park(self, known: GangInfo) -> None:
        """Leave a gang alone that waits for nothing but room in its queue and has told so, until there is some."""
        gang, why = known.gang, known.reason
        if gang.phase is not Phase.WAITING or why is None or why != known.reported[0]:
            return
        if not (gang.timed or known.replacements or gang.count(Stage.EVICTING)) and self.planner.withheld(gang) == why:
            known.parked = True
            self.planner.park(gang)

    def unpark(self) -> None:
        """Look again after those whose queue may have room for them by now."""
        for key in self.planner.unparked():
            known = self._roster.known.get(key)
            if known is not None:
                known.parked = False
                self.note(known)

    def _too_large(self, known: GangInfo) -> bool:
        """Whether more members would have to start together than can be held in bind; then that is why it waits."""
        least, most = known.gang.least, self._settings.max_gang_size
        if least > most:
            known.reason, known.planned = refusals.gang_too_large(known.gang.key, least, most), None
        return least > most

    def take(self, known: GangInfo, outcome: Outcome, now: float) -> None:
        """The gang's plan has come out; what its queue has no room for any more is not started."""
        gang = known.gang
        if isinstance(outcome, Placement):
            outcome = self.planner.refused(gang, outcome) or outcome
        if isinstance(outcome, Reason):
            self._withhold(known, outcome)
            self.note(known)
            return  # whether it is planned once more is asked when time passes, not at once
        if isinstance(outcome, Placement):
            self._start(known, outcome, now)
        else:
            known.rests_until = now + REST_S * len(gang.members) if len(gang.members) > LARGE else 0.0
            known.reason = refusals.gang_no_room(gang.key, "; ".join([*self._lacking(gang), str(outcome)]))
            self._reporter.report(known, known.reason, now)
        self.settle(known, now)

    def _lacking(self, gang: Gang) -> Iterator[str]:
        """Why the first member that could not be served even if every GPU were free could not be, if there is one."""
        asks = (self._ledger.pods[member.uid].ask for member in gang.at(Stage.IDLE))
        missing = (self._lack.of(ask) for ask in asks if ask is not None)
        yield from (str(reason) for reason in islice(filter(None, missing), 1))

    def _start(self, known: GangInfo, placement: Placement, now: float) -> None:
        gang = known.gang
        known.reason, known.reported = None, (None, 0.0)
        for uid in placement.assignments:
            self._no_single(gang.members[uid])
        self.planner.started(gang, placement.assignments)
        gang.start({uid: assignment.node for uid, assignment in placement.assignments.items()}, now)
        self._context.counters["gang_starts", "planned"] += 1
        nominate = len(self._ledger.nodes) >= self._settings.nominate_from
        for member in gang.at(Stage.PLANNED):
            member.refused = member.refused or nominate
            if member.uid not in gang.unheld:
                self.wake(gang, member)

    # -- places

    def post(self, gang: Gang, member: Member) -> PostBinding:
        """The Binding of a member to its place."""
        place = self._release(self._ledger.pods[member.uid], gang)
        gang.post(member.uid, member.node)  # not before: whoever is posted has a Binding on its way
        return place

    def unbook(self, gang: Gang) -> None:
        """Those in bind have no Binding on its way: what was booked for one by half is theirs no more."""
        for member in gang.at(Stage.IN_BIND):
            pod = self._ledger.pods[member.uid]
            if pod.state == "binding":
                self._ledger.unbook(pod)

    def leave(self, gang: Gang, member: Member, why: Reason) -> None:
        """The member holds nothing any more, nor is it in bind."""
        if member.stage is Stage.IN_BIND:
            self._reporter.effects.append(Deny(ref(gang, member), why))
        self.planner.drop(member.uid)
        member.node, member.denied_at = "", 0.0

    def _give_back(self, gang: Gang, why: Reason) -> None:
        """Everything that is held, and an answer to everybody in bind; who did not come is woken the next time."""
        with self.planner.batched():
            for member in gang.holding():
                member.refused = member.refused or member.stage is Stage.PLANNED
                self.leave(gang, member, why)
                gang.put(member, Stage.IDLE)

    def refill(self, known: GangInfo, now: float, *coming: Member) -> None:
        """Members that come for lost ones get what was kept of those; nothing is kept that the gang does not need."""
        if not known.replacements:
            return
        self.replacements.trim(known, now)
        if not known.replacements or not self.leading:
            return
        if known.offering:
            known.offering, coming = False, tuple(known.gang.at(Stage.IDLE))
        waiting = [m for m in coming if m.stage is Stage.IDLE and self._ledger.pods[m.uid].state == "waiting"]
        for member, assignment in list(self.replacements.take(known, waiting, now)):
            self._seat(known.gang, member, assignment)

    def _seat(self, gang: Gang, member: Member, assignment: Assignment) -> None:
        self._no_single(member)
        self.planner.hold({member.uid: assignment})
        member.node = assignment.node
        gang.put(member, Stage.PLANNED)
        self.wake(gang, member)

    def _take_back(self, known: GangInfo, now: float) -> None:
        """Members that kube-scheduler bound by itself for a start that came to nothing."""
        if self.leading and stranded(known.gang):
            self._evict(known, now)

    def misplaced(self, gang: Gang, member: Member) -> None:
        """The place held for a member is none: a start is planned anew, later on the member goes on by itself."""
        if gang.phase is Phase.STARTING:
            gang.upset = True
        elif member.stage is Stage.PLANNED:
            self._go_single(gang, member)

    def _go_single(self, gang: Gang, member: Member) -> None:
        self.leave(gang, member, refusals.gang_starting(gang.key))
        gang.put(member, Stage.IDLE)
        self.wake(gang, member)

    def _no_single(self, member: Member) -> None:
        """The member is not placed singly any more."""
        pod = self._ledger.pods[member.uid]
        member.refused = member.refused or pod.refusal is not None
        self._unpromise(pod)

    def stand_by(self, known: GangInfo, now: float) -> None:
        """Another process leads: nothing is planned or held here, and whoever leads decides who has to go."""
        gang = known.gang
        self.planner.unwant(gang)
        gang.give_up(now)
        if gang.phase is not Phase.STARTING:
            self._give_back(gang, refusals.gang_starting(gang.key))
        for member in gang.at(Stage.EVICTING):
            gang.put(member, Stage.BOUND)

    # -- who shall come, and who shall go

    def call(self, gang: Gang) -> None:
        """Bring back those that go last, if it is their turn."""
        for member in gang.last():
            self.wake(gang, member)

    def wake(self, gang: Gang, member: Member) -> None:
        """Bring a member back that does not come by itself, to its place if it has one."""
        if member.refused:
            member.refused = False
            self._reporter.effects.append(
                Requeue(ref(gang, member), member.node, nominate=not self.planner.spread(member.uid))
            )
            self._context.counters["pod_requeues", ""] += 1

    def tick(self, known: GangInfo, now: float) -> None:
        """Time has passed: those that wait cost next to nothing, however many they are."""
        gang = known.gang
        if self.is_aside(gang):
            return
        self._remind(known, now)
        if gang.timed or known.replacements:
            self.replacements.check_all(known)
            self.settle(known, now)
        elif gang.phase is Phase.WAITING:
            self._want(known, now)

    def _remind(self, known: GangInfo, now: float) -> None:
        """Say once more what was perhaps not heard, after a while."""
        gang = known.gang
        for member in gang.at(Stage.PLANNED) if gang.count(Stage.PLANNED) else ():
            if now >= self.planner.assignments[member.uid].until:
                self._go_single(gang, member)
            elif member.denied_at and now >= member.denied_at + REFUSED_AGAIN_S:
                self.wake(gang, member)  # kept off its node by kube-scheduler: maybe a passing thing
        if self._goes(gang) and now >= known.evicted_at + EVICTED_AGAIN_S:
            self._evict(known, now)

    def _goes(self, gang: Gang) -> bool:
        """Whether members are to be evicted until they are gone."""
        if gang.preempted:
            return False
        if gang.phase in BEFORE:
            return gang.count(Stage.EVICTING) > 0
        ends = gang.phase is Phase.UNDOING or (gang.phase is Phase.COMPLETED and bool(gang.terms.on_completion))
        return ends and gang.count(Stage.BOUND, Stage.EVICTING) > 0

    def preempt(self, known: GangInfo, now: float) -> None:
        """Others take the gang's room: whoever does evicts its members."""
        known.gang.preempted = True
        self.settle(known, now)

    def spare(self, known: GangInfo, now: float) -> None:
        """Its members are not evicted after all, but for those that are."""
        for member in known.gang.at(Stage.EVICTING) if known.gang.preempted else ():
            known.gang.put(member, Stage.BOUND)
        self.settle(known, now)

    def _evict(self, known: GangInfo, now: float) -> None:
        """Have those go that shall go."""
        gang = known.gang
        if not self.leading:
            return
        known.evicted_at = now
        done = gang.phase is Phase.COMPLETED
        why = refusals.gang_done(gang.key) if done else refusals.gang_undone(gang.key)
        for member in gang.at(Stage.BOUND, Stage.EVICTING):
            if done or member.removable:
                gang.put(member, Stage.EVICTING)
                self._reporter.effects.append(Evict(ref(gang, member), why))

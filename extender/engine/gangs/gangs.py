"""Gangs in the books: what the world tells of their members, and what becomes of members in bind.

Where a gang stands is `gangfilter.gang`'s, what follows from that `controller`'s. What a start holds is booked by
`planner` for all its members at once. What kube-scheduler is told of a member is in `barrier`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from extender.engine.gangs.controller import GangController, Release
from extender.engine.gangs.planner import GangPlanner, KeptBefore
from extender.engine.gangs.reporter import GangReporter
from extender.engine.gangs.rounds import News, Rounds
from extender.engine.planning.plan import Placement
from extender.engine.state import intree
from extender.engine.state.context import EngineContext
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo, Roster
from extender.engine.state.seats import Assignment
from extender.engine.types import refusals
from extender.engine.types.effects import BindAnswer, Effect, Held, PostBinding
from extender.engine.types.subject import Subject, of_gang, of_pod
from gangfilter import dialects
from gangfilter.gang import STARTED, Gang
from gangfilter.group import Declaration, GroupKey
from gangfilter.members import ON_NODE, Member, Stage
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.reason import Reason

PREEMPTED = "PreemptionByScheduler"
"""Reason of a pod's condition DisruptionTarget. Source: KEP-3329."""
MOST_EPOCHS = 2**53
"""Nobody starts so often: a number like this was made up, and the next ones could not be written."""


class Gangs:
    """All gangs."""

    def __init__(
        self,
        context: EngineContext,
        planner: GangPlanner,
        release: Release,
        unpromise: Callable[[PodState], None],
        capped: Callable[[Gang], Reason | None],
    ) -> None:
        """`unpromise` takes back what a pod was promised, or waits for, as a single one.

        `capped` says why the PriorityClass of a gang gives less than it says, None if it does not.
        """
        self._ledger, self._settings, self._quarantine = context.ledger, context.settings, context.quarantine
        self.planner, self._capped = planner, capped
        self._roster, self._reporter = Roster(context.settings.patience, context.wall), GangReporter()
        self._controller = GangController(context, self._roster, self._reporter, release, unpromise, planner)
        self._failed: dict[str, GangInfo] = {}
        """The gangs of pods that have failed, by UID, until those are gone."""
        self.rounds = Rounds(context.ledger, context.quarantine, self._roster, self._controller, self._reporter)

    @property
    def known(self) -> dict[GroupKey, GangInfo]:
        return self._roster.known

    def of(self, uid: str) -> GangInfo | None:
        """The gang of a pod, None if it is in none."""
        return self._roster.of(uid)

    def effects(self) -> list[Effect]:
        """What is to be done, told once."""
        return self._reporter.taken()

    # -- the world

    def see(self, pod: Pod, state: PodState | None, now: float) -> None:
        """Take in a pod; `state` is None when it is over."""
        said = dialects.membership(pod)
        uid = pod.metadata.uid
        known = self.of(uid)
        if known is not None and self._quarantine:
            self._quarantine.changed(of_gang(known.gang.key))
        if known is not None and (said is None or said.key != known.gang.key):
            self.forget(uid, now)
            known = None
        if said is None or (known is None and state is None and not _has_succeeded(pod)):
            return
        if known is None:
            known = self._roster.join(pod, said, now)
        self._roster.say(uid, said.said)
        self._reporter.warn(known, now)
        with self._quarantine.over(of_gang(known.gang.key), "gang"):
            self._restage(known, pod, state, now)
        self._controller.settle(known, now)
        self._tell_cap(known, now)

    def declare(self, kind: str, key: GroupKey, declaration: Declaration | None, now: float) -> None:
        """A PodGroup says this, or (None) is gone."""
        known = self._roster.gang(key, now)
        self._quarantine.changed(of_gang(key))
        known.told = None
        self._roster.declare(known, kind, declaration)
        self._reporter.warn(known, now)
        self._controller.settle(known, now)

    def _tell_cap(self, known: GangInfo, now: float) -> None:
        """Once all of its minimum is there: until then nobody knows the highest of its members."""
        if known.gang.phase is Phase.ASSEMBLING or not known.gang.terms.priority_class:
            return
        why = self._capped(known.gang)
        if why != known.capped and (why is None or self._reporter.report(known, why, now)):
            known.capped = why
            self._controller.note(known)

    def _restage(self, known: GangInfo, pod: Pod, state: PodState | None, now: float) -> None:
        member = known.gang.members[pod.metadata.uid]
        if state is None:
            self._over(known, pod, member, now)
        elif pod.spec.node_name:
            self._on_node(known.gang, member, pod, state, now)
        elif self._counts(pod, state):
            self._waits(known, member, pod, now)
        else:
            self._controller.leave(known.gang, member, refusals.GONE)
            known.gang.put(member, Stage.ABSENT)

    def _over(self, known: GangInfo, pod: Pod, member: Member, now: float) -> None:
        """The pod has ended, or goes before it had a node."""
        if _has_succeeded(pod):
            known.gang.succeed(member.uid)
            self.planner.settled(member.uid)
            self.planner.forget(member.uid)
        elif member.stage is not Stage.SUCCEEDED:
            failed = pod.status.phase == "Failed"
            if failed:
                known.failed[member.uid] = None
                self._failed[member.uid] = known
            self._drop(known, member, now, refused=failed and not pod.status.container_statuses)

    def _on_node(self, gang: Gang, member: Member, pod: Pod, state: PodState, now: float) -> None:
        node = pod.spec.node_name or ""
        if member.stage is Stage.IN_BIND:
            self._controller.leave(gang, member, refusals.ELSEWHERE)
        self.planner.settled(member.uid)
        if pod.metadata.deletion_timestamp:
            preempted = any(c.status == "True" and c.reason == PREEMPTED for c in pod.status.conditions)
            member.preempted = member.preempted or preempted
            gang.put(member, Stage.ABSENT)
        elif member.stage not in (Stage.BOUND, Stage.EVICTING):
            group = state.allocation.group if state.allocation else None
            epoch, among = (group.epoch, group.size) if group and group.key == str(gang.key) else (0, 0)
            epoch, among = (epoch, among) if max(epoch, among) < MOST_EPOCHS else (0, 0)
            times = [c.last_transition_time for c in pod.status.conditions if c.type == "PodScheduled"]
            gang.bound(member.uid, node, epoch, self._roster.clock(times[0] if times else None, now), among)

    def _counts(self, pod: Pod, state: PodState) -> bool:
        gated = any(gate.name != names.PLAN_GATE for gate in pod.spec.scheduling_gates)
        return self._fit(pod, state) and not gated and not pod.metadata.deletion_timestamp

    def _fit(self, pod: Pod, state: PodState) -> bool:
        ours = not self._settings.scheduler_names or pod.spec.scheduler_name in self._settings.scheduler_names
        return ours and not isinstance(state.asked, Reason) and not state.forged

    def awaits(self, pod: Pod, state: PodState) -> bool:
        """Whether the pod may wait for its gang behind our scheduling gate: it is, or will be, one that counts."""
        return self.of(pod.metadata.uid) is not None and self._fit(pod, state)

    def _waits(self, known: GangInfo, member: Member, pod: Pod, now: float) -> None:
        """The pod has no node yet."""
        gang = known.gang
        if self.planner.learn(member.uid, intree.constraints(pod)):
            known.planned = None
        if member.stage is Stage.ABSENT:
            refused = any(c.type == "PodScheduled" and c.status == "False" for c in pod.status.conditions)
            member.refused = refused or bool(pod.spec.scheduling_gates)
            gang.put(member, Stage.IDLE)
            if gang.phase in STARTED:
                self._controller.refill(known, now, member)
                self._controller.wake(gang, member)
        elif not self.planner.sound(member.uid):
            self._controller.misplaced(gang, member)

    def forget(self, uid: str, now: float) -> None:
        """The pod is gone. What a member has done stays done."""
        before, known = self._failed.pop(uid, None), self.of(uid)
        if before is not None:  # its gang may be forgotten since
            before.failed.pop(uid, None)
            self._reporter.tell(before)
        if known is None:
            return
        with self._quarantine.over(of_gang(known.gang.key), "gang"):
            if known.gang.vanish(uid):
                self._roster.quit(uid)
                self.planner.forget(uid)
            else:
                self._drop(known, known.gang.members[uid], now)
        if self.of(uid) is not None:
            self._expel(known, uid)
        self._controller.settle(known, now)

    def _expel(self, known: GangInfo, uid: str) -> None:
        """An error came in between: the pod is gone all the same, and nobody may take it for a member any more."""
        steps: tuple[Callable[[], object], ...] = (
            lambda: None if known.gang.vanish(uid) else known.gang.lose(uid),
            lambda: self._roster.quit(uid),
            lambda: self.planner.forget(uid),
        )
        self._quarantine.each(steps, lambda _: of_gang(known.gang.key), "gang", lambda step: step())

    def _drop(self, known: GangInfo, member: Member, now: float, *, refused: bool = False) -> None:
        self._controller.leave(known.gang, member, refusals.GONE)
        known.gang.lose(member.uid, refused=refused)
        self._roster.quit(member.uid)
        self.planner.forget(member.uid)
        pod = self._ledger.pods.get(member.uid)
        if pod is not None and not refused:
            self._controller.replacements.keep(known, member, pod, now)

    def surplus(self, uid: str) -> bool:
        """Whether a gang that runs has this member beyond its minimum."""
        known = self.of(uid)
        return known is not None and known.surplus(uid)

    def look_at(self, node: str, now: float) -> None:
        """The node changed or is gone: places held there may be none any more."""

        def look(uid: str) -> None:
            known, kept_for = self.of(uid), self._controller.replacements.of(uid)
            if known is not None:
                self.recheck(known, known.gang.members[uid], now)
            elif kept_for is not None:
                self._controller.replacements.check(uid)
                self._controller.settle(kept_for, now)

        self._quarantine.each(sorted(self._ledger.on_node.get(node, ())), self._subject, "gang", look)

    def _subject(self, uid: str) -> Subject:
        """Whose work is what is done for a name in the books."""
        known = self.of(uid) or self._controller.replacements.of(uid)
        return of_gang(known.gang.key) if known is not None else of_pod(uid)

    def recheck(self, known: GangInfo, member: Member, now: float) -> None:
        """See whether the place held for a member, if there is one, still is one."""
        if not self.planner.sound(member.uid):
            self._controller.misplaced(known.gang, member)
            self._controller.settle(known, now)

    def refill(self, known: GangInfo, member: Member, now: float) -> None:
        """A member that comes for a lost one gets what was kept of that."""
        self._controller.refill(known, now, member)

    def unhold(self, known: GangInfo, member: Member) -> None:
        """kube-scheduler will bind this member by itself. Others like it may have waited for that to be known."""
        if member.uid not in known.gang.unheld:
            known.gang.unheld[member.uid] = None
            self._controller.call(known.gang)

    def beside(self, uid: str) -> list[str]:
        """The nodes of the members of a pod's gang that have one, a name for each."""
        known = self.of(uid)
        return [m.node for m in known.gang.at(*ON_NODE)] if known is not None else []

    def refused(self, uid: str) -> None:
        """Such a member was refused before anybody knew where it may go."""
        known = self.of(uid)
        if known is not None:
            known.gang.members[uid].refused = True
            self.unhold(known, known.gang.members[uid])

    # -- binds

    def arrive(self, known: GangInfo, member: Member, now: float) -> BindAnswer:
        """A member with a place is in bind: it waits for the others, or goes through once the gang has started."""
        gang = known.gang
        if gang.phase in STARTED:
            return self._controller.post(gang, member)
        gang.arrive(member.uid, now)
        self._controller.settle(known, now)
        return Held()

    def left(self, uid: str) -> None:
        """Nobody waits for the pod's bind any more."""
        known = self.of(uid)
        if known is not None:
            known.gang.leave(uid)

    def posted(self, uid: str, node: str, now: float) -> Gang | None:
        """The Binding of a member that had no place held is being written; returns its gang."""
        known = self.of(uid)
        if known is None:
            return None
        known.gang.post(uid, node)
        self._controller.refill(known, now)
        return known.gang

    def bind_done(self, uid: str, bound: bool, now: float) -> None:
        """How the Binding of a member went. One that did not happen is tried again at its place."""
        known = self.of(uid)
        if known is None or known.gang.members[uid].stage is not Stage.POSTED:
            return
        gang, member = known.gang, known.gang.members[uid]
        if bound:
            gang.bound(uid, member.node, member.epoch, now)
            self.planner.settled(uid)
        elif gang.phase is Phase.BINDING and self._controller.leading and self.planner.hold_again(uid):
            gang.put(member, Stage.PLANNED)
        else:
            self._controller.leave(gang, member, refusals.GONE)
            gang.put(member, Stage.IDLE)
        self._controller.settle(known, now)

    def exclude(self, known: GangInfo, member: Member, now: float) -> None:
        """kube-scheduler itself keeps the member off its node: it is planned anew without it."""
        self.planner.exclude(member.uid, member.node)
        self._controller.misplaced(known.gang, member)
        self._controller.settle(known, now)

    # -- time and plans

    def shift(self, by: float) -> None:
        """The wall clock shows so many seconds more than it did: all that was read by it was so much earlier."""
        for known in self.known.values():
            known.gang.shift(by)
            self._controller.note(known)

    def replayed(self, now: float) -> None:
        """All pods and groups were told."""
        if not self._controller.replayed:
            self._controller.replayed = True
            self.rounds.tell(News.REPLAYED, now)

    def lead(self, yes: bool, now: float) -> None:
        """Whether this process may write."""
        self._controller.leading = self._roster.leading = yes
        self.rounds.tell(News.LEADER if yes else News.STAND_BY, now)

    @property
    def leading(self) -> bool:
        """Whether gangs are led here, with all of the cluster known."""
        return self._controller.leading and self._controller.replayed and self.rounds.settled

    def may_start(self, key: GroupKey, now: float) -> bool:
        """Whether a gang waits for nothing but room on nodes, and may start here."""
        gang = self.known[key].gang
        return self.leading and not self.is_aside(gang) and gang.may_plan(now) and self.planner.withheld(gang) is None

    def suffice(self, key: GroupKey, uids: Collection[str]) -> bool:
        """Whether a smallest start of a gang that waits needs nobody but these members."""
        return all(seat.uid in uids for seat in self.planner.asked(self.known[key].gang, uids)[1])

    def start(self, key: GroupKey, assignments: Mapping[str, Assignment], now: float) -> None:
        """Have the gang start at places that were kept for it."""
        self.planner.unwant(self.known[key].gang)
        self._controller.take(self.known[key], Placement(assignments), now)

    def leaving(self) -> Iterator[str]:
        """UIDs of bound members whose eviction was asked for."""
        for key in self._controller.leaving:
            yield from (member.uid for member in self.known[key].gang.at(Stage.EVICTING))

    def preempt(self, uid: str, now: float, *, wholly: bool) -> None:
        """The room of a member is taken for others: nothing is kept of it; `wholly`: all of its gang goes."""
        known = self.of(uid)
        if known is not None:
            known.gang.members[uid].preempted = True
            if wholly and not known.gang.preempted:
                self._controller.preempt(known, now)

    def grow(self, key: GroupKey, model: PodState, role: str, assignments: Collection[Assignment], now: float) -> None:
        """Keep these places for members to come of a gang that runs; `model` asks what they will."""
        known = self.known[key]
        self._controller.replacements.grow(known, model, role, assignments, now)
        self._controller.refill(known, now)
        self._controller.note(known)

    def holds(self, pod: PodState) -> bool:
        """Whether a place is kept for this member, or by this name for one to come."""
        return pod.ref.uid in self.planner.assignments or self._controller.replacements.of(pod.ref.uid) is not None

    def growing(self) -> list[GroupKey]:
        """The gangs for which such places are kept."""
        return self._controller.replacements.growing()

    def shed(self, key: GroupKey, now: float) -> None:
        """Nobody comes for such places any more."""
        known = self.known[key]
        for replacement in [replacement for replacement in known.replacements if replacement.grown]:
            self._controller.replacements.drop(known, replacement)
        self._controller.settle(known, now)

    def spare(self, key: GroupKey, now: float) -> None:
        """The rest of the gang is not taken after all."""
        if key in self.known:
            self._controller.spare(self.known[key], now)

    def work(self, now: float, kept: KeptBefore) -> bool:
        """Do a slice of planning, and of what time brings; returns whether there is more to do."""
        more = self.rounds.work(now)
        return self.plan(now, kept) or more

    def plan(self, now: float, kept: KeptBefore) -> bool:
        """Do a slice of planning; returns whether there is more to do."""
        gang = self.planner.upcoming()
        if gang is None or not self._controller.leading:
            return not self.planner.idle
        with self._quarantine.over(of_gang(gang.key), "plan"):
            outcome = self.planner.advance(gang, now, kept)
            if outcome is not None:
                self._controller.take(self.known[gang.key], outcome, now)
        if self.is_aside(gang):
            self.planner.unwant(gang)
        return not self.planner.idle

    # -- after an error of ours

    def is_aside(self, gang: Gang) -> bool:
        """Whether nobody works for the gang at the moment."""
        return self._controller.is_aside(gang)

    def set_aside(self, key: GroupKey, now: float) -> None:
        """Nothing is planned or held for the gang until it is brought back; what its bound members hold stays."""
        known, subject = self.known.get(key), of_gang(key)
        if known is None:
            return
        gang, why = known.gang, self._quarantine.why(subject)
        known.reason, known.planned, known.parked = why, None, False
        with self._quarantine.over(subject, "recovery"):
            self.planner.unwant(gang)
        with self._quarantine.over(subject, "recovery"):
            self._controller.unbook(gang)
        self._quarantine.each(
            gang.holding(), lambda _: subject, "recovery", lambda m: self._controller.leave(gang, m, why)
        )
        for member in [*gang.holding(), *gang.at(Stage.POSTED)]:
            pod = self._ledger.pods.get(member.uid)
            if pod is None or pod.state not in ("binding", "bound"):
                gang.put(member, Stage.IDLE)
        idle = [member.uid for member in gang.at(Stage.IDLE)]  # of a start that failed by half they may have places
        self._quarantine.each(idle, lambda _: subject, "recovery", self.planner.drop)
        gang.upset = gang.phase is Phase.STARTING
        with self._quarantine.over(subject, "recovery"):
            self._reporter.report(known, why, now)
            self._reporter.tell(known)
        self._controller.note(known)

    def opened(self, uid: str) -> PostBinding | None:
        """The Binding of a member whose bind went through and was not told so yet: it is told by whoever asks this."""
        return self._reporter.opened(uid)

    def bring_back(self, key: GroupKey, now: float) -> None:
        """The gang goes on from where it was."""
        known = self.known.get(key)
        if known is not None:
            known.reason = known.planned = None
            self._controller.settle(known, now)


def _has_succeeded(pod: Pod) -> bool:
    """Whether the pod has done its work, rather than ended since it was told to go."""
    return pod.status.phase == "Succeeded" and bool(pod.spec.node_name) and not pod.metadata.deletion_timestamp

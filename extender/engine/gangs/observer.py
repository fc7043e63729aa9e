"""What pods, PodGroups and nodes say of gangs: it becomes members, their stages, and the terms of their gangs."""

from __future__ import annotations

from collections.abc import Callable

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.controller import GangController
from extender.engine.gangs.members import MemberController
from extender.engine.gangs.replacement_holds import ReplacementHolds
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo
from extender.engine.types import refusals
from extender.engine.types.subject import Subject, of_gang, of_pod
from gangfilter import dialects
from gangfilter.gang import STARTED, Gang
from gangfilter.group import Declaration, GroupKey
from gangfilter.members import Member, Stage
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.reason import Reason

PREEMPTED = "PreemptionByScheduler"
"""Reason of a pod's condition DisruptionTarget. Source: KEP-3329."""
MOST_EPOCHS = 2**53
"""Nobody starts so often: a number like this was made up, and the next ones could not be written."""


class GangObserver:
    """Takes in what the API server shows of gangs; each is settled afterwards, whatever failed in between."""

    def __init__(
        self,
        context: GangContext,
        members: MemberController,
        replacements: ReplacementHolds,
        controller: GangController,
        capped: Callable[[Gang], Reason | None],
    ) -> None:
        """`capped` says why the PriorityClass of a gang gives less than it says, None if it does not."""
        self._ledger, self._quarantine = context.ledger, context.quarantine
        self._roster, self._reporter, self._assignments = context.roster, context.reporter, context.assignments
        self._members, self._replacements, self._controller = members, replacements, controller
        self._capped = capped
        self._failed: dict[str, GangInfo] = {}
        """The gangs of pods that have failed, by UID, until those are gone."""

    # -- it comes or changes

    def see(self, pod: Pod, state: PodState | None, now: float) -> None:
        """Take in a pod; `state` is None when it is over."""
        said = dialects.membership(pod)
        uid = pod.metadata.uid
        known = self._roster.of(uid)
        if known is not None and self._quarantine:
            self._quarantine.changed(of_gang(known.gang.key))
        if known is not None and (said is None or said.key != known.gang.key):
            self.forget(uid, now, lives=state is not None)
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

    def awaits(self, pod: PodState) -> bool:
        """Whether the pod may wait for its gang behind our scheduling gate: it is, or will be, one that counts."""
        return self._roster.of(pod.ref.uid) is not None and _fit(pod)

    def look_at(self, node: str, now: float) -> None:
        """The node changed or is gone: places held there may be none any more."""

        def look(uid: str) -> None:
            known, kept_for = self._roster.of(uid), self._replacements.of(uid)
            if known is not None:
                self._controller.recheck(known, known.gang.members[uid], now)
            elif kept_for is not None:
                self._replacements.check(uid)
                self._controller.settle(kept_for, now)

        self._quarantine.each(sorted(self._ledger.on_node.get(node, ())), self._subject, "gang", look)

    def _subject(self, uid: str) -> Subject:
        """Whose work is what is done for a name in the books."""
        known = self._roster.of(uid) or self._replacements.of(uid)
        return of_gang(known.gang.key) if known is not None else of_pod(uid)

    def _tell_cap(self, known: GangInfo, now: float) -> None:
        """Once all of its minimum is there: until then nobody knows the highest of its members."""
        if known.gang.phase is Phase.ASSEMBLING or not known.gang.terms.priority_class:
            return
        why = self._capped(known.gang)
        if why != known.capped and (why is None or self._reporter.report(known, why, now)):
            known.capped = why
            self._controller.note(known)

    # -- its stage

    def _restage(self, known: GangInfo, pod: Pod, state: PodState | None, now: float) -> None:
        member = known.gang.members[pod.metadata.uid]
        if state is None:
            self._over(known, pod, member, now)
        elif pod.spec.node_name:
            self._on_node(known.gang, member, pod, state, now)
        elif self._counts(pod, state):
            self._waits(known, member, pod, state, now)
        else:
            self._members.leave(known.gang, member, refusals.GONE)
            known.gang.put(member, Stage.ABSENT)

    def _over(self, known: GangInfo, pod: Pod, member: Member, now: float) -> None:
        """The pod has ended, or goes before it had a node."""
        if _has_succeeded(pod):
            known.gang.succeed(member.uid)
            self._assignments.settled(member.uid)
            self._assignments.forget(member.uid)
        elif member.stage is not Stage.SUCCEEDED:
            failed = pod.status.phase == "Failed"
            if failed:
                known.failed[member.uid] = None
                self._failed[member.uid] = known
            self._drop(known, member, now, refused=failed and not pod.status.container_statuses)

    def _on_node(self, gang: Gang, member: Member, pod: Pod, state: PodState, now: float) -> None:
        node = pod.spec.node_name or ""
        if member.stage is Stage.IN_BIND:
            self._members.leave(gang, member, refusals.ELSEWHERE)
        self._assignments.settled(member.uid)
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
        return _fit(state) and not gated and not pod.metadata.deletion_timestamp

    def _waits(self, known: GangInfo, member: Member, pod: Pod, state: PodState, now: float) -> None:
        """The pod has no node yet."""
        gang = known.gang
        if self._assignments.learn(member.uid, state.info.constraints):
            known.planned = None
        if member.stage is Stage.ABSENT:
            refused = any(c.type == "PodScheduled" and c.status == "False" for c in pod.status.conditions)
            member.refused = refused or bool(pod.spec.scheduling_gates)
            gang.put(member, Stage.IDLE)
            if gang.phase in STARTED:
                self._replacements.refill(known, now, member)
                self._members.wake(gang, member)
        elif not self._assignments.sound(member.uid):
            self._members.misplaced(gang, member)

    # -- it goes

    def forget(self, uid: str, now: float, *, lives: bool = False) -> None:
        """The pod is gone, or (`lives`) left its gang and keeps what it holds. What a member has done stays done."""
        before, known = self._failed.pop(uid, None), self._roster.of(uid)
        if before is not None:  # its gang may be forgotten since
            before.failed.pop(uid, None)
            self._reporter.tell(before)
        if known is None:
            return
        with self._quarantine.over(of_gang(known.gang.key), "gang"):
            if known.gang.vanish(uid):
                self._roster.quit(uid)
                self._assignments.forget(uid)
            else:
                self._drop(known, known.gang.members[uid], now, lives=lives)
        if self._roster.of(uid) is not None:
            self._expel(known, uid)
        self._controller.settle(known, now)

    def _expel(self, known: GangInfo, uid: str) -> None:
        """An error came in between: the pod is gone all the same, and nobody may take it for a member any more."""
        steps: tuple[Callable[[], object], ...] = (
            lambda: None if known.gang.vanish(uid) else known.gang.lose(uid),
            lambda: self._roster.quit(uid),
            lambda: self._assignments.forget(uid),
        )
        self._quarantine.each(steps, lambda _: of_gang(known.gang.key), "gang", lambda step: step())

    def _drop(self, known: GangInfo, member: Member, now: float, *, refused: bool = False, lives: bool = False) -> None:
        self._members.leave(known.gang, member, refusals.GONE)
        known.gang.lose(member.uid, refused=refused)
        self._roster.quit(member.uid)
        self._assignments.forget(member.uid)
        pod = self._ledger.pods.get(member.uid)
        if pod is not None and not refused and not lives:
            self._replacements.keep(known, member, pod, now)


def _fit(pod: PodState) -> bool:
    """Whether it is ours and what it says makes sense."""
    return pod.info.ours and not isinstance(pod.asked, Reason) and not pod.forged


def _has_succeeded(pod: Pod) -> bool:
    """Whether the pod has done its work, rather than ended since it was told to go."""
    return pod.status.phase == "Succeeded" and bool(pod.spec.node_name) and not pod.metadata.deletion_timestamp

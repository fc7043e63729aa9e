"""Reads pods, PodGroups and nodes into gangs: their members, the members' stages, and the gangs' terms."""

from __future__ import annotations

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.controller import GangController
from extender.engine.gangs.members import MemberController
from extender.engine.gangs.models import Models
from extender.engine.gangs.replacement_holds import ReplacementHolds
from extender.engine.state.observe import ref_of
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
"""No gang starts so often: a greater number is forged, and the epochs after it could not be written."""


class GangObserver:
    """Takes in what the API server shows of gangs, and settles each gang afterwards, even after an error."""

    def __init__(
        self,
        context: GangContext,
        members: MemberController,
        replacements: ReplacementHolds,
        controller: GangController,
        models: Models,
    ) -> None:
        self._ledger, self._quarantine = context.ledger, context.quarantine
        self._roster, self._reporter, self._assignments = context.roster, context.reporter, context.assignments
        self._members, self._replacements, self._controller = members, replacements, controller
        self._outsiders, self._models = controller.outsiders, models
        self._priorities = context.priorities
        self._failed: dict[str, GangInfo] = {}
        """The gangs of failed pods that still exist, by the pod's UID."""

    # -- a pod, PodGroup or node is seen

    def see(self, pod: Pod, state: PodState | None, now: float) -> None:
        """Take in a pod; `state` is None when it has ended."""
        said = dialects.membership(pod)
        uid = pod.metadata.uid
        known = self._roster.of(uid)
        if known is not None and self._quarantine:
            self._quarantine.changed(known.subject)
        if known is not None and (said is None or said.key != known.gang.key):
            self.forget(uid, now, lives=state is not None)
            known = None
        if said is None or (known is None and state is None and not _has_succeeded(pod)):
            return
        if known is None:
            known = self._roster.join(pod, said, now)
            if not said.key.name and not pod.spec.node_name:
                self._reporter.unnamed(ref_of(pod), said.problems)
        outside = not pod.spec.node_name and self._outsiders.bars(known, known.gang.members[uid])
        self._roster.say(uid, None if outside else said.said)
        self._reporter.warn(known, now)
        with self._quarantine.over(known.subject, "gang"):
            self._restage(known, pod, state, said.said, now)
        self._controller.settle(known, now)
        self._report_cap(known, now)

    def declare(self, kind: str, key: GroupKey, declaration: Declaration | None, now: float) -> None:
        """A PodGroup declares this, or is deleted (None)."""
        known = self._roster.gang(key, now)
        self._quarantine.changed(of_gang(key))
        known.told = None
        self._roster.declare(known, kind, declaration)
        self._reporter.warn(known, now)
        self._controller.settle(known, now)

    def asks_anew(self, pod: PodState, now: float) -> None:
        """The request of a pending pod has changed, though its object has not."""
        known = self._roster.of(pod.ref.uid)
        member = known.gang.members[pod.ref.uid] if known is not None else None
        if known is None or member is None or member.stage is Stage.ABSENT or member.uid in known.outsiders:
            return
        with self._quarantine.over(known.subject, "gang"):
            self._reconsider(known, member, pod)
        self._controller.settle(known, now)

    def awaits(self, pod: PodState) -> bool:
        """Whether the pod may wait for its gang behind our scheduling gate: it is a valid member."""
        return self._roster.of(pod.ref.uid) is not None and _is_valid(pod)

    def look_at(self, node: str, now: float) -> None:
        """The node has changed or is gone: recheck the places that are held there."""

        def look(uid: str) -> None:
            known, kept_for = self._roster.of(uid), self._replacements.of(uid)
            if known is not None:
                self._controller.recheck(known, known.gang.members[uid], now)
            elif kept_for is not None:
                self._replacements.check(uid)
                self._controller.settle(kept_for, now)

        def subject(uid: str) -> Subject:
            known = self._roster.of(uid) or self._replacements.of(uid)
            return known.subject if known is not None else of_pod(uid)

        self._quarantine.each(sorted(self._ledger.on_node.get(node, ())), subject, "gang", look)

    def _report_cap(self, known: GangInfo, now: float) -> None:
        """Report a capped priority once the minimum exists; before that the members' highest priority is unknown."""
        if known.gang.phase is Phase.ASSEMBLING or not known.gang.terms.priority_class:
            return
        why = self._priorities.capped(known.gang)
        if why != known.capped and (why is None or self._reporter.report(known, why, now)):
            known.capped = why
            self._controller.note(known)

    # -- a member's stage

    def _restage(self, known: GangInfo, pod: Pod, state: PodState | None, said: Declaration | None, now: float) -> None:
        spec, member = pod.spec, known.gang.members[pod.metadata.uid]
        pending = state is not None and not spec.node_name and _is_pending(pod, state)
        if pending and self._outsiders.bars(known, member):
            self._outsiders.keep_out(known, member, said)
            return
        known.outsiders.pop(member.uid, None)
        if state is None:
            self._ended(known, pod, member, now)
        elif spec.node_name:
            self._on_node(known.gang, member, pod, state, now)
        elif pending:
            self._pending(known, member, pod, state, now)
        else:
            self._members.leave(known.gang, member, refusals.GONE)
            known.gang.put(member, Stage.ABSENT)

    def _ended(self, known: GangInfo, pod: Pod, member: Member, now: float) -> None:
        """The pod has ended, or is deleted before it had a node."""
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
            epoch, size = (group.epoch, group.size) if group and group.key == str(gang.key) else (0, 0)
            epoch, size = (epoch, size) if max(epoch, size) < MOST_EPOCHS else (0, 0)
            times = [c.last_transition_time for c in pod.status.conditions if c.type == "PodScheduled"]
            gang.bound(member.uid, node, epoch, self._roster.clock(times[0] if times else None, now), size)

    def _pending(self, known: GangInfo, member: Member, pod: Pod, state: PodState, now: float) -> None:
        gang = known.gang
        if member.stage is not Stage.ABSENT:
            self._reconsider(known, member, state)
        else:
            self._learn(known, member, state)
            refused = any(c.type == "PodScheduled" and c.status == "False" for c in pod.status.conditions)
            member.refused = refused or bool(pod.spec.scheduling_gates)
            gang.put(member, Stage.IDLE)
            if gang.phase in STARTED:
                self._models.restrict(gang, member.uid)
                self._replacements.refill(known, now, member)
                self._members.wake(gang, member)

    def _reconsider(self, known: GangInfo, member: Member, pod: PodState) -> None:
        """A pending member may ask for something else, or have another place."""
        self._learn(known, member, pod)
        if not self._assignments.sound(member.uid):
            self._members.misplaced(known.gang, member)

    def _learn(self, known: GangInfo, member: Member, pod: PodState) -> None:
        if self._assignments.learn(member.uid, pod.info.constraints):
            known.planned = None

    # -- a pod is gone

    def forget(self, uid: str, now: float, *, lives: bool = False) -> None:
        """The pod is deleted, or has left its gang and keeps what it holds (`lives`). A success still counts."""
        failed_in, known = self._failed.pop(uid, None), self._roster.of(uid)
        if failed_in is not None:  # its gang may be forgotten since
            failed_in.failed.pop(uid, None)
            self._reporter.tell(failed_in)
        if known is None:
            return
        with self._quarantine.over(known.subject, "gang"):
            if known.gang.vanish(uid):
                self._roster.quit(uid)
                self._assignments.forget(uid)
            else:
                self._drop(known, known.gang.members[uid], now, lives=lives)
        if self._roster.of(uid) is not None:  # an error came in between
            self._expel(known, uid)
        self._controller.settle(known, now)

    def _expel(self, known: GangInfo, uid: str) -> None:
        """Make a deleted pod no member any more; each step is taken even if another one fails."""

        def lose(uid: str) -> None:
            if not known.gang.vanish(uid):
                known.gang.lose(uid)

        steps = (lose, self._roster.quit, self._assignments.forget)
        self._quarantine.each(steps, lambda _: known.subject, "gang", lambda step: step(uid))

    def _drop(self, known: GangInfo, member: Member, now: float, *, refused: bool = False, lives: bool = False) -> None:
        self._members.leave(known.gang, member, refusals.GONE)
        known.gang.lose(member.uid, refused=refused)
        self._roster.quit(member.uid)
        self._assignments.forget(member.uid)
        pod = self._ledger.pods.get(member.uid)
        if pod is not None and not refused and not lives:
            self._replacements.keep(known, member, pod, now)


def _is_valid(pod: PodState) -> bool:
    """Whether the pod has one of our schedulers and can be read."""
    return pod.info.ours and not isinstance(pod.asked, Reason) and not pod.forged


def _is_pending(pod: Pod, state: PodState) -> bool:
    """Whether the pod is a valid one that waits for a node, with no scheduling gates but ours."""
    free = all(gate.name == names.PLAN_GATE for gate in pod.spec.scheduling_gates)
    return free and _is_valid(state) and not pod.metadata.deletion_timestamp


def _has_succeeded(pod: Pod) -> bool:
    """Whether the pod has done its work, rather than ended because it was deleted."""
    return pod.status.phase == "Succeeded" and bool(pod.spec.node_name) and not pod.metadata.deletion_timestamp

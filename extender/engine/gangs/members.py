"""What is done about members: they get a place or give it back, are requeued if they do not come, or are evicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.reporter import ref
from extender.engine.state.agenda import NEVER
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo
from extender.engine.state.seats import Assignment
from extender.engine.types import refusals
from extender.engine.types.effects import Deny, Evict, PostBinding, Requeue
from gangfilter.gang import BEFORE, Gang
from gangfilter.group import GroupKey
from gangfilter.members import Member, Stage
from gangfilter.minimum import last
from gangfilter.table import Phase
from protos.contract.reason import Reason

Release = Callable[[PodState, Gang], PostBinding]
"""Books the held place of a member and makes its Binding."""
EVICTED_AGAIN_S = 5.0
"""Seconds after which an eviction is repeated."""


class MemberController:
    """Changes a member's stage together with its place in the books: only PLANNED, IN_BIND and POSTED have a place."""

    def __init__(self, context: GangContext, release: Release) -> None:
        self._ledger, self._outbox, self._roster = context.ledger, context.outbox, context.roster
        self._assignments = context.assignments
        self._holds, self._waking, self._release = context.holds, context.waking, release
        self._evicting: dict[GroupKey, None] = {}
        """The gangs with members that are being evicted."""

    # -- places

    def seat(self, gang: Gang, member: Member, assignment: Assignment) -> None:
        """Hold this place for the member, and requeue it for that place."""
        self.no_single(member)
        self._assignments.hold({member.uid: assignment})
        member.node = assignment.node
        gang.put(member, Stage.PLANNED)
        self.wake(gang, member)

    def post(self, gang: Gang, member: Member) -> PostBinding:
        """The Binding of a member to its place."""
        place = self._release(self._ledger.pods[member.uid], gang)
        gang.post(member.uid, member.node)  # only now: a member is POSTED only with a Binding on its way
        return place

    def leave(self, gang: Gang, member: Member, why: Reason) -> None:
        """Give back the member's place, and answer its bind."""
        if member.stage is Stage.IN_BIND:
            self._outbox.put(Deny(ref(gang, member), why))
        self._assignments.drop(member.uid)
        member.node, member.denied_at = "", 0.0

    def give_back(self, gang: Gang, why: Reason) -> None:
        """Give back all held places, and answer all binds; a member that did not come is requeued the next time."""
        with self._assignments.batched():
            for member in gang.holding():
                member.refused = member.refused or member.stage is Stage.PLANNED
                self.leave(gang, member, why)
                gang.put(member, Stage.IDLE)

    def misplaced(self, gang: Gang, member: Member) -> None:
        """The held place is no longer usable: a start is planned again, a later member is placed like a single pod."""
        if gang.phase is Phase.STARTING:
            gang.plan_invalidated = True
        elif member.stage is Stage.PLANNED:
            self.go_single(gang, member)

    def go_single(self, gang: Gang, member: Member) -> None:
        """Have the member placed like a single pod from now on."""
        self.leave(gang, member, refusals.gang_starting(gang.key))
        gang.put(member, Stage.IDLE)
        self.wake(gang, member)

    def no_single(self, member: Member) -> None:
        """Stop placing the member like a single pod: it loses its soft charge and its place in the requeue."""
        pod = self._ledger.pods[member.uid]
        member.refused = member.refused or pod.refusal is not None
        self._holds.drop(pod)
        self._waking.forget(pod)

    # -- requeue

    def call(self, gang: Gang) -> None:
        """Requeue the externally bound members, once only they are missing at the barrier."""
        for member in last(gang):
            self.wake(gang, member)

    def wake(self, gang: Gang, member: Member) -> None:
        """Requeue a member that does not come by itself, to its place if it has one."""
        if member.refused:
            member.refused = False
            nominate = self._ledger.pods[member.uid].sampled or not self._assignments.spread(member.uid)
            self._outbox.put(Requeue(ref(gang, member), member.node, nominate=nominate))

    # -- eviction, by the leading process only

    def evicting(self) -> Iterator[str]:
        """UIDs of bound members that are being evicted."""
        for key in self._evicting:
            yield from (member.uid for member in self._roster.known[key].gang.at(Stage.EVICTING))

    def note_evictions(self, known: GangInfo) -> None:
        """Remember whether members of the gang are being evicted."""
        key = known.gang.key
        if key in self._roster.known and known.gang.count(Stage.EVICTING):
            self._evicting[key] = None
        else:
            self._evicting.pop(key, None)

    def evict_again_at(self, known: GangInfo) -> float:
        """When the evictions are repeated."""
        return known.evicted_at + EVICTED_AGAIN_S if _must_go(known.gang) else NEVER

    def evict(self, known: GangInfo, now: float) -> None:
        """Evict all removable members; those of a completed gang whether they are removable or not."""
        gang = known.gang
        if not self._roster.leading:
            return
        known.evicted_at = now
        completed = gang.phase is Phase.COMPLETED
        why = refusals.gang_done(gang.key) if completed else refusals.gang_undone(gang.key)
        for member in gang.at(Stage.BOUND, Stage.EVICTING):
            if completed or member.removable:
                gang.put(member, Stage.EVICTING)
                self._outbox.put(Evict(ref(gang, member), why))


def _must_go(gang: Gang) -> bool:
    """Whether members are evicted again and again until they are gone."""
    if gang.preempted:
        return False
    if gang.phase in BEFORE:
        return gang.count(Stage.EVICTING) > 0
    ends = gang.phase is Phase.UNDOING or (gang.phase is Phase.COMPLETED and bool(gang.terms.on_completion))
    return ends and gang.count(Stage.BOUND, Stage.EVICTING) > 0

"""What is done about one member: it gets a place or gives it back, and is woken where it does not come by itself."""

from __future__ import annotations

from collections.abc import Callable

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.reporter import ref
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment
from extender.engine.types import refusals
from extender.engine.types.effects import Deny, PostBinding, Requeue
from gangfilter.gang import Gang
from gangfilter.members import Member, Stage
from gangfilter.minimum import last
from gangfilter.table import Phase
from protos.contract.reason import Reason

Release = Callable[[PodState, Gang], PostBinding]
"""Books the place held for a member for good and makes its Binding."""


class MemberController:
    """Changes a member's stage together with its place in the books: who has a place is PLANNED, in bind, or posted."""

    def __init__(self, context: GangContext, release: Release, unpromise: Callable[[PodState], None]) -> None:
        """`unpromise` takes back what a pod was promised, or waits for, as a single one."""
        self._ledger, self._counters = context.ledger, context.counters
        self._reporter, self._assignments = context.reporter, context.assignments
        self._release, self._unpromise = release, unpromise

    # -- places

    def seat(self, gang: Gang, member: Member, assignment: Assignment) -> None:
        """Hold this place for the member, and bring it there."""
        self.no_single(member)
        self._assignments.hold({member.uid: assignment})
        member.node = assignment.node
        gang.put(member, Stage.PLANNED)
        self.wake(gang, member)

    def post(self, gang: Gang, member: Member) -> PostBinding:
        """The Binding of a member to its place."""
        place = self._release(self._ledger.pods[member.uid], gang)
        gang.post(member.uid, member.node)  # not before: whoever is posted has a Binding on its way
        return place

    def leave(self, gang: Gang, member: Member, why: Reason) -> None:
        """The member holds nothing any more, nor is it in bind."""
        if member.stage is Stage.IN_BIND:
            self._reporter.effects.append(Deny(ref(gang, member), why))
        self._assignments.drop(member.uid)
        member.node, member.denied_at = "", 0.0

    def give_back(self, gang: Gang, why: Reason) -> None:
        """Give back all that is held, and answer everybody in bind; who did not come is woken the next time."""
        with self._assignments.batched():
            for member in gang.holding():
                member.refused = member.refused or member.stage is Stage.PLANNED
                self.leave(gang, member, why)
                gang.put(member, Stage.IDLE)

    def misplaced(self, gang: Gang, member: Member) -> None:
        """The place held for a member is none: a start is planned anew, later on the member goes on by itself."""
        if gang.phase is Phase.STARTING:
            gang.plan_invalidated = True
        elif member.stage is Stage.PLANNED:
            self.go_single(gang, member)

    def go_single(self, gang: Gang, member: Member) -> None:
        """Have the member placed like any single pod from now on."""
        self.leave(gang, member, refusals.gang_starting(gang.key))
        gang.put(member, Stage.IDLE)
        self.wake(gang, member)

    def no_single(self, member: Member) -> None:
        """The member is not placed singly any more."""
        pod = self._ledger.pods[member.uid]
        member.refused = member.refused or pod.refusal is not None
        self._unpromise(pod)

    # -- who shall come

    def call(self, gang: Gang) -> None:
        """Bring back those that go last, if it is their turn."""
        for member in last(gang):
            self.wake(gang, member)

    def wake(self, gang: Gang, member: Member) -> None:
        """Bring a member back that does not come by itself, to its place if it has one."""
        if member.refused:
            member.refused = False
            self._reporter.effects.append(
                Requeue(ref(gang, member), member.node, nominate=not self._assignments.spread(member.uid))
            )
            self._counters["pod_requeues", ""] += 1

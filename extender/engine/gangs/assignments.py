"""Where members of gangs go: the places held for them, and the nodes that are closed to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from extender.engine.state.intree import Constraints
from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment, Seat, stands
from gangfilter.members import Member
from protos.contract.ask import PodAsk
from protos.contract.reason import Reason

MemberDemand = tuple[PodAsk | Reason | None, Constraints]


class Assignments:
    """The places held for members, in step with the ledger: each is a soft charge until its Binding is written."""

    def __init__(self, ledger: Ledger, batched: Callable[[], AbstractContextManager[None]]) -> None:
        """`batched` has the queues reckon once for all that is held or given back inside."""
        self._ledger, self.batched = ledger, batched
        self.of_member: dict[str, Assignment] = {}
        """Where a member goes whose place is held, or whose Binding is being written."""
        self.demands: dict[str, MemberDemand] = {}
        """What a member wants of GPUs, and which nodes it may go to."""

    # -- what members want

    def learn(self, uid: str, constraints: Constraints) -> bool:
        """Note what a member that waits wants now; returns whether it wanted something else before."""
        before = self.demands.get(uid)
        self.demands[uid] = now = (self._ledger.pods[uid].asked, constraints)
        return before is not None and before != now

    def spread(self, uid: str) -> bool:
        """Whether a member must be spread over nodes with others of the gang."""
        demand = self.demands.get(uid)
        return demand is not None and demand[1].spread is not None

    def seat(self, member: Member) -> Seat:
        """What the member asks of a plan."""
        pod = self._ledger.pods[member.uid]
        excluded = self._ledger.excluded.get(member.uid, 0)
        return Seat(
            member.uid, pod.ask, pod.requests, self.demands[member.uid][1], excluded, member.role, member.required
        )

    def exclude(self, uid: str, node: str) -> None:
        """Keep the member off this node, as kube-scheduler does."""
        state = self._ledger.nodes.get(node)
        if state is not None:
            self._ledger.excluded[uid] = self._ledger.excluded.get(uid, 0) | 1 << state.number

    def restrict(self, uid: str, nodes: Sequence[str]) -> bool:
        """Let the member go to these nodes only, as kube-scheduler does; returns whether one of them is new."""
        before, left_out = self._ledger.excluded.get(uid, 0), self._ledger.all_but(nodes)
        self._ledger.excluded[uid] = left_out
        return bool(before & ~left_out)

    # -- places

    def hold(self, assignments: Mapping[str, Assignment]) -> None:
        """Book all these places."""
        with self.batched():
            for uid, assignment in assignments.items():
                self.of_member[uid] = assignment
                self._ledger.hold(self._ledger.pods[uid], assignment.node, assignment.charges)

    def holds(self, pod: PodState) -> bool:
        """Whether a place is held for this pod."""
        return pod.ref.uid in self.of_member

    def trade(self, one: str, other: str) -> bool:
        """Give each of two members the place of the other, if those who ask the same may go there."""
        mine, theirs = self.of_member[one], self.of_member[other]
        if not self._alike(one, other) or self._off(one, theirs) or self._off(other, mine):
            return False
        self.drop(one)
        self.drop(other)
        self.hold({one: theirs, other: mine})
        return True

    def _alike(self, one: str, other: str) -> bool:
        first, second = self._ledger.pods[one], self._ledger.pods[other]
        return (first.ask, first.requests, self.demands[one]) == (second.ask, second.requests, self.demands[other])

    def _off(self, uid: str, assignment: Assignment) -> bool:
        """Whether kube-scheduler keeps the member off this place."""
        state = self._ledger.nodes.get(assignment.node)
        return state is None or bool(self._ledger.excluded.get(uid, 0) >> state.number & 1)

    def hold_again(self, uid: str) -> bool:
        """Book a member's place once more, after its Binding did not happen; returns whether there still is one."""
        assignment = self.of_member.get(uid)
        if assignment is None:
            return False
        self._ledger.hold(self._ledger.pods[uid], assignment.node, assignment.charges)
        return self.sound(uid)

    def sound(self, uid: str) -> bool:
        """Whether the place held for a member, if there is one, is still good."""
        assignment, pod = self.of_member.get(uid), self._ledger.pods.get(uid)
        if assignment is None or pod is None:
            return True
        node = self._ledger.nodes.get(assignment.node)
        return stands(assignment, uid, pod.ask, node) and node is not None and self.demands[uid][1].admits(node)

    def settled(self, uid: str) -> None:
        """Hold nothing for the member any more: it is bound."""
        self.of_member.pop(uid, None)

    def drop(self, uid: str) -> None:
        """Give back the place held for a member, if there is one."""
        if self.of_member.pop(uid, None) is not None:
            pod = self._ledger.pods.get(uid)
            if pod is not None and pod.state == "held":
                self._ledger.unbind(pod)

    def forget(self, uid: str) -> None:
        """The member is gone."""
        self.demands.pop(uid, None)
        self._ledger.excluded.pop(uid, None)
        self.drop(uid)

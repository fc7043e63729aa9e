"""Assignments of gang members: the places held for them, and the nodes that each must not use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from extender.engine.state.intree import Constraints
from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment, Seat, stands
from extender.engine.types.look import Look
from gangfilter.members import Member
from protos.contract.ask import PodAsk
from protos.contract.reason import Reason

MemberDemand = tuple[PodAsk | Reason | None, Constraints]


class Assignments:
    """The places held for members, each of them a soft charge in the ledger until its Binding is written."""

    def __init__(self, ledger: Ledger, batched: Callable[[], AbstractContextManager[None]]) -> None:
        """Inside `batched` the queues are recomputed once for all changes."""
        self._ledger, self.batched = ledger, batched
        self.of_member: dict[str, Assignment] = {}
        """By UID of a member whose place is held or whose Binding is being written."""
        self.demands: dict[str, MemberDemand] = {}
        """The GPUs that a member requests, and the constraints on its nodes."""

    # -- demands

    def learn(self, uid: str, constraints: Constraints) -> bool:
        """Note the demand of a pending member; returns whether it has changed."""
        before = self.demands.get(uid)
        self.demands[uid] = now = (self._ledger.pods[uid].asked, constraints)
        return before is not None and before != now

    def spread(self, uid: str) -> bool:
        """Whether a member has a topology spread over nodes."""
        demand = self.demands.get(uid)
        return demand is not None and demand[1].spread is not None

    def seat(self, member: Member) -> Seat:
        """What the member needs of a plan."""
        pod = self._ledger.pods[member.uid]
        excluded = self._ledger.excluded.get(member.uid, 0)
        return Seat(
            member.uid, pod.ask, pod.requests, self.demands[member.uid][1], excluded, member.role, member.required
        )

    def exclude(self, uid: str, node: str) -> None:
        """Exclude a node for the member, as kube-scheduler does."""
        state = self._ledger.nodes.get(node)
        if state is not None:
            self._ledger.excluded[uid] = self._ledger.excluded.get(uid, 0) | 1 << state.number

    def restrict(self, uid: str, look: Look) -> bool:
        """Exclude the nodes that kube-scheduler refuses, and no others; returns whether one of those was excluded."""
        before, excluded = self._ledger.excluded.get(uid, 0), self._ledger.refused_by(look)
        self._ledger.excluded[uid] = excluded
        return bool(before & ~excluded)

    # -- places

    def hold(self, assignments: Mapping[str, Assignment]) -> None:
        """Book all these places softly."""
        with self.batched():
            for uid, assignment in assignments.items():
                self.of_member[uid] = assignment
                self._ledger.hold(self._ledger.pods[uid], assignment.node, assignment.charges)

    def holds(self, pod: PodState) -> bool:
        """Whether a place is held for this pod."""
        return pod.ref.uid in self.of_member

    def swap(self, first: str, second: str) -> bool:
        """Swap the places of two members if their requests are equal and each may use the other's node."""
        places, pods = self.of_member, self._ledger.pods
        swapped = {first: places[second], second: places[first]}
        if (pods[first].ask, pods[first].requests) != (pods[second].ask, pods[second].requests):
            return False
        if self.demands[first] != self.demands[second] or any(self._excluded(*place) for place in swapped.items()):
            return False
        self.drop(first)
        self.drop(second)
        self.hold(swapped)
        return True

    def _excluded(self, uid: str, assignment: Assignment) -> bool:
        """Whether kube-scheduler excludes this node for the member."""
        state = self._ledger.nodes.get(assignment.node)
        return state is None or bool(self._ledger.excluded.get(uid, 0) >> state.number & 1)

    def hold_again(self, uid: str) -> bool:
        """Hold a member's place again after its Binding failed; returns whether the place is still usable."""
        assignment = self.of_member.get(uid)
        if assignment is None:
            return False
        self._ledger.hold(self._ledger.pods[uid], assignment.node, assignment.charges)
        return self.sound(uid)

    def sound(self, uid: str) -> bool:
        """Whether the held place of a member, if there is one, is still usable."""
        assignment, pod = self.of_member.get(uid), self._ledger.pods.get(uid)
        if assignment is None or pod is None:
            return True
        node = self._ledger.nodes.get(assignment.node)
        return stands(assignment, uid, pod.ask, node) and node is not None and self.demands[uid][1].admits(node)

    def settled(self, uid: str) -> None:
        """The member is bound: its place is no longer held here."""
        self.of_member.pop(uid, None)

    def drop(self, uid: str) -> None:
        """Give back the held place of a member, if there is one."""
        if self.of_member.pop(uid, None) is not None:
            pod = self._ledger.pods.get(uid)
            if pod is not None and pod.state == "held":
                self._ledger.unbind(pod)

    def forget(self, uid: str) -> None:
        self.demands.pop(uid, None)
        self._ledger.excluded.pop(uid, None)
        self.drop(uid)

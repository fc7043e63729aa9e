"""Plans gangs, one after the other, and keeps what a start holds until it is bound or given up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from extender.engine.placement.index import Indexes
from extender.engine.planning.attempt import ClusterView
from extender.engine.planning.backfill_guard import Kept
from extender.engine.planning.plan import Placement, Plan
from extender.engine.planning.scarcity import Scarcity
from extender.engine.planning.shortage import Shortage
from extender.engine.queueing.admission import Admission
from extender.engine.queueing.turns import Turns
from extender.engine.state.intree import Amounts, Constraints
from extender.engine.state.ledger import Ledger
from extender.engine.state.seats import Assignment, Seat, least, stands
from extender.engine.types.settings import Settings
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.members import ON_NODE, SETTLED, Stage
from protos.contract.ask import PodAsk
from protos.contract.reason import Reason

Outcome = Placement | Shortage | Scarcity | Reason
"""What comes of a gang that wants a plan; a Reason if its queue has no room."""
SHORT = 20
"""A plan of fewer slices is short: it takes some 10 ms."""
MemberDemand = tuple[PodAsk | Reason | None, Constraints]

KeptBefore = Callable[[Gang, float], Kept]
"""What is reserved on nodes, when it starts now, for those before a gang in its queue."""


class GangPlanner:
    """The gangs that want a plan, the plan in the making, and the places held."""

    def __init__(
        self, ledger: Ledger, indexes: Indexes, settings: Settings, admission: Admission, turns: Turns
    ) -> None:
        self._ledger, self._admission, self.batched = ledger, admission, admission.batched
        ignored = frozenset(settings.resources.all)
        self.view = ClusterView(ledger.nodes, indexes, ignored, settings.resources, settings.locality_labels)
        self.turns = turns
        self._plan: tuple[Gang, Sequence[Seat], Plan] | None = None
        self._slices = 0
        """How many it took so far."""
        self.assignments: dict[str, Assignment] = {}
        """Where a member goes whose place is held, or whose Binding is being written."""
        self.demands: dict[str, MemberDemand] = {}
        """What a member wants of GPUs, and which nodes it may go to."""
        self.excluded: dict[str, int] = {}
        """Nodes that kube-scheduler refuses a member: bits by node number."""

    def want(self, gang: Gang) -> None:
        """The gang shall be planned; what is planned already begins anew."""
        self.turns.put(gang)
        self._stop(gang)

    def unwant(self, gang: Gang) -> None:
        """The gang shall not be planned."""
        self.turns.remove(gang)
        self._stop(gang)

    def close(self, gang: Gang) -> None:
        """The gang is none any more."""
        self.unwant(gang)
        self._admission.drop(gang.key)

    def _stop(self, gang: Gang) -> None:
        if self._plan is not None and self._plan[0] is gang:
            self._plan = None

    def wanted(self, gang: Gang) -> bool:
        """Whether the gang's plan is still to come."""
        return gang in self.turns

    def next(self, gang: Gang) -> bool:
        """Whether the gang's plan is the next to come out, after a few slices at most."""
        if gang not in self.turns:
            return False
        if self._plan is None:
            return self.turns.first() is gang
        return self._plan[0] is gang and self._slices < SHORT

    def withheld(self, gang: Gang) -> Reason | None:
        """Why its queue does not let the gang start, None if it does."""
        return self._admission.withheld(gang, lambda: (seat.uid for seat in self.asked(gang)[1]))

    def park(self, gang: Gang) -> None:
        """The gang waits for room in its queue alone."""
        self._admission.park(gang)

    def unparked(self) -> list[GroupKey]:
        """Those of them that may have room by now, told once."""
        return self._admission.unparked()

    def refused(self, gang: Gang, placement: Placement) -> Reason | None:
        """Why its queue has no room for all these members any more, None if it has."""
        return self._admission.admits(gang, placement.assignments)

    @property
    def idle(self) -> bool:
        return not self.turns

    def upcoming(self) -> Gang | None:
        """Whose plan is in the making, or is the next; None if nobody wants one."""
        return self._plan[0] if self._plan is not None else self.turns.first()

    def advance(self, gang: Gang, now: float, kept: KeptBefore) -> Outcome | None:
        """Do a slice of planning for the next; returns what came of its plan, to be taken at once.

        Whose queue has no room gets that as its outcome; whose queue has room for its minimum alone starts with that.
        """
        if self._plan is None:
            withheld = self.withheld(gang)
            if withheld is not None:
                self.turns.remove(gang)
                return withheld
            seats, minimum, free = self.asked(gang)
            if self._admission.admits(gang, (seat.uid for seat in seats)) is not None:
                seats = minimum
            beside = [member.node for member in gang.at(*ON_NODE)]
            view = msgspec.structs.replace(self.view, kept=kept(gang, now))
            self._plan, self._slices = (gang, seats, Plan(view, seats, minimum, free, beside)), 0
        _, seats, plan = self._plan
        self._slices += 1
        if not plan.advance():
            return None
        self._plan = None
        if any(not self._holds(gang, seat) for seat in seats):
            return None  # somebody went, or wants something else by now: it is planned anew
        self.turns.remove(gang)
        assert plan.outcome is not None
        return plan.outcome

    def asked(self, gang: Gang, first: Collection[str] = ()) -> tuple[Sequence[Seat], Sequence[Seat], Amounts]:
        """The members that need a place, those of the smallest start, and how much has to be free for it.

        Of equal use for that are those in `first` (UIDs) before others.
        """
        seats = list(self.seats(gang, first))
        there = gang.roles(*SETTLED)
        missing = [(role, least - there[role]) for role, least in gang.terms.min_by_role]
        minimum = (gang.terms.min_member or 0) - there.total()
        free = gang.terms.min_resources if not there else ()  # part of it has run: it was admitted once
        return seats, least(seats, minimum, missing), free

    def seats(self, gang: Gang, first: Collection[str] = ()) -> Iterator[Seat]:
        """The members that need a place; of those that are gone by the time they are read, none."""
        order = _order(gang)
        order = sorted(order, key=lambda uid: uid not in first) if first else order
        return (self._seat(gang, uid) for uid in order if uid in gang.members)

    def _seat(self, gang: Gang, uid: str) -> Seat:
        member, pod = gang.members[uid], self._ledger.pods[uid]
        excluded = self.excluded.get(uid, 0)
        return Seat(uid, pod.ask, pod.requests, self.demands[uid][1], excluded, member.role, member.required)

    def _holds(self, gang: Gang, seat: Seat) -> bool:
        """Whether a member is still what it was when its plan began."""
        member = gang.members.get(seat.uid)
        if member is None or member.stage is not Stage.IDLE:
            return False
        return (seat.ask, seat.constraints) == (self._ledger.pods[seat.uid].ask, self.demands[seat.uid][1])

    def learn(self, uid: str, constraints: Constraints) -> bool:
        """What a member that waits wants now; returns whether it wanted something else before."""
        before = self.demands.get(uid)
        self.demands[uid] = now = (self._ledger.pods[uid].asked, constraints)
        return before is not None and before != now

    def spread(self, uid: str) -> bool:
        """Whether a member must be spread over nodes with others of the gang."""
        demand = self.demands.get(uid)
        return demand is not None and demand[1].spread is not None

    # -- where members may not go

    def exclude(self, uid: str, node: str) -> None:
        """kube-scheduler keeps the member off this node."""
        state = self._ledger.nodes.get(node)
        if state is not None:
            self.excluded[uid] = self.excluded.get(uid, 0) | 1 << state.number

    def restrict(self, uid: str, nodes: Sequence[str]) -> bool:
        """kube-scheduler lets the member go to these nodes only; returns whether one of them is new."""
        before, left_out = self.excluded.get(uid, 0), self._ledger.all_but(nodes)
        self.excluded[uid] = left_out
        return bool(before & ~left_out)

    def renumbered(self, gone: int) -> None:
        """These bits are about to stand for other nodes."""
        for uid, nodes in self.excluded.items():
            self.excluded[uid] = nodes & ~gone

    # -- places

    def started(self, gang: Gang, assignments: Mapping[str, Assignment]) -> None:
        """The gang starts at these places: they are booked."""
        self.hold(assignments)
        self._admission.started(gang.key)

    def hold(self, assignments: Mapping[str, Assignment]) -> None:
        """Book all these places."""
        with self.batched():
            for uid, assignment in assignments.items():
                self.assignments[uid] = assignment
                self._ledger.hold(self._ledger.pods[uid], assignment.node, assignment.charges)

    def trade(self, one: str, other: str) -> bool:
        """Give each of two members the place of the other, if those who ask the same may go there."""
        if (
            not self._alike(one, other)
            or self._off(one, self.assignments[other])
            or self._off(other, self.assignments[one])
        ):
            return False
        mine, theirs = self.assignments[one], self.assignments[other]
        self.drop(one)
        self.drop(other)
        self.hold({one: theirs, other: mine})
        return True

    def _alike(self, one: str, other: str) -> bool:
        first, second = self._ledger.pods[one], self._ledger.pods[other]
        return (first.ask, first.requests, self.demands[one]) == (
            second.ask,
            second.requests,
            self.demands[other],
        )

    def _off(self, uid: str, assignment: Assignment) -> bool:
        """Whether kube-scheduler keeps the member off this place."""
        state = self._ledger.nodes.get(assignment.node)
        return state is None or bool(self.excluded.get(uid, 0) >> state.number & 1)

    def hold_again(self, uid: str) -> bool:
        """Book a member's place once more, after its Binding did not happen; returns whether there still is one."""
        assignment = self.assignments.get(uid)
        if assignment is None:
            return False
        self._ledger.hold(self._ledger.pods[uid], assignment.node, assignment.charges)
        return self.sound(uid)

    def sound(self, uid: str) -> bool:
        """Whether the place held for a member, if there is one, is still good."""
        assignment, pod = self.assignments.get(uid), self._ledger.pods.get(uid)
        if assignment is None or pod is None:
            return True
        node = self._ledger.nodes.get(assignment.node)
        return stands(assignment, uid, pod.ask, node) and node is not None and self.demands[uid][1].admits(node)

    def drop(self, uid: str) -> None:
        """Give back the place held for a member, if there is one."""
        if self.assignments.pop(uid, None) is not None:
            pod = self._ledger.pods.get(uid)
            if pod is not None and pod.state == "held":
                self._ledger.unbind(pod)

    def forget(self, uid: str) -> None:
        """The member is gone."""
        self.demands.pop(uid, None)
        self.excluded.pop(uid, None)
        self.drop(uid)

    def settled(self, uid: str) -> None:
        """The member is bound."""
        self.assignments.pop(uid, None)


def _order(gang: Gang) -> list[str]:
    """The members that need a place: by priority, age and name."""
    waiting = [m for m in gang.members.values() if m.stage is Stage.IDLE]
    return [m.uid for m in sorted(waiting, key=lambda m: (-m.priority, m.since, m.name, m.uid))]

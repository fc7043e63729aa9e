"""Answers kube-scheduler's filter and bind of gang members: the planned node and no other, and a bind that waits.

Equal members swap places, because kube-scheduler tries them in its own order and may refuse a node for one of them. A
topology spread allows a second member on a node only once every other node has one; a volume that is provisioned late
ties a worker to another's node. A swap gives the member a node that kube-scheduler offers, without a new plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.engine.gangs.controller import REFUSED_AGAIN_S
from extender.engine.gangs.gangs import Gangs
from extender.engine.gangs.planner import KeptBefore
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo
from extender.engine.types import refusals
from extender.engine.types.effects import BindAnswer, Held, Refuse, Verdict
from extender.engine.types.look import Look
from gangfilter.gang import STARTED, Gang
from gangfilter.members import HOLDING, Member, Stage
from gangfilter.minimum import last
from gangfilter.table import Phase
from protos.contract.reason import Reason


class Barrier:
    """Answers filter and bind of members, and takes in the outcome of their binds.

    A member with a place goes there and nowhere else, and only when its whole gang is in bind.
    """

    def __init__(self, gangs: Gangs) -> None:
        self._roster, self._planner, self._assignments = gangs.roster, gangs.planner, gangs.assignments
        self._members, self._replacements, self._controller = gangs.members, gangs.replacements, gangs.controller
        self._starts, self._rounds, self._models = gangs.starts, gangs.rounds, gangs.models

    # -- filter

    def prepare(self, uid: str, now: float, kept: KeptBefore) -> bool:
        """Go on planning if the pod's gang is next and its plan is short; returns whether to call again before filter.

        kube-scheduler has one cycle for all pods, and it stands until this filter is answered. So no filter waits for
        other plans or for a long one: the member is refused, and requeued by its plan.
        """
        known = self._roster.of(uid)
        if known is None or not self._planner.next(known.gang):
            return False
        self._starts.plan(now, kept)
        return self._planner.next(known.gang)

    def filter(self, state: PodState, look: Look, now: float, *, unheld: bool = False) -> Verdict | Reason | None:
        """Where a member may go, or why it waits; None if it is placed like a single pod.

        `unheld`: kube-scheduler binds it without asking us.
        """
        known = self._roster.of(state.ref.uid)
        if known is None:
            return None
        gang, member = known.gang, known.gang.members[state.ref.uid]
        if self._controller.is_aside(gang):
            member.refused = True
            return refusals.SET_ASIDE
        if member.uid in known.outsiders:
            member.refused = True
            return refusals.gang_taken(gang.key)
        # 1. bring the gang up to date
        self._rounds.hasten(gang.key, now)
        self._controller.recheck(known, member, now)
        self._replacements.refill(known, now, member)
        if unheld:
            self._unhold(gang, member)
        # 2. an externally bound member is released last
        if unheld and member.stage is Stage.PLANNED and member not in last(gang):
            member.refused = True
            gang.unasked.pop(member.uid, None)
            return refusals.gang_starting(gang.key)
        # 3. its place, or that of an equal member
        offered = member.stage in HOLDING and member.node in look.nodes
        denied = member.stage in HOLDING and not offered and look.refuses(member.node)
        if offered or (denied and self._swap(gang, member, look.nodes, now)):
            member.denied_at, member.refused = 0.0, False
            return Verdict((member.node,))
        if denied:
            self._denied(known, member, now)
        # 4. no place: a single pod, or refused; it is nominated to a place that kube-scheduler did not look at
        if gang.phase in STARTED and member.stage not in HOLDING:
            self._models.restrict(gang, member.uid)
            return None
        member.refused = True
        gang.unasked.pop(member.uid, None)
        if gang.phase is Phase.STARTING or member.stage in HOLDING:
            if look.sampled and member.stage in HOLDING and not denied:
                self._members.wake(gang, member)
            return refusals.gang_starting(gang.key)
        if not look.alone and self._assignments.restrict(member.uid, look):
            known.planned = None
        return known.reason or refusals.gang_no_room(gang.key, "")

    def _swap(self, gang: Gang, member: Member, nodes: Sequence[str], now: float) -> bool:
        """Swap places with an equal member on one of these nodes; returns whether there was one."""
        if member.stage is not Stage.PLANNED or member.uid in gang.unheld:
            return False
        swap, offered = self._assignments.swap, set(nodes)
        for other in gang.at(Stage.PLANNED):
            if other.node in offered and other.uid not in gang.unheld and swap(member.uid, other.uid):
                member.node, other.node = other.node, member.node
                other.denied_at = now if other.denied_at else 0.0
                return True
        return False

    def _denied(self, known: GangInfo, member: Member, now: float) -> None:
        """kube-scheduler refuses a member's planned node; the first time this may be temporary."""
        if not member.denied_at:
            member.denied_at = now
        elif now >= member.denied_at + REFUSED_AGAIN_S:
            self._assignments.exclude(member.uid, member.node)
            self._members.misplaced(known.gang, member)
            self._controller.settle(known, now)

    def refused(self, uid: str) -> None:
        """An externally bound member was refused because the cluster was not yet known."""
        known = self._roster.of(uid)
        if known is not None:
            known.gang.members[uid].refused = True
            self._unhold(known.gang, known.gang.members[uid])

    def _unhold(self, gang: Gang, member: Member) -> None:
        """Note an externally bound member; others may have waited for that."""
        if member.uid not in gang.unheld:
            gang.unheld[member.uid] = None
            self._members.call(gang)

    # -- bind

    def bind(self, state: PodState, node: str, now: float) -> BindAnswer | None:
        """Hold a member's bind, or let it through; None if it is bound like a single pod."""
        known = self._roster.of(state.ref.uid)
        if known is None:
            return None
        gang, member = known.gang, known.gang.members[state.ref.uid]
        if self._controller.is_aside(gang):
            return Refuse(refusals.SET_ASIDE)
        if member.uid in known.outsiders:
            return Refuse(refusals.gang_taken(gang.key))
        self._controller.recheck(known, member, now)
        if member.stage not in HOLDING:
            return None if gang.phase in STARTED else Refuse(known.reason or refusals.gang_starting(gang.key))
        if member.node != node:
            return Refuse(refusals.gang_starting(gang.key))
        if gang.phase in STARTED:
            return self._members.post(gang, member)
        gang.arrive(member.uid, now)
        self._controller.settle(known, now)
        return Held()

    def left(self, uid: str) -> None:
        """kube-scheduler has abandoned the pod's bind."""
        known = self._roster.of(uid)
        if known is not None:
            known.gang.leave(uid)

    def posted(self, uid: str, node: str, now: float) -> Gang | None:
        """The Binding of a member without a held place is being written; returns its gang."""
        known = self._roster.of(uid)
        if known is None:
            return None
        known.gang.post(uid, node)
        self._replacements.refill(known, now)
        return known.gang

    def bind_done(self, uid: str, bound: bool, now: float) -> None:
        """The outcome of a member's Binding; after a failure it is tried again at its place."""
        known = self._roster.of(uid)
        if known is None or known.gang.members[uid].stage is not Stage.POSTED:
            return
        gang, member = known.gang, known.gang.members[uid]
        if bound:
            gang.bound(uid, member.node, member.epoch, now)
            self._assignments.settled(uid)
        elif gang.phase is Phase.BINDING and self._roster.leading and self._assignments.hold_again(uid):
            gang.put(member, Stage.PLANNED)
        else:
            self._members.leave(gang, member, refusals.GONE)
            gang.put(member, Stage.IDLE)
        self._controller.settle(known, now)

"""What kube-scheduler is told of a member of a gang: its planned node and no other, and its bind kept waiting."""

from __future__ import annotations

from collections.abc import Sequence

from extender.engine.gangs.controller import REFUSED_AGAIN_S
from extender.engine.gangs.gangs import Gangs
from extender.engine.gangs.planner import KeptBefore
from extender.engine.gangs.swap import trade
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo
from extender.engine.types import refusals
from extender.engine.types.effects import BindAnswer, Refuse, Verdict
from gangfilter.gang import STARTED
from gangfilter.members import HOLDING, Member, Stage
from gangfilter.table import Phase
from protos.contract.objects import Pod
from protos.contract.reason import Reason


class Barrier:
    """filter and bind of members."""

    def __init__(self, gangs: Gangs) -> None:
        self._gangs = gangs

    def prepare(self, uid: str, now: float, kept: KeptBefore) -> bool:
        """Go on planning where the pod's gang is next and its plan is short; returns whether to do so before a filter.

        kube-scheduler has one cycle for all pods, which stands until this one is answered. So nobody waits for the
        plans of others, nor for a long one: the member is told to wait, and is woken by its plan.
        """
        known = self._gangs.of(uid)
        if known is None or not self._gangs.planner.next(known.gang):
            return False
        self._gangs.plan(now, kept)
        return self._gangs.planner.next(known.gang)

    def single(self, uid: str) -> bool:
        """Whether the pod is placed like any single one."""
        known = self._gangs.of(uid)
        if known is None:
            return True
        return known.gang.phase in STARTED and known.gang.members[uid].stage not in HOLDING

    def filter(
        self, pod: Pod, state: PodState, nodes: Sequence[str], now: float, *, unheld: bool = False
    ) -> Verdict | Reason | None:
        """Where a member may go, or why it waits; None if it is placed like any single pod.

        `unheld`: kube-scheduler will bind it by itself.
        """
        known = self._gangs.of(state.ref.uid)
        if known is None:
            return None
        gang, member = known.gang, known.gang.members[state.ref.uid]
        if self._gangs.is_aside(gang):
            member.refused = True
            return refusals.SET_ASIDE
        self._gangs.rounds.hasten(gang.key, now)
        self._gangs.recheck(known, member, now)
        self._gangs.refill(known, member, now)
        if unheld:
            self._gangs.unhold(known, member)
        if unheld and member.stage is Stage.PLANNED and member not in gang.last():
            member.refused = True
            gang.unasked.pop(member.uid, None)
            return refusals.gang_starting(gang.key)
        offered = member.stage in HOLDING and member.node in nodes
        denied = member.stage in HOLDING and not offered and not _nominated_alone(pod, nodes)
        if offered or (denied and trade(self._gangs.planner, gang, member, nodes, now)):
            member.denied_at, member.refused = 0.0, False
            return Verdict((member.node,))
        if denied:
            self._denied(known, member, now)
        if gang.phase in STARTED and member.stage not in HOLDING:
            return None
        member.refused = True
        gang.unasked.pop(member.uid, None)
        if gang.phase is Phase.STARTING or member.stage in HOLDING:
            return refusals.gang_starting(gang.key)
        if not _nominated_alone(pod, nodes) and self._gangs.planner.restrict(member.uid, nodes):
            known.planned = None
        return known.reason or refusals.gang_no_room(gang.key, "")

    def _denied(self, known: GangInfo, member: Member, now: float) -> None:
        """kube-scheduler keeps a member off its place, which may be a passing thing the first time."""
        if not member.denied_at:
            member.denied_at = now
        elif now >= member.denied_at + REFUSED_AGAIN_S:
            self._gangs.exclude(known, member, now)

    def bind(self, state: PodState, node: str, now: float) -> BindAnswer | None:
        """Keep a member's bind waiting, or let it through; None if it is bound like any single pod."""
        known = self._gangs.of(state.ref.uid)
        if known is None:
            return None
        gang, member = known.gang, known.gang.members[state.ref.uid]
        if self._gangs.is_aside(gang):
            return Refuse(refusals.SET_ASIDE)
        self._gangs.recheck(known, member, now)
        if member.stage in HOLDING:
            if member.node != node:
                return Refuse(refusals.gang_starting(gang.key))
            return self._gangs.arrive(known, member, now)
        return None if gang.phase in STARTED else Refuse(known.reason or refusals.gang_starting(gang.key))


def _nominated_alone(pod: Pod, nodes: Sequence[str]) -> bool:
    """Whether this is the question about a nominated node, before that about all."""
    return bool(pod.status.nominated_node_name) and tuple(nodes) == (pod.status.nominated_node_name,)

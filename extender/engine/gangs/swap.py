"""Members that are alike trade places: kube-scheduler decides in its own order, and may refuse one for another.

A spread over nodes allows a second member on one node only once every other node has its first, and a volume that came
late ties one worker to the node that was meant for another. Whoever of them is asked for first gets a place that
kube-scheduler offers, without a new plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.engine.gangs.planner import GangPlanner
from gangfilter.gang import Gang
from gangfilter.members import Member, Stage


def trade(planner: GangPlanner, gang: Gang, member: Member, nodes: Sequence[str], now: float) -> bool:
    """Give the member the place of another that is like it, on one of these nodes; returns whether there was one."""
    if member.stage is not Stage.PLANNED or member.uid in gang.unheld:
        return False
    offered = set(nodes)
    for other in gang.at(Stage.PLANNED):
        if other.node in offered and other.uid not in gang.unheld and planner.trade(member.uid, other.uid):
            member.node, other.node = other.node, member.node
            other.denied_at = now if other.denied_at else 0.0
            return True
    return False

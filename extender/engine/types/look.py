"""The nodes that kube-scheduler asks about for one pod, and what that says about the others.

With many nodes, kube-scheduler stops when enough of them pass its filters (percentageOfNodesToScore). Then it says
nothing about the others. A nominated node is filtered before all others: if it passes, extenders are asked about it
alone. Sources: schedule_one.go, evaluateNominatedNode, numFeasibleNodesToFind, findNodesThatPassFilters.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

LEAST = 100
"""kube-scheduler never stops before so many nodes have passed. Source: minFeasibleNodesToFind."""


class Look(msgspec.Struct, frozen=True):
    """One question of filter."""

    nodes: Sequence[str]
    nominated: str = ""
    """The node to which the pod was nominated when kube-scheduler looked, if nobody but kube-scheduler refused it."""
    sampled: bool = False
    """kube-scheduler may not have looked at every node."""

    @property
    def alone(self) -> bool:
        """Whether this is about the nominated node alone. If it is refused, the others come next."""
        return bool(self.nominated) and len(self.nodes) == 1 and self.nodes[0] == self.nominated

    def refuses(self, node: str) -> bool:
        """Whether kube-scheduler's own filters refuse the node."""
        return node not in self.nodes and not self.alone and (not self.sampled or node == self.nominated)


UNASKED = Look((), sampled=True)
"""kube-scheduler has not asked about the pod yet."""


def may_be_sampled(known: int) -> bool:
    """Whether kube-scheduler may leave nodes of a cluster of this size unchecked."""
    return known > LEAST


def look(nodes: Sequence[str], nominated: str, known: int) -> Look:
    """What is asked about a pod in a cluster of so many nodes."""
    return Look(nodes, nominated, sampled=LEAST <= len(nodes) < known)

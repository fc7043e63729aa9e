"""Single pods that may be moved, for planners of moves.

A movable pod has `gangshare.io/restartable: "true"` and a controller, which creates another pod in its place. That pod
is scheduled like any other. Members of gangs are not moved: the whole gang would have to start again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import attrgetter

import msgspec

from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import Roster
from extender.engine.state.seats import Seat
from protos.contract.ask import Demand


class Movable(msgspec.Struct, frozen=True):
    """A pod that may be moved, and what it holds."""

    seat: Seat
    name: str
    """NAMESPACE/NAME."""
    node: str
    charges: Mapping[str, Demand]
    created: float

    @property
    def mem(self) -> int:
        """Units of GPU memory that it holds."""
        return sum(demand.mem for demand in self.charges.values())


class MovablePods:
    """Finds the movable pods of a node."""

    def __init__(self, pods: Mapping[str, PodState], on_node: Mapping[str, Collection[str]], roster: Roster) -> None:
        """`pods` by UID; `on_node`: the UIDs of the pods on each node."""
        self._pods, self._on_node, self._roster = pods, on_node, roster

    def movable(self, node: NodeState) -> list[Movable]:
        """The movable pods on the node, by name. A pod whose GPUs are not known is not movable."""
        pods = (self._movable(uid, node) for uid in self._on_node.get(node.name, ()))
        return sorted((pod for pod in pods if pod is not None), key=attrgetter("name"))

    def stays(self, movable: Movable) -> bool:
        """Whether the pod is still where it was."""
        pod = self._pods.get(movable.seat.uid)
        return pod is not None and pod.state == "bound" and pod.node == movable.node

    def _movable(self, uid: str, node: NodeState) -> Movable | None:
        pod = self._pods.get(uid)
        if pod is None or not pod.info.movable or pod.state != "bound" or pod.problem or self._roster.of(uid):
            return None
        entry = node.books.entries.get(uid) if node.books is not None else None
        if pod.ask is not None and (entry is None or not entry.placed):
            return None
        return Movable(Seat.of(pod), str(pod.ref), node.name, entry.charges if entry else {}, pod.info.created)

"""Single pods that may be moved, for planners of moves.

A pod may be moved that says `gangshare.io/restartable: "true"` and has a controller, which makes another in its place;
that one comes to us again. Members of gangs are not moved: a gang would have to start anew as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

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
    """Finds them among the records of pods."""

    def __init__(self, pods: Mapping[str, PodState], on_node: Mapping[str, Collection[str]], roster: Roster) -> None:
        """`pods` by UID, and which of them are on each node."""
        self._pods, self._on_node, self._roster = pods, on_node, roster

    def movable(self, node: NodeState) -> list[Movable]:
        """The pods on the node that may be moved, by name. One of which nobody says on which GPUs it is may not."""
        return sorted(self._movable(node), key=lambda found: found.name)

    def stays(self, one: Movable) -> bool:
        """Whether such a pod still is where it was."""
        pod = self._pods.get(one.seat.uid)
        return pod is not None and pod.state == "bound" and pod.node == one.node

    def _movable(self, node: NodeState) -> Iterator[Movable]:
        for uid in self._on_node.get(node.name, ()):
            pod = self._pods.get(uid)
            if pod is None or not pod.info.movable or pod.state != "bound" or pod.problem or self._roster.of(uid):
                continue
            entry = node.books.entries.get(uid) if node.books is not None else None
            if pod.ask is None or (entry is not None and entry.placed):
                seat = Seat(uid=uid, ask=pod.ask, requests=pod.requests, constraints=pod.info.constraints)
                charges = entry.charges if entry is not None else {}
                yield Movable(seat, str(pod.ref), node.name, charges, pod.info.created)

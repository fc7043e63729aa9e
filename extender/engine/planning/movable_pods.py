"""What planners of moves must know of single pods: where each may go, how old it is, and whether it may be moved.

A pod may be moved that says `gangshare.io/restartable: "true"` and has a controller, which makes another in its place;
that one comes to us again. Members of gangs are not moved: a gang would have to start anew as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from extender.engine.state.intree import ANYWHERE, Constraints, constraints
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Seat
from protos.contract import names
from protos.contract.ask import Demand
from protos.contract.objects import Pod
from protos.contract.timestamps import epoch_seconds


class TrackedPod(msgspec.Struct, frozen=True):
    """One pod."""

    constraints: Constraints
    created: float
    """In s since 1970; 0 if nobody says."""
    movable: bool


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
    """All pods that are not over."""

    def __init__(self, pods: Mapping[str, PodState], on_node: Mapping[str, Collection[str]]) -> None:
        """`pods` by UID, and which of them are on each node."""
        self._pods, self._on_node = pods, on_node
        self._known: dict[str, TrackedPod] = {}

    def see(self, pod: Pod, *, ours: bool) -> None:
        """Take in a pod that is not over; `ours`: whoever comes in its place comes to us, and by itself."""
        meta = pod.metadata
        restartable = meta.annotations.get(names.RESTARTABLE) == "true"
        owned = any(owner.controller for owner in meta.owner_references)
        movable = ours and restartable and owned and not meta.deletion_timestamp and bool(pod.spec.node_name)
        self._known[meta.uid] = TrackedPod(constraints(pod), _created(meta.creation_timestamp), movable)

    def forget(self, uid: str) -> None:
        """The pod is over."""
        self._known.pop(uid, None)

    def constraints(self, uid: str) -> Constraints:
        """Which nodes a pod may go to."""
        found = self._known.get(uid)
        return found.constraints if found else ANYWHERE

    def created(self, uid: str) -> float:
        """When a pod was created, in s since 1970; 0 if nobody says."""
        found = self._known.get(uid)
        return found.created if found else 0.0

    def movable(self, node: NodeState) -> list[Movable]:
        """The pods on the node that may be moved, by name. One of which nobody says on which GPUs it is may not."""
        return sorted(self._movable(node), key=lambda found: found.name)

    def stays(self, one: Movable) -> bool:
        """Whether such a pod still is where it was."""
        pod = self._pods.get(one.seat.uid)
        return pod is not None and pod.state == "bound" and pod.node == one.node

    def _movable(self, node: NodeState) -> Iterator[Movable]:
        for uid in self._on_node.get(node.name, ()):
            known, pod = self._known.get(uid), self._pods.get(uid)
            if known is None or pod is None or not known.movable or pod.state != "bound" or pod.problem:
                continue
            entry = node.books.entries.get(uid) if node.books is not None else None
            if pod.ask is None or (entry is not None and entry.placed):
                seat = Seat(uid=uid, ask=pod.ask, requests=pod.requests, constraints=known.constraints)
                charges = entry.charges if entry is not None else {}
                yield Movable(seat, str(pod.ref), node.name, charges, known.created)


def _created(timestamp: str | None) -> float:
    try:
        return epoch_seconds(timestamp) if timestamp else 0.0
    except ValueError:
        return 0.0

"""What a plan is asked and what it answers: members of a gang, and where each of them goes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from extender.engine.state.intree import ANYWHERE, Amounts, Constraints
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.types.shape import Shape, shape
from protos.contract.allocation import Share
from protos.contract.ask import Demand, PodAsk

Likeness = tuple[PodAsk | None, Amounts, Constraints, int]


class Seat(msgspec.Struct, frozen=True):
    """One member that needs a node, and nothing of which is booked yet."""

    uid: str
    ask: PodAsk | None = None
    """What it wants of GPUs, None if nothing."""
    requests: Amounts = ()
    """All that its containers request of the node, GPUs included, and a pod slot."""
    constraints: Constraints = ANYWHERE
    excluded: int = 0
    """Nodes that are ruled out for it: bits by node number."""
    role: str = ""
    required: bool = False
    """Always part of the minimum."""

    @classmethod
    def of(cls, pod: PodState) -> Seat:
        """Of a pod that goes singly."""
        return cls(pod.ref.uid, pod.ask, pod.requests, pod.info.constraints, pod.excluded)

    @property
    def likeness(self) -> Likeness:
        """Equal for those for whom the same nodes will do."""
        return self.ask, self.requests, self.constraints, self.excluded

    @property
    def shape(self) -> Shape:
        return shape(self.ask, self.requests)

    @property
    def gpus(self) -> tuple[int, int, int, int]:
        """Who asks more of GPUs has less: by whole GPUs, GPUs, memory of one GPU, slices of one."""
        containers = self.ask.containers if self.ask else ()
        return (
            -sum(c.gpus for c in containers if c.whole),
            -sum(c.gpus for c in containers),
            -max((c.mem for c in containers), default=0),
            -max((c.slices for c in containers), default=0),
        )


class Assignment(msgspec.Struct, frozen=True):
    """Where a member goes: its node, what it takes of each GPU there, and the GPUs of each of its containers."""

    node: str
    charges: Mapping[str, Demand] = {}
    shares: Mapping[str, tuple[Share, ...]] = {}
    until: float = math.inf
    """When it ends, if nothing else ends it before."""


def stands(assignment: Assignment, uid: str, ask: PodAsk | None, node: NodeState | None) -> bool:
    """Whether a place that is held under this UID still is one."""
    if node is None or not node.seen:
        return False
    if ask is None:
        return not assignment.charges
    if node.books is None:
        return not assignment.charges and not node.problem and ask.only_whole
    entry, gpus = node.books.entries.get(uid), [node.books.gpus.get(uuid) for uuid in assignment.charges]
    fits = all(gpu is not None and gpu.offered and not gpu.overused for gpu in gpus)
    return entry is not None and entry.ask == ask and fits and not node.problem


def least(seats: Sequence[Seat], minimum: int, by_role: Iterable[tuple[str, int]] = ()) -> tuple[Seat, ...]:
    """The members of the smallest start: the required ones, the first of each role up to its minimum, the first others.

    Those are more than `minimum` where the required ones and the roles' minimums are, and fewer where fewer exist.
    """
    if minimum >= len(seats):
        return tuple(seats)
    missing = dict(by_role)
    chosen = set()
    for seat in sorted(seats, key=lambda seat: not seat.required):
        if seat.required or missing.get(seat.role, 0) > 0:
            chosen.add(seat.uid)
            missing[seat.role] = missing.get(seat.role, 0) - 1
    for seat in seats:
        if len(chosen) >= minimum:
            break
        chosen.add(seat.uid)
    return tuple(seat for seat in seats if seat.uid in chosen)

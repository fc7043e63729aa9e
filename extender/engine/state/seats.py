"""Input and output of a plan: the members that need a node, and the assignment of each."""

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
from protos.contract.books import isolated

Likeness = tuple[PodAsk | None, Amounts, Constraints, int]


class Seat(msgspec.Struct, frozen=True):
    """A pod that needs a node. Nothing is booked for it yet."""

    uid: str
    ask: PodAsk | None = None
    """Its GPU request, None if it has none."""
    requests: Amounts = ()
    """Everything that its containers request of the node, GPUs included, and a pod slot."""
    constraints: Constraints = ANYWHERE
    excluded: int = 0
    """Nodes that are ruled out for it: bits by node number."""
    role: str = ""
    required: bool = False
    """Always part of the minimum."""

    @classmethod
    def of(cls, pod: PodState) -> Seat:
        """The seat of a single pod. A bound pod may go to nodes that were ruled out before it was bound."""
        excluded = pod.excluded if pod.state != "bound" else 0
        return cls(pod.ref.uid, pod.ask, pod.requests, pod.info.constraints, excluded)

    @property
    def likeness(self) -> Likeness:
        """Equal for pods that the same nodes suit."""
        return self.ask, self.requests, self.constraints, self.excluded

    @property
    def shape(self) -> Shape:
        return shape(self.ask, self.requests)

    @property
    def hardness(self) -> tuple[int, ...]:
        """The order in which pods are placed; less is harder.

        Most whole GPUs, most GPUs, most memory and slices of one GPU, most extended resources, few nodes, most CPU and
        memory.
        """
        containers = self.ask.containers if self.ask else ()
        amounts = dict(self.requests)
        return (
            -sum(c.gpus for c in containers if c.whole),
            -sum(c.gpus for c in containers),
            -max((c.mem for c in containers), default=0),
            -max((c.slices for c in containers), default=0),
            -sum(amount for resource, amount in self.requests if "/" in resource),
            not self.constraints.selective,
            -self.excluded.bit_count(),
            -amounts.get("cpu", 0),
            -amounts.get("memory", 0),
        )


class Assignment(msgspec.Struct, frozen=True):
    """Where a pod goes: its node, its charges by GPU, and the GPUs of each of its containers."""

    node: str
    charges: Mapping[str, Demand] = {}
    shares: Mapping[str, tuple[Share, ...]] = {}
    until: float = math.inf
    """When it expires."""


def stands(assignment: Assignment, uid: str, ask: PodAsk | None, node: NodeState | None) -> bool:
    """Whether an assignment that is held under this UID is still valid."""
    if node is None or not node.seen:
        return False
    if ask is None:
        return not assignment.charges
    if node.books is None:
        return not assignment.charges and not node.problem and ask.only_whole
    entry, gpus = node.books.entries.get(uid), [node.books.gpus.get(uuid) for uuid in assignment.charges]
    fits = all(gpu is not None and gpu.offered and not gpu.overused for gpu in gpus)
    fits = fits and isolated(node.books, ask, assignment.charges)
    return entry is not None and entry.ask == ask and fits and not node.problem


def least(seats: Sequence[Seat], minimum: int, by_role: Iterable[tuple[str, int]] = ()) -> tuple[Seat, ...]:
    """The members of the smallest start: required ones, the first of each role up to its minimum, then others.

    The result exceeds `minimum` if required members and role minimums do, and falls short if there are fewer members.
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

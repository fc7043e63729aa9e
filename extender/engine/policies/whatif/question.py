"""The question and its answer, as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from extender.engine.policies.backfill.earliest import Earliest
from extender.engine.policies.preemption.units import Unit
from extender.engine.queueing.line import Turn
from extender.engine.state.intree import Amounts
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment, Seat
from gangfilter.gang import Gang
from gangfilter.group import Declaration, GroupKey
from protos.contract.objects import Pod
from protos.contract.reason import Reason

State = Literal["now", "preempts", "later", "waits", "never"]
"""It starts now; now, once others are evicted; later, at a time; nobody knows when; or not even on empty nodes."""


class Question(msgspec.Struct, frozen=True):
    """Pods that do not exist, and what else would be there."""

    pods: Sequence[Pod]
    """Each with a UID that no pod has."""
    groups: Sequence[tuple[str, GroupKey, Declaration]] = ()
    """PodGroups: the kind, the group and what is declared of it."""
    nodes: Sequence[tuple[NodeState, int]] = ()
    """Existing nodes, and how many further ones like each there would be."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A gang, or a single pod."""

    who: str
    """`gang NAMESPACE/NAME`, or a pod's NAMESPACE/NAME."""
    pods: Mapping[str, PodState]
    """By UID."""
    gang: Gang | None = None
    seats: Sequence[Seat] = ()
    minimum: Sequence[Seat] = ()
    """Those of the smallest start."""
    free: Amounts = ()
    """What must be free in all nodes together for a start."""
    queue: str = ""
    """The queue that it names, "" for none."""
    priority: int = 0
    never: bool = False
    """It may not preempt."""
    turn: Turn
    expected_s: float
    warnings: tuple[str, ...] = ()
    """Keys that are not read, and values of the gang that differ or cannot be read."""
    refusal: Reason | None = None
    """Why it does not start, wherever there is room."""

    @property
    def namespace(self) -> str:
        return next(iter(self.pods.values())).ref.namespace


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of one workload."""

    workload: Workload
    state: State
    reason: Reason | None = None
    """Why it does not start at once."""
    assignments: Mapping[str, Assignment] = {}
    """The places of its pods, by UID: now, once the victims have gone, or at the earliest start."""
    victims: tuple[Unit, ...] = ()
    """What would be evicted for it."""
    forbidden: str = ""
    """What forbids the evictions that would help, "" if nothing does."""
    earliest: Earliest | None = None
    queue: str = ""
    """The queue that it is in."""
    place: int = 0
    """Its place in line among the `in_line` pending workloads of its queue, itself included."""
    in_line: int = 0


class Answer(msgspec.Struct, frozen=True):
    """What would become of all workloads in the order of the question."""

    outcomes: Sequence[Outcome]
    further: Sequence[Outcome] = ()
    """The same with the further nodes."""

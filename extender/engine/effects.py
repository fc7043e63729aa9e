"""What goes into the engine and what comes out: events of the world, answers to the scheduler, effects to carry out.

Values only. The engine never acts: the shell feeds it events, hands its answers to kube-scheduler and carries out its
effects, all repeatable since a write that failed may have happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from gangfilter.group import Declaration, GroupKey
from gangfilter.table import Phase
from protos.contract.allocation import Allocation
from protos.contract.budget import Budget
from protos.contract.gpu_class import GpuClass
from protos.contract.namespace import Namespace
from protos.contract.objects import Node, OwnerReference, Pod
from protos.contract.priority import PriorityClass
from protos.contract.queue import Queue
from protos.contract.reason import Reason
from protos.contract.training import Scaler, ScalerKind, TrainingJob


class PodRef(msgspec.Struct, frozen=True, order=True):
    """A pod in the world."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# Events: what the world tells.


class PodSeen(msgspec.Struct, frozen=True):
    """A pod was listed, added or modified."""

    pod: Pod


class PodGone(msgspec.Struct, frozen=True):
    """A pod is no longer there."""

    uid: str


class PodsListed(msgspec.Struct, frozen=True):
    """All pods that there are were told."""


class NodeSeen(msgspec.Struct, frozen=True):
    """A node was listed, added or modified."""

    node: Node


class NodeGone(msgspec.Struct, frozen=True):
    """A node is no longer there."""

    name: str


class GpusUnhealthy(msgspec.Struct, frozen=True):
    """gpushare's ConfigMap `unhealthy-gpu-<node>` names these GPU minors; empty when it is gone."""

    node: str
    minors: frozenset[int]


class GroupSeen(msgspec.Struct, frozen=True):
    """A PodGroup was listed, added or modified; `kind` is its API group and version."""

    kind: str
    key: GroupKey
    declaration: Declaration
    job: TrainingJob | None = None
    """What else ET-operator says of it, if it is one of its jobs."""


class GroupGone(msgspec.Struct, frozen=True):
    """A PodGroup is no longer there."""

    kind: str
    key: GroupKey


class ClassSeen(msgspec.Struct, frozen=True):
    """A GpuClass was listed, added or modified."""

    gpu_class: GpuClass


class ClassGone(msgspec.Struct, frozen=True):
    """A GpuClass is no longer there."""

    name: str


class QueueSeen(msgspec.Struct, frozen=True):
    """A queue, of whatever kind, was listed, added or modified."""

    queue: Queue


class QueueGone(msgspec.Struct, frozen=True):
    """A queue is no longer there; `source` is its API group and version."""

    source: str
    name: str


class NamespaceSeen(msgspec.Struct, frozen=True):
    """A namespace was listed, added or modified."""

    namespace: Namespace


class NamespaceGone(msgspec.Struct, frozen=True):
    """A namespace is no longer there."""

    name: str


class ScalerSeen(msgspec.Struct, frozen=True):
    """A ScaleIn or ScaleOut was listed, added or modified."""

    scaler: Scaler


class ScalerGone(msgspec.Struct, frozen=True):
    """A ScaleIn or ScaleOut is no longer there."""

    kind: ScalerKind
    namespace: str
    name: str


class ScalersServed(msgspec.Struct, frozen=True):
    """Whether such objects can be made: their definition is there and they are shown to us."""

    kind: ScalerKind
    yes: bool


class Leading(msgspec.Struct, frozen=True):
    """Whether this process may write from now on: only then gangs are planned, and no bind is held otherwise."""

    yes: bool


class BindLeft(msgspec.Struct, frozen=True):
    """Nobody waits any more for the answer to a held bind."""

    uid: str


class BudgetSeen(msgspec.Struct, frozen=True):
    """A PodDisruptionBudget was listed, added or modified."""

    budget: Budget


class BudgetGone(msgspec.Struct, frozen=True):
    """A PodDisruptionBudget is no longer there."""

    namespace: str
    name: str


class PrioritySeen(msgspec.Struct, frozen=True):
    """A PriorityClass was listed, added or modified."""

    priority_class: PriorityClass


class PriorityGone(msgspec.Struct, frozen=True):
    """A PriorityClass is no longer there."""

    name: str


class EvictionRefused(msgspec.Struct, frozen=True):
    """A disruption budget forbids the eviction of a pod, which was not insisted on."""

    uid: str
    why: str


class BindDone(msgspec.Struct, frozen=True):
    """How the Binding of a pod went: `bound`, or `lost` (it did not happen and will not)."""

    uid: str
    outcome: Literal["bound", "lost"]


class WallMoved(msgspec.Struct, frozen=True):
    """The wall clock was set, or the machine was suspended: it is further ahead of the monotonic clock than before."""

    by: float
    """So many seconds; less than zero where it was set back."""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed. `Engine.ticks` are the parts of one, each a step of its own."""

    part: str = ""
    """What is done of all that there is to do; "" for everything."""
    last: bool = True
    """Nothing of it is left to do."""


Event = (
    PodSeen
    | PodGone
    | PodsListed
    | NodeSeen
    | NodeGone
    | GpusUnhealthy
    | GroupSeen
    | GroupGone
    | ClassSeen
    | ClassGone
    | QueueSeen
    | QueueGone
    | NamespaceSeen
    | NamespaceGone
    | ScalerSeen
    | ScalerGone
    | ScalersServed
    | Leading
    | BudgetSeen
    | BudgetGone
    | PrioritySeen
    | PriorityGone
    | EvictionRefused
    | BindLeft
    | BindDone
    | WallMoved
    | Tick
)


# Answers: what the scheduler is told.


class Verdict(msgspec.Struct, frozen=True):
    """The answer to filter: the nodes that remain, in our order (best first); `reason` where none does."""

    nodes: tuple[str, ...]
    reason: Reason | None = None


class Place(msgspec.Struct, frozen=True):
    """bind: POST this Binding; `annotations` travel on it. Then feed BindDone."""

    pod: PodRef
    node: str
    annotations: Mapping[str, str]
    allocation: Allocation | None


class Already(msgspec.Struct, frozen=True):
    """bind: the pod is bound to that very node."""


class Refuse(msgspec.Struct, frozen=True):
    """bind: not possible; the scheduler tries the pod again."""

    reason: Reason


class Held(msgspec.Struct, frozen=True):
    """bind: the pod's gang is not all in bind yet. `Open` or `Deny` follows as an effect."""


BindAnswer = Place | Already | Refuse | Held


# Effects: what the shell shall do.


class Wake(msgspec.Struct, frozen=True):
    """Bring a refused pod back to the scheduler: touch its wake annotation through pods/status.

    With a node it is nominated there: the scheduler then filters that node first, and it alone if it passes. A pod that
    is `gated` waits behind our scheduling gate: then that is removed, once the node is nominated.
    """

    pod: PodRef
    node: str = ""
    gated: bool = False
    nominate: bool = True
    """Not where members must be spread: kube-scheduler counts all that are nominated to a node against that node."""


class Report(msgspec.Struct, frozen=True):
    """Tell the pod's owner by an Event (at most one per pod and reason in 30 s)."""

    pod: PodRef
    reason: Reason
    warning: bool = True


class ReportOwner(msgspec.Struct, frozen=True):
    """Tell the same on the controller of pods, a Job for instance, by an Event of its own."""

    namespace: str
    owner: OwnerReference
    reason: Reason


class PutBack(msgspec.Struct, frozen=True):
    """Set an annotation, for the most part one that was forged (None removes it), through pods/status.

    Only onto the version seen, if one is named: a conflict means that news is coming, and that decides again.
    """

    pod: PodRef
    key: str
    value: str | None
    resource_version: str


class Open(msgspec.Struct, frozen=True):
    """Carry on with a bind that was held."""

    place: Place

    @property
    def pod(self) -> PodRef:
        return self.place.pod


class Deny(msgspec.Struct, frozen=True):
    """Answer a bind that was held with an error."""

    pod: PodRef
    reason: Reason


class Evict(msgspec.Struct, frozen=True):
    """Take a pod away through the Eviction API (DELETE where a disruption budget forbids that and `insist`).

    Its UID is the precondition. `reason` tells its owner why, in an Event.
    """

    pod: PodRef
    reason: Reason
    insist: bool = True
    grace_s: int | None = None
    """Seconds that it has to end; None: as long as it says itself."""


class Scale(msgspec.Struct, frozen=True):
    """Make this ScaleIn or ScaleOut, unless there is one of that name."""

    scaler: Scaler


class Unscale(msgspec.Struct, frozen=True):
    """Delete this ScaleIn or ScaleOut of ours."""

    scaler: Scaler


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Write on the PodGroup how the gang stands, at most once a second per object; `kinds` are those that exist."""

    key: GroupKey
    kinds: tuple[str, ...]
    phase: Phase
    reason: Reason | None
    """Why it waits, None where it does not."""
    min_member: int
    present: int
    """Members that exist and count."""
    bound: int
    succeeded: int
    failed: int = 0


class ClassStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Write on the GpuClass how many GPUs are of it, at most once a second per object."""

    name: str
    gpus: int
    """Those that match, whoever holds them."""
    free: int
    """Those of them that are wholly free."""
    nodes: int
    """Nodes that have some."""
    problem: str = ""
    """Why it cannot be read, "" if it can."""


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Write on the Queue how it stands, at most once a second per object; amounts as quantities, by resource."""

    name: str
    allocated: dict[str, str]
    requested: dict[str, str]
    """That, and what those ask that wait."""
    deserved: dict[str, str]
    """What is due to it."""
    share: str
    """How much of its due it has: 1.00 is all of it."""
    waiting: int
    running: int
    """Pods in it and below."""
    closed: bool = False
    problem: str = ""
    """Why it cannot be read, "" if it can."""
    misplaced: str = ""
    """Why it hangs below the root and not where it says, "" if it does not."""
    exceeded: str = ""
    """What its pods have beyond its capability, "" if nothing: some were bound without us, or it had more before."""


class PhaseLeft(msgspec.Struct, frozen=True):
    """A gang left a phase after so many seconds: for the metrics."""

    phase: Phase
    seconds: float


SubjectKind = Literal["pod", "node", "gang", "class", "queue", "budget", "priority", "scaler", "part"]


class Subject(NamedTuple):
    """What the engine works for: an object, a gang, or (kind `part`) one of its own parts."""

    kind: SubjectKind
    key: str
    """A pod's UID, NAMESPACE/NAME of a gang, the name of anything else, with its namespace if it has one."""
    source: str = ""
    """Which kind of queue (its API group and version) or of scaler it is."""


class Fault(msgspec.Struct, frozen=True, eq=False):
    """An error of ours over this object, which is set aside by now: for the log, with the traceback of `error`."""

    subject: Subject
    name: str
    """For people: NAMESPACE/NAME."""
    place: str
    """Where it happened: one of a few constant words."""
    error: Exception
    why: Reason
    """For its owner, in an Event; that of a pod or gang is told apart from this."""


Effect = (
    Wake
    | Report
    | ReportOwner
    | PutBack
    | Open
    | Deny
    | Evict
    | Scale
    | Unscale
    | GroupStatus
    | ClassStatus
    | QueueStatus
    | PhaseLeft
    | Fault
)

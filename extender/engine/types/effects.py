"""The engine's output: answers to kube-scheduler, and effects that the shell carries out.

The engine itself writes nothing. Every effect can be repeated, since a write that failed may have happened.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from extender.engine.types.subject import Subject
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract.allocation import Allocation
from protos.contract.objects import OwnerReference
from protos.contract.reason import Reason
from protos.contract.training import Scaler


class PodRef(msgspec.Struct, frozen=True, order=True):
    """Identifies a pod."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# Answers to kube-scheduler


class Verdict(msgspec.Struct, frozen=True):
    """The answer to filter: the nodes that suit the pod, best first, or why there is none."""

    nodes: tuple[str, ...]
    reason: Reason | None = None


class PostBinding(msgspec.Struct, frozen=True):
    """bind: POST this Binding with these annotations. The event BindDone follows."""

    pod: PodRef
    node: str
    annotations: Mapping[str, str]
    allocation: Allocation | None


class Already(msgspec.Struct, frozen=True):
    """bind: the pod is already bound to this node."""


class Refuse(msgspec.Struct, frozen=True):
    """bind: refused; kube-scheduler tries the pod again."""

    reason: Reason


class Held(msgspec.Struct, frozen=True):
    """bind: the pod waits at its gang's barrier. The effect `Open` or `Deny` follows."""


BindAnswer = PostBinding | Already | Refuse | Held


# Effects


class Requeue(msgspec.Struct, frozen=True):
    """Bring a pending pod back to kube-scheduler: touch its wake annotation through pods/status.

    From a `gated` pod remove our scheduling gate after that.
    """

    pod: PodRef
    node: str = ""
    """The node where room is held for the pod, "" if none is."""
    gated: bool = False
    nominate: bool = True
    """Also nominate the node: kube-scheduler filters it first, and no other node if it passes. Members that must be
    spread are not nominated: kube-scheduler counts every pod nominated to a node as on that node."""


class RemoveNomination(msgspec.Struct, frozen=True):
    """Remove the nomination of a pending pod, through pods/status."""

    pod: PodRef


class Report(msgspec.Struct, frozen=True):
    """Emit an Event on the pod, at most one per reason in 30 s."""

    pod: PodRef
    reason: Reason
    warning: bool = True


class ReportOwner(msgspec.Struct, frozen=True):
    """Emit an Event on the controller of pods, for example a Job."""

    namespace: str
    owner: OwnerReference
    reason: Reason


class ReportNode(msgspec.Struct, frozen=True):
    """Emit an Event on a node."""

    node: str
    reason: Reason


class SetAnnotation(msgspec.Struct, frozen=True):
    """Set or remove (None) an annotation through pods/status, usually to undo a forgery.

    With `resource_version`, only onto that version: after a conflict the newer version is judged instead.
    """

    pod: PodRef
    key: str
    value: str | None
    resource_version: str


class Open(msgspec.Struct, frozen=True):
    """Carry out a bind that was held."""

    place: PostBinding

    @property
    def pod(self) -> PodRef:
        return self.place.pod


class Deny(msgspec.Struct, frozen=True):
    """Refuse a bind that was held."""

    pod: PodRef
    reason: Reason


class Evict(msgspec.Struct, frozen=True):
    """Evict a pod through the Eviction API, with its UID as precondition and `reason` in an Event.

    If a disruption budget forbids the eviction and `insist` is set, DELETE the pod.
    """

    pod: PodRef
    reason: Reason
    insist: bool = True
    grace_s: int | None = None
    """Grace period in seconds; None: the pod's own."""


class Scale(msgspec.Struct, frozen=True):
    """Create this ScaleIn or ScaleOut, unless one of this name exists."""

    scaler: Scaler


class Unscale(msgspec.Struct, frozen=True):
    """Delete this ScaleIn or ScaleOut, which we created."""

    scaler: Scaler


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Write the gang's status to its PodGroups of these `kinds`, at most once a second per object."""

    key: GroupKey
    kinds: tuple[str, ...]
    phase: Phase
    reason: Reason | None
    """Why it is pending, None if it is not."""
    min_member: int
    present: int
    """Members that exist and count."""
    bound: int
    succeeded: int
    failed: int = 0


class ClassStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Write the GPU counts of a GpuClass to its status, at most once a second per object."""

    name: str
    gpus: int
    """GPUs that match, allocated or not."""
    free: int
    """Matching GPUs with no allocation at all."""
    nodes: int
    """Nodes with a matching GPU."""
    problem: str = ""
    """Why the object cannot be read, "" if it can."""


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Write the status of a Queue, at most once a second per object. Amounts are quantities by resource."""

    name: str
    allocated: dict[str, str]
    requested: dict[str, str]
    """Allocated, plus the requests of pending pods."""
    fair_share: dict[str, str]
    share: str
    """Allocated over fair share: 1.00 is the whole share."""
    waiting: int
    running: int
    """Pods of this queue and of the queues below it."""
    closed: bool = False
    """No workload starts in it: it is closed, or a queue above it."""
    problem: str = ""
    """Why the object cannot be read, "" if it can."""
    misplaced: str = ""
    """Why it is below the root instead of its stated parent, "" if it is not."""
    exceeded: str = ""
    """What its pods use beyond its capability (after a foreign bind or a lowered limit), "" if nothing."""


class PhaseLeft(msgspec.Struct, frozen=True):
    """Count in the metrics that a gang left a phase after this time."""

    phase: Phase
    seconds: float


class Fault(msgspec.Struct, frozen=True, eq=False):
    """Log an internal error, with traceback, over an object that is now in quarantine."""

    subject: Subject
    name: str
    """NAMESPACE/NAME for people."""
    place: str
    """The component that failed: one of a few constant words."""
    error: Exception
    why: Reason
    """For an Event on the object. For pods and gangs a `Report` carries it instead."""


Effect = (
    Requeue
    | RemoveNomination
    | Report
    | ReportOwner
    | ReportNode
    | SetAnnotation
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

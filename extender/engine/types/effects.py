"""What comes out of the engine: answers to kube-scheduler, and effects to carry out.

Values only. The engine never acts: the shell feeds it events, hands its answers to kube-scheduler and carries out its
effects, all repeatable since a write that failed may have happened.
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
    """A pod in the world."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# Answers: what the scheduler is told.


class Verdict(msgspec.Struct, frozen=True):
    """The answer to filter: the nodes that remain, in our order (best first); `reason` where none does."""

    nodes: tuple[str, ...]
    reason: Reason | None = None


class PostBinding(msgspec.Struct, frozen=True):
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


BindAnswer = PostBinding | Already | Refuse | Held


# Effects: what the shell shall do.


class Requeue(msgspec.Struct, frozen=True):
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


class SetAnnotation(msgspec.Struct, frozen=True):
    """Set an annotation, for the most part one that was forged (None removes it), through pods/status.

    Only onto the version seen, if one is named: a conflict means that news is coming, and that decides again.
    """

    pod: PodRef
    key: str
    value: str | None
    resource_version: str


class Open(msgspec.Struct, frozen=True):
    """Carry on with a bind that was held."""

    place: PostBinding

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


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Write on the Queue how it stands, at most once a second per object; amounts as quantities, by resource."""

    name: str
    allocated: dict[str, str]
    requested: dict[str, str]
    """That, and what those ask that wait."""
    fair_share: dict[str, str]
    share: str
    """Allocated over fair share: 1.00 is the whole share."""
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
    Requeue
    | Report
    | ReportOwner
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

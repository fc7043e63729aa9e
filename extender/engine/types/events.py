"""Events: the engine's input."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from extender.engine.types.subject import Subject, SubjectKind, of_gang, of_node, of_pod, of_scaler
from gangfilter.group import Declaration, GroupKey
from protos.contract.budget import Budget
from protos.contract.gpu_class import GpuClass
from protos.contract.namespace import Namespace
from protos.contract.objects import Node, Pod
from protos.contract.priority import PriorityClass
from protos.contract.queue import Queue
from protos.contract.training import Scaler, ScalerKind, TrainingJob


class Event(msgspec.Struct, frozen=True):
    """Something that happened."""

    @property
    def about(self) -> Subject:
        """The object of the event. By default the part of the engine that handles the event."""
        return Subject("part", type(self).__name__)


class _OfPod(Event, frozen=True):
    uid: str

    @property
    def about(self) -> Subject:
        return of_pod(self.uid)


class _OfNamed(Event, frozen=True):
    subject_kind: ClassVar[SubjectKind]
    name: str

    @property
    def about(self) -> Subject:
        return Subject(self.subject_kind, self.name)


class _OfGroup(Event, frozen=True):
    kind: str
    """API group and version of the PodGroup."""
    key: GroupKey

    @property
    def about(self) -> Subject:
        return of_gang(self.key)


class PodSeen(Event, frozen=True):
    """A pod was listed, added or modified."""

    pod: Pod

    @property
    def about(self) -> Subject:
        return of_pod(self.pod.metadata.uid)


class PodGone(_OfPod, frozen=True):
    """A pod was deleted."""


class PodsListed(Event, frozen=True):
    """The initial list of pods is complete: an event was sent for each pod."""


class NodeSeen(Event, frozen=True):
    """A node was listed, added or modified."""

    node: Node

    @property
    def about(self) -> Subject:
        return of_node(self.node.metadata.name)


class NodeGone(_OfNamed, frozen=True):
    """A node was deleted."""

    subject_kind = "node"


class GpusUnhealthy(Event, frozen=True):
    """gpushare's ConfigMap `unhealthy-gpu-<node>` names these GPU minors; none if it was deleted."""

    node: str
    minors: frozenset[int]

    @property
    def about(self) -> Subject:
        return of_node(self.node)


class GroupSeen(_OfGroup, frozen=True):
    """A PodGroup was listed, added or modified."""

    declaration: Declaration
    job: TrainingJob | None = None
    """Further fields of an ET-operator job."""


class GroupGone(_OfGroup, frozen=True):
    """A PodGroup was deleted."""


class ClassSeen(Event, frozen=True):
    """A GpuClass was listed, added or modified."""

    gpu_class: GpuClass

    @property
    def about(self) -> Subject:
        return Subject("class", self.gpu_class.name)


class ClassGone(_OfNamed, frozen=True):
    """A GpuClass was deleted."""

    subject_kind = "class"


class QueueSeen(Event, frozen=True):
    """A queue of any kind was listed, added or modified."""

    queue: Queue

    @property
    def about(self) -> Subject:
        return Subject("queue", self.queue.name, self.queue.source)


class QueueGone(Event, frozen=True):
    """A queue was deleted."""

    source: str
    """API group and version of the queue."""
    name: str

    @property
    def about(self) -> Subject:
        return Subject("queue", self.name, self.source)


class NamespaceSeen(Event, frozen=True):
    """A namespace was listed, added or modified."""

    namespace: Namespace


class NamespaceGone(Event, frozen=True):
    """A namespace was deleted."""

    name: str


class ScalerSeen(Event, frozen=True):
    """A ScaleIn or ScaleOut was listed, added or modified."""

    scaler: Scaler

    @property
    def about(self) -> Subject:
        return of_scaler(self.scaler)


class ScalerGone(Event, frozen=True):
    """A ScaleIn or ScaleOut was deleted."""

    kind: ScalerKind
    namespace: str
    name: str

    @property
    def about(self) -> Subject:
        return Subject("scaler", f"{self.namespace}/{self.name}", self.kind)


class ScalersServed(Event, frozen=True):
    """Whether ScaleIns or ScaleOuts can be created: their CRD exists and we watch them."""

    kind: ScalerKind
    yes: bool


class BudgetSeen(Event, frozen=True):
    """A PodDisruptionBudget was listed, added or modified."""

    budget: Budget

    @property
    def about(self) -> Subject:
        return Subject("budget", f"{self.budget.metadata.namespace}/{self.budget.metadata.name}")


class BudgetGone(Event, frozen=True):
    """A PodDisruptionBudget was deleted."""

    namespace: str
    name: str

    @property
    def about(self) -> Subject:
        return Subject("budget", f"{self.namespace}/{self.name}")


class PrioritySeen(Event, frozen=True):
    """A PriorityClass was listed, added or modified."""

    priority_class: PriorityClass

    @property
    def about(self) -> Subject:
        return Subject("priority", self.priority_class.metadata.name)


class PriorityGone(_OfNamed, frozen=True):
    """A PriorityClass was deleted."""

    subject_kind = "priority"


class Leading(Event, frozen=True):
    """Whether this process leads and may write. Only the leader plans gangs and holds binds."""

    yes: bool


class BindAbandoned(_OfPod, frozen=True):
    """kube-scheduler stopped waiting for the answer to a held bind."""


class EvictionRefused(_OfPod, frozen=True):
    """A disruption budget forbids an eviction without `insist`."""

    why: str


class BindDone(_OfPod, frozen=True):
    """The result of a Binding: `bound`, or `lost` (it was not written and will not be)."""

    outcome: Literal["bound", "lost"]


class WallMoved(Event, frozen=True):
    """The distance of the wall clock from the monotonic clock changed: it was set, or the machine was suspended."""

    by: float
    """Seconds; below zero if the wall clock was set back."""


class Tick(Event, frozen=True):
    """Time has passed. `Engine.ticks` splits a tick into parts, one step each."""

    part: str = ""
    """Which part, "" for all."""
    last: bool = True
    """It is the last part of the tick."""

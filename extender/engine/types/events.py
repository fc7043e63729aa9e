"""Events: what the world tells the engine. Values only."""

from __future__ import annotations

from typing import Literal

import msgspec

from extender.engine.types.subject import Subject, of_gang, of_node, of_pod, of_scaler
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
        """The object that it tells of; a component of the engine where it is none."""
        return Subject("part", type(self).__name__)


class _OfPod(Event, frozen=True):
    uid: str

    @property
    def about(self) -> Subject:
        return of_pod(self.uid)


class _OfNode(Event, frozen=True):
    name: str

    @property
    def about(self) -> Subject:
        return of_node(self.name)


class PodSeen(Event, frozen=True):
    """A pod was listed, added or modified."""

    pod: Pod

    @property
    def about(self) -> Subject:
        return of_pod(self.pod.metadata.uid)


class PodGone(_OfPod, frozen=True):
    """A pod is no longer there."""


class PodsListed(Event, frozen=True):
    """All pods that there are were told."""


class NodeSeen(Event, frozen=True):
    """A node was listed, added or modified."""

    node: Node

    @property
    def about(self) -> Subject:
        return of_node(self.node.metadata.name)


class NodeGone(_OfNode, frozen=True):
    """A node is no longer there."""


class GpusUnhealthy(Event, frozen=True):
    """gpushare's ConfigMap `unhealthy-gpu-<node>` names these GPU minors; empty when it is gone."""

    node: str
    minors: frozenset[int]

    @property
    def about(self) -> Subject:
        return of_node(self.node)


class GroupSeen(Event, frozen=True):
    """A PodGroup was listed, added or modified; `kind` is its API group and version."""

    kind: str
    key: GroupKey
    declaration: Declaration
    job: TrainingJob | None = None
    """What else ET-operator says of it, if it is one of its jobs."""

    @property
    def about(self) -> Subject:
        return of_gang(self.key)


class GroupGone(Event, frozen=True):
    """A PodGroup is no longer there."""

    kind: str
    key: GroupKey

    @property
    def about(self) -> Subject:
        return of_gang(self.key)


class ClassSeen(Event, frozen=True):
    """A GpuClass was listed, added or modified."""

    gpu_class: GpuClass

    @property
    def about(self) -> Subject:
        return Subject("class", self.gpu_class.name)


class ClassGone(Event, frozen=True):
    """A GpuClass is no longer there."""

    name: str

    @property
    def about(self) -> Subject:
        return Subject("class", self.name)


class QueueSeen(Event, frozen=True):
    """A queue, of whatever kind, was listed, added or modified."""

    queue: Queue

    @property
    def about(self) -> Subject:
        return Subject("queue", self.queue.name, self.queue.source)


class QueueGone(Event, frozen=True):
    """A queue is no longer there; `source` is its API group and version."""

    source: str
    name: str

    @property
    def about(self) -> Subject:
        return Subject("queue", self.name, self.source)


class NamespaceSeen(Event, frozen=True):
    """A namespace was listed, added or modified."""

    namespace: Namespace


class NamespaceGone(Event, frozen=True):
    """A namespace is no longer there."""

    name: str


class ScalerSeen(Event, frozen=True):
    """A ScaleIn or ScaleOut was listed, added or modified."""

    scaler: Scaler

    @property
    def about(self) -> Subject:
        return of_scaler(self.scaler)


class ScalerGone(Event, frozen=True):
    """A ScaleIn or ScaleOut is no longer there."""

    kind: ScalerKind
    namespace: str
    name: str

    @property
    def about(self) -> Subject:
        return Subject("scaler", f"{self.namespace}/{self.name}", self.kind)


class ScalersServed(Event, frozen=True):
    """Whether such objects can be made: their definition is there and they are shown to us."""

    kind: ScalerKind
    yes: bool


class BudgetSeen(Event, frozen=True):
    """A PodDisruptionBudget was listed, added or modified."""

    budget: Budget

    @property
    def about(self) -> Subject:
        return Subject("budget", f"{self.budget.metadata.namespace}/{self.budget.metadata.name}")


class BudgetGone(Event, frozen=True):
    """A PodDisruptionBudget is no longer there."""

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


class PriorityGone(Event, frozen=True):
    """A PriorityClass is no longer there."""

    name: str

    @property
    def about(self) -> Subject:
        return Subject("priority", self.name)


class Leading(Event, frozen=True):
    """Whether this process may write from now on: only then gangs are planned, and no bind is held otherwise."""

    yes: bool


class BindAbandoned(_OfPod, frozen=True):
    """Nobody waits any more for the answer to a held bind."""


class EvictionRefused(_OfPod, frozen=True):
    """A disruption budget forbids the eviction of a pod, which was not insisted on."""

    why: str


class BindDone(_OfPod, frozen=True):
    """How the Binding of a pod went: `bound`, or `lost` (it did not happen and will not)."""

    outcome: Literal["bound", "lost"]


class WallMoved(Event, frozen=True):
    """The wall clock was set, or the machine was suspended: it is further ahead of the monotonic clock than before."""

    by: float
    """So many seconds; less than zero where it was set back."""


class Tick(Event, frozen=True):
    """Time has passed. `Engine.ticks` are the parts of one, each a step of its own."""

    part: str = ""
    """What is done of all that there is to do; "" for everything."""
    last: bool = True
    """Nothing of it is left to do."""

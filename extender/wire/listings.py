"""The status port's JSON about GpuClasses, GPU models, queues and defragmentation plans.

`/classes` is a `Classes`, `/queues` a `Queues`, `/queues/NAME` a `QueuePage`, `/defrag/NAMESPACE/NAME` a `Plan`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from extender.wire.answers import Earliest, OfPod, Shape, Verdict


class Place(Shape, frozen=True, kw_only=True):
    """GPUs of a node, by index."""

    node: str
    gpus: tuple[int, ...] = ()


class Move(OfPod, frozen=True, kw_only=True):
    """A pod to move, its GPU memory in units, and its old and new place."""

    mem: int = 0
    source: Place = msgspec.field(name="from")
    target: Place = msgspec.field(name="to")


class Room(OfPod, frozen=True, kw_only=True):
    """Where a pending pod fits after the moves, with the GPU UUIDs of its containers."""

    node: str
    gpus: tuple[int, ...] = ()
    containers: Mapping[str, tuple[str, ...]] = {}


class Plan(Shape, frozen=True, kw_only=True):
    """All of `/defrag/NAMESPACE/NAME`: whether the workload fits after these moves, and a sentence."""

    who: str = msgspec.field(name="for")
    fits: bool
    verdict: str
    moves: tuple[Move, ...] = ()
    rooms: tuple[Room, ...] = ()


class GpuClass(Shape, frozen=True, kw_only=True):
    """A class: its GPUs, those wholly free, the nodes with its GPUs, and the pending pods that name it."""

    name: str
    description: str = ""
    problem: str | None = None
    gpus: int = 0
    free: int = 0
    nodes: int = 0
    waiting: int = 0


class MissingClass(Shape, frozen=True, kw_only=True):
    """A class that does not exist, and the number of pending pods that name it."""

    name: str
    waiting: int = 0


class Model(Shape, frozen=True, kw_only=True):
    """A model of GPUs: its memory in units and MiB, clock and CUDA compute capability, and how many there are."""

    model: str = ""
    profile: str = ""
    """The MIG profile of instances, "" for GPUs."""
    mem: int = 0
    mem_mib: int = msgspec.field(default=0, name="memMiB")
    clock_mhz: int = msgspec.field(default=0, name="clockMHz")
    compute_capability: str = ""
    gpus: int = 0
    free: int = 0
    nodes: int = 0


class Classes(Shape, frozen=True, kw_only=True):
    """All of `/classes`."""

    classes: tuple[GpuClass, ...] = ()
    missing: tuple[MissingClass, ...] = ()
    models: tuple[Model, ...] = ()


class Strangers(Shape, frozen=True, kw_only=True):
    """Pods that name a queue that does not admit their namespaces."""

    waiting: int
    running: int
    namespaces: str


class Queue(Shape, frozen=True, kw_only=True):
    """A queue and its depth below the root: limits, fair share, allocated and requested amounts by resource."""

    name: str
    allocated: Mapping[str, str] = {}
    requested: Mapping[str, str] = {}
    fair_share: Mapping[str, str] = {}
    share: str = ""
    waiting: int = 0
    running: int = 0
    closed: bool = False
    closed_by: str = ""
    """The closed queue, it or one above, because of which no workload starts in it."""
    problem: str = ""
    misplaced: str = ""
    exceeded: str = ""
    source: str = ""
    """API group and version of its object, "" if it has none."""
    parent: str = ""
    weight: int = 1
    priority: int = 0
    reclaimable: bool = True
    namespaces: tuple[str, ...] = ()
    guarantee: Mapping[str, str] = {}
    deserved: Mapping[str, str] = {}
    capability: Mapping[str, str] = {}
    namespace_selector: Any = None
    strangers: Strangers | None = None
    depth: int = 0


class Waiter(Shape, frozen=True, kw_only=True):
    """A pending gang or single pod (NAMESPACE/NAME), and the seconds that it has waited."""

    who: str
    seconds: float = 0.0


class QueuePage(Queue, frozen=True, kw_only=True):
    """All about one queue: the first of its `in_line` pending workloads, and the earliest start of the very first."""

    verdict: Verdict = Verdict()
    in_line: int = 0
    line: tuple[Waiter, ...] = ()
    first: Earliest | None = None


class Queues(Shape, frozen=True, kw_only=True):
    """All of `/queues`: each queue after its parent."""

    queues: tuple[Queue, ...] = ()

"""The JSON of the page (`gangshare ui`): what its server writes and its browser reads.

`GET api/snapshot` is a `Snapshot`. `GET api/stream` sends `Delta`s as server-sent events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from extender.wire.answers import Shape

GpuState = Literal["free", "part", "whole", "mig", "sick", "cordoned", "kept"]
NodeState = Literal["ok", "cordoned", "not-ready", "no-inventory"]


class Holder(Shape, frozen=True, kw_only=True):
    """A pod on a GPU. Pods that the viewer may not see have no name, and no amounts of their own."""

    pod: str | None = None
    """NAMESPACE/NAME."""
    queue: str = ""
    memory: int = 0
    """MiB."""
    slices: int = 0
    whole: bool = False
    kept: bool = False
    """The pod is lost, and its GPU is held for its replacement."""
    reserved: bool = False
    """The pod is pending, and the GPU is reserved for it."""


class Gpu(Shape, frozen=True, kw_only=True):
    """One GPU or MIG instance: `id` is 3, or 3:1 for an instance of GPU 3."""

    id: str
    model: str = ""
    memory: int
    """MiB."""
    used: int = 0
    """MiB."""
    slices: int
    slices_used: int = 0
    state: GpuState
    why: str | None = None
    profile: str | None = None
    level: str = ""
    """How its parts are isolated, in words."""
    holders: tuple[Holder, ...] = ()
    others: int = 0
    """Pods on it that the viewer may not see."""


class Node(Shape, frozen=True, kw_only=True):
    """One node with its GPUs."""

    name: str
    state: NodeState
    why: str | None = None
    model: str = ""
    gpus: tuple[Gpu, ...] = ()


class Queue(Shape, frozen=True, kw_only=True):
    """A queue in GPUs: its quota, limit, fair share, and the GPUs that its pods hold and request."""

    name: str
    parent: str = ""
    depth: int = 0
    gpus: float | None = None
    """What it deserves, or else what it is guaranteed; null: neither is set."""
    limit: float | None = None
    used: float = 0.0
    demand: float = 0.0
    """Requested, whether placed or pending."""
    share: float | None = None
    borrowed: float = 0.0
    """Used beyond its quota."""
    lent: float = 0.0
    """The part of its quota that it neither uses nor requests."""
    pending: int = 0
    running: int = 0
    closed: bool = False
    problem: str = ""


class Workload(Shape, frozen=True, kw_only=True):
    """A pending pod, or a gang in any phase."""

    kind: Literal["pod", "gang"]
    namespace: str
    name: str
    queue: str = ""
    phase: str
    seconds: float = 0.0
    """In this phase, when the server looked."""
    gang: str = ""
    """Of a pod: NAMESPACE/NAME of its gang."""
    members: int = 0
    minimum: int | None = None
    running: int = 0
    earliest_start: float | None = None
    """Seconds from then on; set for the first of a queue."""
    reason: str = ""
    message: str = ""


class Snapshot(Shape, frozen=True, kw_only=True):
    """All that a viewer sees."""

    cursor: str
    at: float
    """Unix time in seconds."""
    context: str
    version: str
    nodes: tuple[Node, ...] = ()
    queues: tuple[Queue, ...] = ()
    workloads: tuple[Workload, ...] = ()
    limits: tuple[str, ...] = ()
    """What is missing, and why, in sentences."""


class Delta(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """What has changed: nodes by name (null: gone), and the other lists whole if anything in them has changed."""

    cursor: str
    at: float
    nodes: Mapping[str, Node | None] = {}
    queues: tuple[Queue, ...] | None = None
    workloads: tuple[Workload, ...] | None = None
    limits: tuple[str, ...] | None = None


class Failure(msgspec.Struct, frozen=True):
    """The body of each answer with an error status."""

    error: str


class Explained(Shape, frozen=True, kw_only=True):
    """A pod as the cluster explains it, and in words which GPUs it holds or has reserved."""

    pod: msgspec.Raw
    held: tuple[str, ...] = ()


class Links(Shape, frozen=True, kw_only=True):
    """What joins each two GPUs of a node; "" if nothing is known of them. Each row is as long as `gpus`."""

    gpus: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


class Answered(Shape, frozen=True, kw_only=True):
    """The answer to a what-if, and in words where the pods would be."""

    status: msgspec.Raw
    places: tuple[str, ...] = ()

"""What-if as JSON: the question, and the answer. `POST /whatif` takes a `WhatIf` and answers a `Status`.

In the aggregated API the resource `whatifs` takes the same object, and answers it with its status.
"""

from __future__ import annotations

import msgspec

from extender.wire.answers import Shape, Verdict
from protos.contract import names
from protos.contract.objects import Pod

KIND, PLURAL = "WhatIf", "whatifs"
API_VERSION = f"{names.VISIBILITY_GROUP}/{names.VISIBILITY_VERSION}"


class Pods(Shape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So many pods that are alike; several are called NAME-0, NAME-1 and so on."""

    template: Pod
    count: int = 1


class Nodes(Shape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So many further nodes like an existing one."""

    like: str
    count: int = 1


class Spec(Shape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The question."""

    pods: tuple[Pods, ...]
    groups: tuple[msgspec.Raw, ...] = ()
    """PodGroups, as objects."""
    nodes: tuple[Nodes, ...] = ()


class Metadata(Shape, frozen=True, kw_only=True):
    """The metadata that the answer repeats."""

    name: str = ""
    namespace: str = ""


class WhatIf(Shape, frozen=True, kw_only=True):
    """A question."""

    api_version: str
    kind: str
    metadata: Metadata = Metadata()
    spec: Spec


class Place(Shape, frozen=True, kw_only=True):
    """The place that a pod would get; `gpus` are indexes on the node."""

    name: str
    role: str = ""
    node: str = ""
    gpus: tuple[int, ...] = ()


class Victim(Shape, frozen=True, kw_only=True):
    """A pod that would be evicted."""

    namespace: str
    name: str
    node: str


class Workload(Shape, frozen=True, kw_only=True):
    """What would become of a gang or a single pod."""

    kind: str
    """`gang` or `pod`."""
    namespace: str
    name: str
    verdict: Verdict
    """The state is now, preempts, later, waits or never."""
    code: str = ""
    sentence: str = ""
    numbers: str = ""
    queue: str = ""
    place: int = 0
    """Its place among the `in_line` pending workloads of its queue, itself included; 0 if it starts now."""
    in_line: int = 0
    seconds: float = 0.0
    """later: until the earliest start."""
    sure: bool = True
    """All run times that this depends on are known."""
    after: str = ""
    """NAMESPACE/NAME of the pod that must end last before; "" if the caller may not see it."""
    pods: tuple[Place, ...] = ()
    """Its pods; those without a node would wait."""
    victims: tuple[Victim, ...] = ()
    other_victims: int = 0
    """Pods to evict that the caller may not see."""
    forbidden: str = ""
    """What forbids the evictions that would help."""
    warnings: tuple[str, ...] = ()
    """Keys that are not read, and values that differ or cannot be read."""


class Further(Shape, frozen=True, kw_only=True):
    """What would become of all workloads with the further nodes; nothing is evicted then."""

    verdict: Verdict
    workloads: tuple[Workload, ...] = ()


class Status(Shape, frozen=True, kw_only=True):
    """The answer."""

    verdict: Verdict = Verdict()
    workloads: tuple[Workload, ...] = ()
    further: Further | None = None

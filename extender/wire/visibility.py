"""The objects of the aggregated API, group `visibility.gangshare.io`: what `kubectl get` shows.

An object has a name and a `status`, which extends what the pages of the status port show. Pods and gangs of namespaces
that the caller may not list are counted and not named. Source: meta.k8s.io/v1 for Table, Status and discovery.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from extender.wire import answers, listings
from extender.wire.answers import Shape
from protos.contract import names

GROUP_VERSION = f"{names.VISIBILITY_GROUP}/{names.VISIBILITY_VERSION}"

MOST_TOKENS, TOKEN_LENGTH = 4, 64
"""Tokens of `changedSince`, and the characters of one."""
WAITING = "status.state=waiting"
"""The one field selector, of gpupods."""


class GpuStatus(answers.Gpu, frozen=True, kw_only=True):
    """One GPU: what it is, what is used of it, and the pods on it."""

    node: str
    unit_mib: int = msgspec.field(default=1024, name="unitMiB")
    slices: int = 100
    """The slices of the whole GPU, or of the instance."""
    verdict: answers.Verdict = answers.Verdict()
    isolation: str = ""
    """That of its node."""
    isolation_why: str = ""


class GpuNodeStatus(answers.NodePage, frozen=True, kw_only=True):
    """One node and its GPUs. `unplaced` pods are on the node, but their GPUs are unknown."""

    gpus: tuple[GpuStatus, ...] = ()


class GpuPodStatus(answers.Pod, frozen=True, kw_only=True):
    """One pod that requests GPUs: its GPUs or, if it is pending, the reason."""


class GangStatus(answers.Group, frozen=True, kw_only=True):
    """One gang: its phase, its members and, if it is pending, the reason."""


class PendingWorkload(Shape, frozen=True, kw_only=True):
    """A pending gang or pod of a queue, and its place there."""

    place: int
    kind: str
    namespace: str
    name: str


class GpuQueueStatus(listings.QueuePage, frozen=True, kw_only=True):
    """One queue: limits, fair share, amounts, and the order of its pending workloads."""

    pending: tuple[PendingWorkload, ...] = ()
    """Those that the caller may see."""
    other_pending: int = 0
    """Those that the caller may not see."""


class GpuOfferStatus(Shape, frozen=True, kw_only=True):
    """GPUs that pods can request, by the name of a class or by a model."""

    gpu_class: listings.GpuClass | None = None
    missing: listings.MissingClass | None = None
    """A class that does not exist, and that pending pods name."""
    model: listings.Model | None = None


class DefragPlanStatus(listings.Plan, frozen=True, kw_only=True):
    """The moves that make room for a pending pod or gang. It names pods of all namespaces."""


class Item(msgspec.Struct, frozen=True):
    """An object; its namespace is "" if it is in none."""

    namespace: str
    name: str
    status: Shape
    uid: str = ""

    def metadata(self) -> dict[str, str]:
        given = {"namespace": self.namespace, "name": self.name, "uid": self.uid}
        return {key: value for key, value in given.items() if value}


def object_of(kind: str, item: Item) -> dict[str, Any]:
    """The object as JSON has it."""
    return {"apiVersion": GROUP_VERSION, "kind": kind, "metadata": item.metadata(), "status": item.status}


def partial(item: Item) -> dict[str, Any]:
    """The object without its status, for a row of a Table."""
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": item.metadata()}


def failure(code: int, reason: str, message: str) -> bytes:
    """A Status for a request that is refused."""
    fields: Mapping[str, object] = {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }
    return msgspec.json.encode(fields)

"""The resources of the aggregated API, and the columns in which `kubectl get` shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from extender.server.desk import Pieces, json_object
from extender.server.visibility import items, lines, offers, plans
from extender.server.visibility.items import Listing, View
from extender.wire import visibility as wire
from extender.wire.answers import Shape
from extender.wire.listings import GpuClass, Model
from extender.wire.visibility import Item
from protos.contract import mig
from protos.contract.queue import GPUS


class Column(NamedTuple):
    """A column of a table, and its cell for the status of an object."""

    name: str
    cell: Callable[[Any], object]
    description: str
    type: str = "string"
    priority: int = 0
    """1: only shown with `-o wide`."""

    def definition(self) -> dict[str, object]:
        shape = {"name": self.name, "type": self.type, "format": "name" if self.name == "Name" else ""}
        return {**shape, "description": self.description, "priority": self.priority}


List = Callable[[View, str], Listing]


class Resource(NamedTuple):
    """One kind of objects: where it is served, and how it is read."""

    plural: str
    kind: str
    namespaced: bool
    shape: type[Shape]
    """Of the status."""
    list: List | None
    """None: only single objects are served."""
    get: Callable[[View, str, str], Listing]
    columns: tuple[Column, ...]
    plans: bool = False
    """An object is a long computation, which names pods of all namespaces."""
    selects: bool = False
    """Pending ones can be listed alone."""
    changes: bool = False
    """Those that have changed can be listed alone."""

    @property
    def verbs(self) -> tuple[str, ...]:
        return ("get", "list") if self.list is not None else ("get",)


Form = Literal["objects", "table", "table with objects"]
"""How objects are written."""


def listed(resource: Resource, found: Listing, form: Form, more: Mapping[str, Any] = MappingProxyType({})) -> Pieces:
    """The objects as a list, or as a Table. `more`: further fields of the list."""
    if form != "objects":
        return _table(resource, found, form)
    head = {"apiVersion": wire.GROUP_VERSION, "kind": f"{resource.kind}List", "metadata": {}, **more}
    objects = (wire.object_of(resource.kind, item) if item is not None else None for item in found)
    return json_object(head, {"items": objects})


def single(resource: Resource, found: Listing, absent: Exception, form: Form) -> Pieces:
    """The one object, or a Table of it; raises `absent` if there is none."""
    for item in found:
        if item is not None:
            encoded = msgspec.json.encode(wire.object_of(resource.kind, item))
            yield from iter([encoded]) if form == "objects" else _table(resource, iter([item]), form)
            return
        yield b""
    raise absent


def _table(resource: Resource, found: Iterator[Item | None], form: Form) -> Pieces:
    definitions = [column.definition() for column in (NAME, *resource.columns)]
    head = {"apiVersion": "meta.k8s.io/v1", "kind": "Table", "metadata": {}, "columnDefinitions": definitions}
    rows = (_row(resource, item, form) if item is not None else None for item in found)
    return json_object(head, {"rows": rows})


def _row(resource: Resource, item: Item, form: Form) -> dict[str, Any]:
    whole = form == "table with objects"
    cells = [item.name, *(column.cell(item.status) for column in resource.columns)]
    return {"cells": cells, "object": wire.object_of(resource.kind, item) if whole else wire.partial(item)}


NAME = Column("Name", str, "The name of the object.")


# -- cells


def ago(seconds: float) -> str:
    """Seconds as kubectl prints ages."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def _why(status: wire.GpuPodStatus | wire.GangStatus) -> str:
    return f"{status.sentence}: {status.numbers}" if status.numbers else status.sentence


def _health(gpu: wire.GpuStatus) -> str:
    return "cordoned" if gpu.health == "ok" and gpu.cordoned else gpu.health


def _free(node: wire.GpuNodeStatus) -> int:
    return sum(_health(gpu) == "ok" and not gpu.whole and not gpu.mem_used and not gpu.slices_used for gpu in node.gpus)


def _models(node: wire.GpuNodeStatus) -> str:
    return ",".join(sorted({gpu.model for gpu in node.gpus}))


def _pods(gpu: wire.GpuStatus) -> int:
    return len(gpu.pods) + gpu.other_pods


def _named(gpu: wire.GpuStatus) -> str:
    return ",".join(f"{pod.namespace}/{pod.name}" for pod in gpu.pods)


def _state(pod: wire.GpuPodStatus) -> str:
    return "Pending" if pod.state in ("waiting", "held") else pod.state.capitalize()


def _indexes(pod: wire.GpuPodStatus) -> str:
    shares = pod.allocation.containers.values() if pod.allocation is not None else ()
    return ",".join(map(mig.shown, sorted({share.index for own in shares for share in own})))


def _pending_for(pod: wire.GpuPodStatus) -> str:
    return ago(pod.since) if _state(pod) == "Pending" else ""


def _counts(offer: wire.GpuOfferStatus) -> GpuClass | Model:
    return offer.gpu_class or offer.model or Model()


def _what(offer: wire.GpuOfferStatus) -> str:
    if offer.gpu_class is not None:
        return offer.gpu_class.problem or f"class: {offer.gpu_class.description}".rstrip(": ")
    model = offer.model
    if model is None:
        return "class that does not exist"
    return f"{f'{model.model} {model.profile}'.rstrip()}, {model.mem_mib} MiB"


def _gpus(amounts: Mapping[str, str]) -> str:
    return amounts.get(GPUS, "")


# -- resources

RESOURCES = (
    Resource(
        "gpus",
        "Gpu",
        False,
        wire.GpuStatus,
        items.gpus,
        items.gpu,
        (
            Column("Node", lambda gpu: gpu.node, "Its node."),
            Column("Model", lambda gpu: f"{gpu.model} {gpu.profile}".rstrip(), "Its model, and the MIG profile."),
            Column("Health", _health, "ok, cordoned, or why it takes no new pods."),
            Column("Memory", lambda gpu: f"{gpu.mem_used}/{gpu.mem}", "Used and all memory, in units."),
            Column("Slices", lambda gpu: "whole" if gpu.whole else f"{gpu.slices_used}/{gpu.slices}", "Used and all."),
            Column("Pods", _pods, "The number of pods on it.", "integer"),
            Column("Visible Pods", _named, "Those whose namespaces you may see.", priority=1),
            Column("UUID", lambda gpu: gpu.uuid, "Its UUID.", priority=1),
        ),
    ),
    Resource(
        "gpunodes",
        "GpuNode",
        False,
        wire.GpuNodeStatus,
        items.nodes,
        items.node,
        (
            Column("State", lambda node: node.state, "ready, leaving, or unknown."),
            Column("GPUs", lambda node: len(node.gpus), "The number of its GPUs.", "integer"),
            Column("Free", _free, "The number of its healthy GPUs that are wholly free.", "integer"),
            Column("Models", _models, "The models of its GPUs."),
            Column("Problem", lambda node: node.problem or "", "Why it takes no new pods.", priority=1),
            Column("Isolation", lambda node: node.isolation, "How it isolates parts of GPUs.", priority=1),
        ),
        changes=True,
    ),
    Resource(
        "gpupods",
        "GpuPod",
        True,
        wire.GpuPodStatus,
        items.pods,
        items.pod,
        (
            Column("State", _state, "Pending, Binding or Bound."),
            Column("Node", lambda pod: pod.node, "Its node."),
            Column("GPUs", _indexes, "Its GPUs on that node, by index."),
            Column("For", _pending_for, "How long it is pending."),
            Column("Why", _why, "Why it is pending."),
            Column("Queue", lambda pod: pod.queue, "Its queue.", priority=1),
            Column("Gang", lambda pod: pod.group.partition("/")[2], "Its gang.", priority=1),
        ),
        selects=True,
    ),
    Resource(
        "gangs",
        "Gang",
        True,
        wire.GangStatus,
        items.gangs,
        items.gang,
        (
            Column("Phase", lambda gang: gang.phase, "Its phase."),
            Column("For", lambda gang: ago(gang.since), "The time in this phase."),
            Column("Bound", lambda gang: f"{gang.bound + gang.succeeded}/{gang.present}", "Members that have a node."),
            Column("Minimum", lambda gang: gang.min_member, "Members that start together.", "integer"),
            Column("Why", _why, "Why it is pending."),
            Column("Queue", lambda gang: gang.queue, "Its queue.", priority=1),
        ),
    ),
    Resource(
        "gpuoffers",
        "GpuOffer",
        False,
        wire.GpuOfferStatus,
        offers.offers,
        offers.offer,
        (
            Column("GPUs", lambda offer: _counts(offer).gpus, "Matching GPUs.", "integer"),
            Column("Free", lambda offer: _counts(offer).free, "Those that are wholly free.", "integer"),
            Column("Nodes", lambda offer: _counts(offer).nodes, "Nodes with such GPUs.", "integer"),
            Column("What", _what, "The model, or what the class is for."),
        ),
    ),
    Resource(
        "defragplans",
        "DefragPlan",
        True,
        wire.DefragPlanStatus,
        None,
        plans.plan,
        (
            Column("Fits", lambda plan: str(plan.fits), "Whether the workload fits after the moves."),
            Column("Moves", lambda plan: len(plan.moves), "The number of pods to move.", "integer"),
            Column("Verdict", lambda plan: plan.verdict, "The plan in a sentence."),
        ),
        plans=True,
    ),
    Resource(
        "gpuqueues",
        "GpuQueue",
        False,
        wire.GpuQueueStatus,
        lines.queues,
        lines.queue,
        (
            Column("Fair Share", lambda queue: _gpus(queue.fair_share), "GPUs that are its fair share."),
            Column("Allocated", lambda queue: _gpus(queue.allocated), "GPUs allocated to it."),
            Column("Requested", lambda queue: _gpus(queue.requested), "GPUs requested in it."),
            Column("Pending", lambda queue: queue.waiting, "Pending pods.", "integer"),
            Column("Running", lambda queue: queue.running, "Running pods.", "integer"),
            Column("Parent", lambda queue: queue.parent, "The queue above it.", priority=1),
        ),
    ),
)
BY_PLURAL = {resource.plural: resource for resource in RESOURCES}

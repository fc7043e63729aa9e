"""The kinds of objects that are watched, a row each. Every cluster has pods and nodes, all other kinds are optional.

The effect if the API server does not serve an optional kind, or does not let us read it:

- PodGroups, TrainingJobs and other declarations of gangs: only the pods declare their gangs.
- Queues and ElasticQuotas: there are no queues.
- GpuClasses: a pod that names one stays pending.
- Namespaces: no queue that selects namespaces by labels admits any.
- PodDisruptionBudgets: the API server alone refuses evictions.
- PriorityClasses: a gang has the priority of its members.
- ScaleIns and ScaleOuts: TrainingJobs are not resized.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from extender.cluster.status import CLASS_UNREADABLE, QUEUE_UNREADABLE
from extender.engine.types import events
from extender.engine.types.events import Event
from gangfilter import podgroups
from gangfilter.group import Declaration, GroupKey
from protos.contract import bounds, budget, gpu_class, names, namespace, objects, priority, queue_sources, training
from protos.contract.gpu_class import GpuClass
from protos.contract.namespace import Namespace
from protos.contract.queue import Queue
from protos.contract.reason import Reason, listed
from protos.contract.selection import is_number
from protos.contract.training import TrainingJob
from protos.kube import paths
from protos.kube.changes import Ref
from protos.kube.events import Reference

GROUP_UNREADABLE = "GroupUnreadable"
NAMESPACE_UNREADABLE, UNHEALTHY_UNREADABLE = "NamespaceUnreadable", "UnhealthyGpusUnreadable"
NAMED, SHOWN = 8, 40
"""The most entries that a sentence names, and characters of each."""
Complain = Callable[[Reference, Reason], None]
"""Reports to the owner of an object why it cannot be read."""
Report = Callable[[Ref, str], None]
"""The same for an object of one kind."""
T = TypeVar("T", GpuClass, Namespace, Queue)


class WatchedKind(msgspec.Struct, frozen=True, kw_only=True):
    """One watched kind: where its objects are, how they are read, and the engine's events for their changes.

    A function that returns None makes no event.
    """

    api_version: str
    """Group and version, as in an object's apiVersion."""
    plural: str
    kind: str
    decode: Callable[[bytes], Any]
    """Reads an object; raises one of `codec.BAD_JSON` or ValueError."""
    seen: Callable[[Ref, Any], Event | None]
    """An object was added or changed."""
    gone: Callable[[Ref], Event | None]
    """An object was deleted."""
    listed: Callable[[], Event | None] = lambda: None
    """A list is complete."""
    left: Callable[[], Event | None] = lambda: None
    """The kind is not served any more; `gone` was called for each of its objects."""
    unreadable: Callable[[Ref, str], None] | None = None
    """Reports to the owner why an object cannot be read, beside the log."""
    namespace: str = ""
    """The namespace that is watched, "" for all."""

    @property
    def title(self) -> str:
        """`Queue gangshare.io/v1alpha1`."""
        return f"{self.kind} {self.api_version}"

    @property
    def path(self) -> str:
        """The path of the collection on the API server."""
        return paths.path(self.api_version, self.plural, namespace=self.namespace)


PODS = WatchedKind(
    api_version="v1",
    plural="pods",
    kind="Pod",
    decode=objects.decode_pod,
    seen=lambda _, found: events.PodSeen(found),
    gone=lambda ref: events.PodGone(ref.uid),
    listed=events.PodsListed,
)
NODES = WatchedKind(
    api_version="v1",
    plural="nodes",
    kind="Node",
    decode=objects.decode_node,
    seen=lambda _, found: events.NodeSeen(found),
    gone=lambda ref: events.NodeGone(ref.name),
)


def optional(complain: Complain, resources: names.Resources = names.DEFAULT_RESOURCES) -> list[WatchedKind]:
    """All kinds that a cluster may lack; `complain` reports objects that cannot be read."""
    return [
        *(_groups(kind, complain, resources) for kind in podgroups.KINDS),
        _gpu_classes(complain),
        *(_queues(kind, complain) for kind in queue_sources.SOURCES),
        _namespaces(complain),
        _BUDGETS,
        _PRIORITY_CLASSES,
        *map(_scalers, training.PLURALS),
    ]


def _reporter(complain: Complain, api_version: str, kind: str, code: str) -> Report:
    """Reports to the owner of an object of this kind what is wrong with it, under this code."""

    def report(ref: Ref, problem: str) -> None:
        complain(Reference(api_version, kind, ref.name, ref.namespace, ref.uid), Reason(code, problem))

    return report


def _reporting(report: Report, event: Callable[[T], Event]) -> Callable[[Ref, T], Event]:
    """The event of an object that was seen; what cannot be read in it is reported."""

    def seen(ref: Ref, found: T) -> Event:
        if found.problem:
            report(ref, found.problem)
        return event(found)

    return seen


def _groups(kind: podgroups.Kind, complain: Complain, resources: names.Resources) -> WatchedKind:
    def decode(raw: bytes) -> tuple[GroupKey, Declaration, TrainingJob | None]:
        key, declaration = podgroups.declaration(kind, raw, resources)
        return key, declaration, training.decode_job(raw) if kind.kind == training.JOB_KIND else None

    return WatchedKind(
        api_version=kind.api_version,
        plural=kind.plural,
        kind=kind.kind,
        decode=decode,
        seen=lambda _, found: events.GroupSeen(kind.api_version, *found),
        gone=lambda ref: events.GroupGone(kind.api_version, GroupKey(ref.namespace, ref.name)),
        unreadable=_reporter(complain, kind.api_version, kind.kind, GROUP_UNREADABLE),
    )


def _gpu_classes(complain: Complain) -> WatchedKind:
    report = _reporter(complain, gpu_class.API_VERSION, gpu_class.KIND, CLASS_UNREADABLE)
    return WatchedKind(
        api_version=gpu_class.API_VERSION,
        plural=gpu_class.PLURAL,
        kind=gpu_class.KIND,
        decode=gpu_class.decode,
        seen=_reporting(report, events.ClassSeen),
        gone=lambda ref: events.ClassGone(ref.name),
        unreadable=report,
    )


def _queues(kind: queue_sources.Source, complain: Complain) -> WatchedKind:
    report = _reporter(complain, kind.api_version, kind.kind, QUEUE_UNREADABLE)
    told = _reporting(report, events.QueueSeen)
    taken: set[str] = set()
    """The queues that the engine knows."""

    def seen(ref: Ref, found: Queue) -> Event | None:
        if found.name not in taken and len(taken) >= bounds.QUEUES.most:
            report(ref, bounds.QUEUES.exceeded(len(taken) + 1))
            return None
        taken.add(found.name)
        return told(ref, found)

    def gone(ref: Ref) -> Event:
        name = kind.name(ref.namespace, ref.name)
        taken.discard(name)
        return events.QueueGone(kind.api_version, name)

    return WatchedKind(
        api_version=kind.api_version,
        plural=kind.plural,
        kind=kind.kind,
        decode=lambda raw: queue_sources.decode(kind, raw),
        seen=seen,
        gone=gone,
        unreadable=report,
    )


def _scalers(kind: training.ScalerKind) -> WatchedKind:
    return WatchedKind(
        api_version=training.API_VERSION,
        plural=training.PLURALS[kind],
        kind=kind,
        decode=lambda raw: training.decode_scaler(kind, raw),
        seen=lambda _, found: events.ScalerSeen(found),
        gone=lambda ref: events.ScalerGone(kind, ref.namespace, ref.name),
        listed=lambda: events.ScalersServed(kind, yes=True),
        left=lambda: events.ScalersServed(kind, yes=False),
    )


def _namespaces(complain: Complain) -> WatchedKind:
    report = _reporter(complain, namespace.API_VERSION, namespace.KIND, NAMESPACE_UNREADABLE)
    return WatchedKind(
        api_version=namespace.API_VERSION,
        plural=namespace.PLURAL,
        kind=namespace.KIND,
        decode=namespace.decode,
        seen=_reporting(report, events.NamespaceSeen),
        gone=lambda ref: events.NamespaceGone(ref.name),
    )


_BUDGETS = WatchedKind(
    api_version=budget.API_VERSION,
    plural=budget.PLURAL,
    kind=budget.KIND,
    decode=budget.decode,
    seen=lambda _, found: events.BudgetSeen(found),
    gone=lambda ref: events.BudgetGone(ref.namespace, ref.name),
)
_PRIORITY_CLASSES = WatchedKind(
    api_version=priority.API_VERSION,
    plural=priority.PLURAL,
    kind=priority.KIND,
    decode=priority.decode,
    seen=lambda _, found: events.PrioritySeen(found),
    gone=lambda ref: events.PriorityGone(ref.name),
)


class ConfigMap(msgspec.Struct, frozen=True):
    """The data of a core/v1 ConfigMap."""

    data: dict[str, str] = {}


def unhealthy_gpus(complain: Complain) -> WatchedKind:
    """gpushare's ConfigMaps `unhealthy-gpu-<node>`; `complain` reports entries that cannot be read."""
    report = _reporter(complain, "v1", "ConfigMap", UNHEALTHY_UNREADABLE)

    def seen(ref: Ref, found: ConfigMap) -> Event | None:
        if not ref.name.startswith(names.UNHEALTHY_CONFIGMAP_PREFIX):
            return None
        minors, bad = _minors(found)
        if bad:
            named = listed(map(repr, bad), NAMED)
            report(ref, f"{names.UNHEALTHY_CONFIGMAP_KEY} names {named}: expected minor numbers of GPUs, like 0,3")
        return events.GpusUnhealthy(ref.name.removeprefix(names.UNHEALTHY_CONFIGMAP_PREFIX), minors)

    return WatchedKind(
        api_version="v1",
        plural="configmaps",
        kind="ConfigMap",
        decode=msgspec.json.Decoder(ConfigMap).decode,
        seen=seen,
        gone=lambda ref: seen(ref, ConfigMap()),
        namespace=names.UNHEALTHY_CONFIGMAP_NAMESPACE,
    )


def _minors(found: ConfigMap) -> tuple[frozenset[int], list[str]]:
    """The GPU minor numbers listed under `gpus`, separated by commas, and the entries that are none."""
    parts = [part for each in found.data.get(names.UNHEALTHY_CONFIGMAP_KEY, "").split(",") if (part := each.strip())]
    minors = frozenset(int(part) for part in parts if is_number(part) and int(part) <= bounds.GPU_INDEX.most)
    return minors, [part[:SHOWN] for part in parts if not (is_number(part) and int(part) in minors)]

"""GpuClasses: their selections, the pending pods that name them, and their GPU counts."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from extender.engine.state.outbox import Outbox
from extender.engine.state.quarantine import Quarantine
from extender.engine.state.stock import Stock
from extender.engine.types import refusals
from extender.engine.types.effects import ClassStatus
from extender.engine.types.subject import Subject
from protos.contract import names
from protos.contract.gpu_class import GpuClass
from protos.contract.objects import Pod
from protos.contract.reason import Reason
from protos.contract.selection import Selection

OF_OURS = frozenset((names.ALLOCATION, names.RESERVATION))
"""Annotations that are trusted by their writer."""


class Classes:
    """All GpuClasses, and the pods without a node that name one, whether it exists or not."""

    def __init__(self, stock: Stock, quarantine: Quarantine, outbox: Outbox) -> None:
        self._stock, self._quarantine, self._outbox = stock, quarantine, outbox
        self.known: dict[str, GpuClass] = {}
        self._pods: dict[str, dict[str, Pod]] = {}
        """By class and UID, as last seen, without managedFields."""
        self._named: dict[str, str] = {}
        self._written: dict[str, ClassStatus] = {}
        self._leading = True
        self._counted: int | None = None
        """`Stock.counts` when the statuses were last compared; None: compare them again."""

    def selection(self, name: str) -> Selection | Reason:
        """The selection of the class, or why a pod that names it waits."""
        found = self.known.get(name)
        if found is None:
            return refusals.class_missing(name)
        return refusals.class_unreadable(name, found.problem) if found.problem else found.selection

    # -- events

    def put(self, gpu_class: GpuClass) -> list[Pod]:
        """Add or replace a class; returns the pods whose selection may change."""
        if self.known.get(gpu_class.name) == gpu_class:
            return []
        self.known[gpu_class.name], self._counted = gpu_class, None
        return self.pods(gpu_class.name)

    def drop(self, name: str) -> list[Pod]:
        """Remove a class; returns the pods whose selection may change."""
        self._written.pop(name, None)
        return self.pods(name) if self.known.pop(name, None) is not None else []

    def see(self, pod: Pod) -> None:
        """Record the class of a pod without a node."""
        uid, name = pod.metadata.uid, pod.metadata.annotations.get(names.GPU_CLASS, "")
        self.forget(uid)
        if name and not pod.spec.node_name:
            self._named[uid] = name
            self._pods.setdefault(name, {})[uid] = _lean(pod)

    def forget(self, uid: str) -> None:
        """The pod has ended or has a node."""
        name = self._named.pop(uid, "")
        if name:
            del self._pods[name][uid]
            if not self._pods[name]:
                del self._pods[name]

    def pods(self, name: str) -> list[Pod]:
        """The pending pods that name this class."""
        return list(self._pods.get(name, {}).values())

    def of(self, uid: str) -> list[Pod]:
        """This pod, if it is pending and names a class."""
        found = self._pods.get(self._named.get(uid, ""), {}).get(uid)
        return [] if found is None else [found]

    def missing(self) -> list[str]:
        """The classes that pending pods name and that do not exist."""
        return sorted(self._pods.keys() - self.known.keys())

    def lead(self, yes: bool) -> None:
        """Start or stop leading. Another leader may have written other statuses, so all are written again."""
        self._leading, self._counted = yes, None
        self._written.clear()

    # -- status

    def none_of(self, uid: str) -> Reason | None:
        """That no GPU matches the class of this pod; None if a GPU does or the pod names no class."""
        name = self._named.get(uid, "")
        found = self.known.get(name)
        if found is None or found.problem or self._stock.accepted(found.selection):
            return None
        return refusals.class_empty(name, self._stock.has(found.selection.models))

    def statuses(self) -> Iterator[ClassStatus]:
        """The status of each class, sorted by name."""

        def status(found: GpuClass) -> ClassStatus:
            gpus, free, nodes = (0, 0, 0) if found.problem else self._stock.matching(found.selection)
            return ClassStatus(name=found.name, gpus=gpus, free=free, nodes=nodes, problem=found.problem)

        classes = [found for _, found in sorted(self.known.items())]
        statuses = self._quarantine.tried(classes, lambda found: Subject("class", found.name), "classes", status)
        return filter(None, statuses)

    def tick(self) -> None:
        """Write the statuses that have changed."""
        if not self._leading or self._counted == self._stock.counts:
            return
        self._counted = self._stock.counts
        for status in self.statuses():
            if self._written.get(status.name) != status:
                self._written[status.name] = status
                self._outbox.put(status)


def _lean(pod: Pod) -> Pod:
    """The pod without managedFields, half of its size, unless an annotation is trusted by its writer."""
    if OF_OURS & pod.metadata.annotations.keys():
        return pod
    replace = msgspec.structs.replace
    return replace(pod, metadata=replace(pod.metadata, managed_fields=msgspec.Raw()))

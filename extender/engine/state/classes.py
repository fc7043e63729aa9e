"""GpuClasses: what each accepts, which pods that wait name it, and how many GPUs are of it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

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
"""Annotations that are believed by who wrote them."""


class Classes:
    """All classes that are there, and the pods without a node that name one, there or not."""

    def __init__(self, stock: Stock, quarantine: Quarantine) -> None:
        self._stock, self._quarantine = stock, quarantine
        self.known: dict[str, GpuClass] = {}
        self._pods: dict[str, dict[str, Pod]] = {}
        """By class and UID, as last seen, but for who wrote which field."""
        self._named: dict[str, str] = {}
        self._told: dict[str, ClassStatus] = {}
        self._leading = True
        self._counted: int | None = None
        """The counts of the stock when that was told; None: all is to be looked at."""

    def selection(self, name: str) -> Selection | Reason:
        """What the class accepts, or why a pod that names it waits."""
        found = self.known.get(name)
        if found is None:
            return refusals.class_missing(name)
        return refusals.class_unreadable(name, found.problem) if found.problem else found.selection

    # -- the world

    def put(self, found: GpuClass) -> list[Pod]:
        """The class is there, or another one now; returns the pods that may want something else by that."""
        if self.known.get(found.name) == found:
            return []
        self.known[found.name], self._counted = found, None
        return self.pods(found.name)

    def drop(self, name: str) -> list[Pod]:
        """The class is gone; returns the same."""
        self._told.pop(name, None)
        return self.pods(name) if self.known.pop(name, None) is not None else []

    def see(self, pod: Pod) -> None:
        """Take in which class a pod names, as long as it has no node."""
        uid, name = pod.metadata.uid, pod.metadata.annotations.get(names.GPU_CLASS, "")
        self.forget(uid)
        if name and not pod.spec.node_name:
            self._named[uid] = name
            self._pods.setdefault(name, {})[uid] = _lean(pod)

    def forget(self, uid: str) -> None:
        """The pod is over, or has a node."""
        name = self._named.pop(uid, "")
        if name:
            del self._pods[name][uid]
            if not self._pods[name]:
                del self._pods[name]

    def pods(self, name: str) -> list[Pod]:
        """Those that wait and name this class."""
        return list(self._pods.get(name, {}).values())

    def missing(self) -> list[str]:
        """The names of classes that pods wait for and that are not there."""
        return sorted(self._pods.keys() - self.known.keys())

    def lead(self, yes: bool) -> None:
        """Whether this process may write. Another may have written something else: all is told once more then."""
        self._leading, self._counted = yes, None
        self._told.clear()

    # -- how they stand

    def none_of(self, uid: str) -> Reason | None:
        """That no GPU is of the class that this pod names; None if it names none, or there are some."""
        name = self._named.get(uid, "")
        found = self.known.get(name)
        if found is None or found.problem or self._stock.accepted(found.selection):
            return None
        return refusals.class_empty(name, f"it has {self._stock.models()}")

    def statuses(self) -> Iterator[ClassStatus]:
        """How each class stands now, by name."""

        def status(found: GpuClass) -> ClassStatus:
            gpus, free, nodes = (0, 0, 0) if found.problem else self._stock.matching(found.selection)
            return ClassStatus(name=found.name, gpus=gpus, free=free, nodes=nodes, problem=found.problem)

        found = [each for _, each in sorted(self.known.items())]
        yield from filter(
            None, self._quarantine.tried(found, lambda each: Subject("class", each.name), "classes", status)
        )

    def news(self) -> Iterator[ClassStatus]:
        """How those stand of which something else was told before."""
        if not self._leading or self._counted == self._stock.counts:
            return
        self._counted = self._stock.counts
        for status in self.statuses():
            if self._told.get(status.name) != status:
                self._told[status.name] = status
                yield status


def _lean(pod: Pod) -> Pod:
    """The pod without the list of who wrote which field, half of it, where nothing is believed by its writer."""
    if OF_OURS & pod.metadata.annotations.keys():
        return pod
    replace = msgspec.structs.replace
    return replace(pod, metadata=replace(pod.metadata, managed_fields=msgspec.Raw()))

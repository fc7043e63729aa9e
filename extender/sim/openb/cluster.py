"""The free resources of each node. Pods never leave, so free amounts only shrink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from extender.sim.openb.trace import MILLI, Node, Spec


class Room(NamedTuple):
    """The free resources of one node."""

    cpu: int
    """Thousandths of a core."""
    memory: int
    """MiB."""
    gpus: tuple[int, ...]
    """Milli of each GPU."""
    model: str
    kinds: frozenset[int | str]
    """The kinds of GPU request that its pods have (`kind`)."""

    def takes(self, spec: Spec) -> bool:
        """Whether a pod of this spec fits, by the hard constraints of the protocol."""
        if self.cpu < spec.cpu_milli or self.memory < spec.memory_mib:
            return False
        if not spec.gpus:
            return True
        if spec.models and self.model not in spec.models:
            return False
        if spec.gpus == 1:
            return max(self.gpus, default=0) >= spec.milli
        return self.gpus.count(MILLI) >= spec.gpus

    def without(self, spec: Spec, chosen: Sequence[int]) -> Room:
        """What is free once a pod of this spec is on these GPUs."""
        gpus = list(self.gpus)
        for i in chosen:
            gpus[i] -= spec.milli
        kinds = self.kinds | {kind(spec)} if spec.gpus else self.kinds
        return Room(self.cpu - spec.cpu_milli, self.memory - spec.memory_mib, tuple(gpus), self.model, kinds)


def kind(spec: Spec) -> int | str:
    """The kind of a GPU request: a share of one GPU, or a number of whole GPUs."""
    return "share" if spec.milli < MILLI else spec.gpus


class Assignment(NamedTuple):
    """The node of a pod, by number, and the indexes of its GPUs."""

    node: int
    gpus: tuple[int, ...]


class PlacementError(Exception):
    """A policy placed a pod where it does not fit."""


class Cluster:
    """The free resources of all nodes, and the order in which nodes changed."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.rooms = [Room(n.cpu_milli, n.memory_mib, (MILLI,) * n.gpus, n.model, frozenset()) for n in nodes]
        self.changes: list[int] = []
        """Node numbers, one for each placed pod."""

    def take(self, assignment: Assignment, spec: Spec) -> None:
        """Place a pod; raises PlacementError if it does not fit."""
        number, gpus = assignment
        room = self.rooms[number]
        free = all(room.gpus[i] >= spec.milli for i in gpus)
        if not room.takes(spec) or not free or len(set(gpus)) != spec.gpus:
            raise PlacementError(f"{spec} does not fit on GPUs {gpus} of {self.nodes[number].name}: {room}")
        self.rooms[number] = room.without(spec, gpus)
        self.changes.append(number)

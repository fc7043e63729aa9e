"""What is free on each node, and nothing else. Pods never leave, so free amounts only shrink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from extender.sim.openb.trace import MILLI, Node, Spec


class Room(NamedTuple):
    """What is free on one node."""

    cpu: int
    """Thousandths of a core."""
    memory: int
    """MiB."""
    gpus: tuple[int, ...]
    """Milli of each GPU."""
    model: str
    kinds: frozenset[int | str]
    """The kinds of GPU request that it holds (`kind`)."""

    def takes(self, spec: Spec) -> bool:
        """Whether a pod of this spec fits: the hard constraints of the protocol."""
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
        """What remains once a pod of this spec is on these GPUs."""
        gpus = list(self.gpus)
        for i in chosen:
            gpus[i] -= spec.milli
        kinds = self.kinds | {kind(spec)} if spec.gpus else self.kinds
        return Room(self.cpu - spec.cpu_milli, self.memory - spec.memory_mib, tuple(gpus), self.model, kinds)


def kind(spec: Spec) -> int | str:
    """Of GPU request: a share of one, or so many whole ones."""
    return "share" if spec.milli < MILLI else spec.gpus


class Spot(NamedTuple):
    """Where a pod goes: the node's number and the indexes of its GPUs."""

    node: int
    gpus: tuple[int, ...]


class PlacementError(Exception):
    """A policy placed a pod where it does not fit."""


class Cluster:
    """The rooms of all nodes, and which of them changed in which order."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.rooms = [Room(n.cpu_milli, n.memory_mib, (MILLI,) * n.gpus, n.model, frozenset()) for n in nodes]
        self.changes: list[int] = []
        """Node numbers, one for each pod placed."""

    def take(self, spot: Spot, spec: Spec) -> None:
        """Put a pod there; raises PlacementError if it does not fit."""
        room = self.rooms[spot.node]
        free = all(room.gpus[i] >= spec.milli for i in spot.gpus)
        if not room.takes(spec) or not free or len(set(spot.gpus)) != spec.gpus:
            raise PlacementError(f"{spec} does not fit on GPUs {spot.gpus} of {self.nodes[spot.node].name}: {room}")
        self.rooms[spot.node] = room.without(spec, spot.gpus)
        self.changes.append(spot.node)

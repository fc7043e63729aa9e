"""Pods that name their GPUs by UUID: each question looks only at the nodes that have these GPUs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from extender.engine.placement.ranking import NOWHERE, SHORT, ZERO
from extender.engine.placement.shape_scorer import ShapeScorer
from extender.engine.state.node_state import NodeState
from extender.engine.types.shape import Shape
from protos.contract.selection import compiled

MOST = 64
"""Nodes looked at for each question; a pod that names GPUs of more nodes has an index, as other pods."""


class NodesByUuid:
    """The nodes that have a GPU, by its UUID in lower case."""

    def __init__(self, nodes: Mapping[str, NodeState]) -> None:
        self._nodes = nodes
        self._of: dict[str, tuple[str, ...]] = {}
        self._have: dict[str, frozenset[str]] = {}
        """The UUIDs by node."""
        for name in nodes:
            self.changed(name)

    def changed(self, name: str) -> None:
        node = self._nodes.get(name)
        have = node.books.uuids if node is not None and node.books is not None else frozenset[str]()
        had = self._have.get(name, frozenset[str]())
        if have is had:
            return
        for uuid in had - have:
            left = tuple(owner for owner in self._of[uuid] if owner != name)
            if left:
                self._of[uuid] = left
            else:
                del self._of[uuid]
        for uuid in have - had:
            self._of[uuid] = (*self._of.get(uuid, ()), name)
        if have:
            self._have[name] = have
        else:
            self._have.pop(name, None)

    def named(self, shape: Shape) -> list[NodeState] | None:
        """The nodes that have a GPU named by the shape; None if it names none, uses globs, or the nodes are many."""
        if shape.ask is None or not shape.ask.selection.uuids:
            return None
        globs = compiled(shape.ask.selection.uuids)
        if globs.wild or not globs.wanted:
            return None
        names = {name for uuid in globs.wanted for name in self._of.get(uuid, ())}
        return [self._nodes[name] for name in sorted(names) if name in self._nodes] if len(names) <= MOST else None


class UuidIndex:
    """What a `ShapeIndex` of such a shape answers, at this moment."""

    def __init__(self, nodes: Iterable[NodeState], scores: ShapeScorer) -> None:
        ranking = sorted((scores.of(node), node.name, node.number) for node in nodes if node.seen)
        self._fitting = [(name, ZERO - standing) for standing, name, _ in ranking if NOWHERE < standing < SHORT]
        self._short = [(name, number) for standing, name, number in ranking if standing >= SHORT]

    def ranked(self, among: Collection[str] | None = None) -> Iterator[tuple[str, int]]:
        return (found for found in self._fitting if among is None or found[0] in among)

    def points(self, name: str) -> int | None:
        return dict(self._fitting).get(name)

    def nearest(self, excluded: int = 0) -> str | None:
        return next((name for name, number in self._short if not excluded >> number & 1), None)

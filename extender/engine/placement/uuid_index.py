"""Pods that name their GPUs by UUID: each question looks only at the nodes that have these GPUs."""

from __future__ import annotations

from collections.abc import Mapping

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

    def named(self, shape: Shape) -> dict[str, NodeState] | None:
        """The nodes that have a GPU named by the shape; None if it names none, uses globs, or the nodes are many."""
        if shape.ask is None or not shape.ask.selection.uuids:
            return None
        globs = compiled(shape.ask.selection.uuids)
        if globs.wild or not globs.wanted:
            return None
        names = {name for uuid in globs.wanted for name in self._of.get(uuid, ())}
        return {name: self._nodes[name] for name in names if name in self._nodes} if len(names) <= MOST else None

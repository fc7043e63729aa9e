"""The nodes as they would be without some pods: copies, and the ledger knows nothing of them.

Pods that were told to end count as gone already. What is kept for others is kept, whether it is free by now or not.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from extender.engine.planning.attempt import LOOK, STEP
from extender.engine.state.ledger import Ledger
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment
from extender.engine.types.amounts import add

ELSEWHERE = "its GPUs are served by another plugin"
"""Why nobody is planned onto GPUs of such a node: no room can be kept there."""
FREED = 5
"""What it costs to free a copy, in `attempt.LOOK`s."""
REMEMBERED = 500
"""Copies that are remembered: the garbage collector looks through all there are, again and again."""
Gone = Mapping[str, frozenset[str]]
"""Pods (UIDs) that are gone, by node."""
Claim = tuple[PodState, Assignment]
"""What holds a place for somebody in the books, and that place."""


class WhatIfNodes:
    """Copies of nodes, by what is gone from them."""

    def __init__(
        self, ledger: Ledger, leaving: Iterable[str], void: Sequence[PodState] = (), claims: Sequence[Claim] = ()
    ) -> None:
        """Pods in `leaving` (UIDs) and what those in `void` hold are gone anyway; `claims` are held in full."""
        self._ledger = ledger
        self._void = {pod.ref.uid: pod for pod in void}
        self._claims: dict[str, list[Claim]] = {}
        for claim in claims:
            self._claims.setdefault(claim[1].node, []).append(claim)
        self._leaving: dict[str, list[PodState]] = {}
        for uid in leaving:
            pod = ledger.pods.get(uid)
            if pod is not None and pod.node:
                self._leaving.setdefault(pod.node, []).append(pod)
        for pod in void:
            self._leaving.setdefault(pod.node, []).append(pod)
        self._versions: dict[str, int] = {}
        self._known: dict[tuple[str, frozenset[str]], NodeState] = {}

    def without(self, node: NodeState, gone: frozenset[str]) -> NodeState:
        """The node without these pods (UIDs); the node itself if it is what it would be anyway."""
        key = node.name, gone
        same = not gone and node.books is not None and not (node.name in self._leaving or node.name in self._claims)
        if same:
            self._versions.setdefault(node.name, node.version)
            return node
        if key not in self._known:
            pods = [self._ledger.pods[uid] for uid in gone if uid in self._ledger.pods]
            if len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = self._draw(node, [*self._leaving.get(node.name, ()), *pods])
            self._versions.setdefault(node.name, node.version)
        return self._known[key]

    def stands(self, names: Iterable[str]) -> bool:
        """Whether these nodes are still as they were when they were copied."""
        nodes = self._ledger.nodes
        return all(name in nodes and nodes[name].version == self._versions.get(name, -1) for name in names)

    def dissolve(self) -> Iterator[int]:
        """Free the copies little by little; it can still be told whether they stand."""
        while self._known:
            for key in list(islice(self._known, STEP)):
                del self._known[key]
            yield STEP * FREED

    def _draw(self, node: NodeState, gone: Iterable[PodState]) -> NodeState:
        twin = NodeState(node.name, node.number)
        twin.seen, twin.problem, twin.labels, twin.taints = node.seen, node.problem, node.labels, node.taints
        twin.unschedulable, twin.leaving = node.unschedulable, node.leaving
        twin.allocatable, twin.used = node.allocatable, dict(node.used)
        uids = []
        for pod in {pod.ref.uid: pod for pod in gone}.values():
            uids.append(pod.ref.uid)
            add(twin.used, pod.requests, -1)
        twin.books = node.books.without(uids) if node.books is not None else None
        twin.problem = twin.problem or ("" if twin.books is not None else ELSEWHERE)
        for keeper, assignment in self._claims.get(node.name, ()):
            if keeper.node != node.name:
                add(twin.used, keeper.requests)
            if twin.books is not None and keeper.ask is not None:
                twin.books.hold(keeper.ref.uid, keeper.ask, assignment.charges)
        return twin


def by_node(listed: dict[str, list[str]]) -> Generator[int, None, Gone]:
    """What is gone, of pods listed by node; nothing is left of the list."""
    found: dict[str, frozenset[str]] = {}
    while listed:
        for name in list(islice(listed, STEP)):
            found[name] = frozenset(listed.pop(name))
        yield STEP * LOOK
    return found

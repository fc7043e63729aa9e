"""The nodes as they would be without some pods, as copies; the ledger does not see them.

Pods that leave anyway count as gone. Room reserved for others counts as taken, whether it is free already or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from extender.engine.planning.attempt import LOOK, STEP, batched, dissolve
from extender.engine.planning.snapshot import NodeSnapshot
from extender.engine.state.ledger import Ledger
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment

ELSEWHERE = "its GPUs are served by another plugin"
"""Why no pod is planned onto GPUs of such a node: no room can be reserved there."""
FREED = 5
"""Cost of freeing a copy."""
LISTED = 4
"""Pods that are listed by node at the cost of one `LOOK`."""
REMEMBERED = 500
"""Most copies that are remembered, since the garbage collector visits all of them again and again."""
Gone = Mapping[str, frozenset[str]]
"""Pods (UIDs) that are gone, by node."""
Claim = tuple[PodState, Assignment]
"""What holds a reservation in the books, and the assignment that it holds."""


class WhatIfNodes:
    """Snapshots of nodes, by the pods that are gone from them."""

    def __init__(
        self, ledger: Ledger, leaving: Iterable[str], void: Sequence[PodState] = (), claims: Sequence[Claim] = ()
    ) -> None:
        """Pods in `leaving` (UIDs) and holds in `void` are gone in any case; `claims` are held in full."""
        self._ledger = ledger
        self._claims: defaultdict[str, list[Claim]] = defaultdict(list)
        for claim in claims:
            self._claims[claim[1].node].append(claim)
        self._leaving: defaultdict[str, list[PodState]] = defaultdict(list)
        for pod in chain((pod for uid in leaving if (pod := ledger.pods.get(uid)) is not None), void):
            if pod.node:
                self._leaving[pod.node].append(pod)
        self._versions: dict[str, int] = {}
        self._copies: dict[tuple[str, frozenset[str]], NodeSnapshot] = {}

    def without(self, node: NodeState, gone: frozenset[str]) -> NodeState:
        """The node without these pods (UIDs); the node itself if nothing changes."""
        name = node.name
        self._versions.setdefault(name, node.version)
        if not gone and node.books is not None and name not in self._leaving and name not in self._claims:
            return node
        copy = self._copies.get((name, gone))
        if copy is None:
            if len(self._copies) >= REMEMBERED:
                del self._copies[next(iter(self._copies))]
            copy = self._copies[name, gone] = self._copy(node, gone)
        return copy

    def stands(self, names: Iterable[str]) -> bool:
        """Whether these nodes are still as they were when they were first copied."""
        nodes = self._ledger.nodes
        return all(name in nodes and nodes[name].version == self._versions.get(name, -1) for name in names)

    def dissolve(self) -> Iterator[int]:
        """Free the copies in steps; `stands` still answers."""
        return dissolve(self._copies, FREED)

    def _copy(self, node: NodeState, gone: frozenset[str]) -> NodeSnapshot:
        copy, pods = NodeSnapshot(node), self._ledger.pods
        leaving = {pod.ref.uid: pod for pod in self._leaving.get(node.name, ())}
        leaving |= {uid: pods[uid] for uid in gone if uid in pods}
        for uid, pod in leaving.items():
            copy.remove(uid, pod.requests)
        copy.problem = copy.problem or ("" if copy.books is not None else ELSEWHERE)
        for keeper, assignment in self._claims.get(node.name, ()):
            requests = keeper.requests if keeper.node != node.name else ()
            copy.hold(keeper.ref.uid, keeper.ask, requests, assignment.charges)
        return copy


def by_node(pods: Iterable[tuple[str, str]]) -> Generator[int, None, Gone]:
    """The pods that are gone, from pairs of a node and a UID."""
    uids: defaultdict[str, list[str]] = defaultdict(list)
    for batch in batched(pods):
        for node, uid in batch:
            uids[node].append(uid)
        yield STEP * LOOK // LISTED
    gone: dict[str, frozenset[str]] = {}
    for names in batched(list(uids)):
        for name in names:
            gone[name] = frozenset(uids.pop(name))
        yield STEP * LOOK
    return gone

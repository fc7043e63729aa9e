"""Copies of what a question changes: nodes, and the queues with all their pods."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence

import msgspec

from extender.engine.placement.indexes import Indexes
from extender.engine.planning.attempt import LOOK, PIECE, STEP, ClusterView, batched
from extender.engine.planning.snapshot import NodeSnapshot
from extender.engine.planning.solver import Solver, Wanted
from extender.engine.planning.what_if import Claim, WhatIfNodes, by_node
from extender.engine.queueing.queues import Queues
from extender.engine.queueing.usage import usable
from extender.engine.state.empty_nodes import healthy
from extender.engine.state.ledger import Ledger
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment
from protos.contract.books import NodeBooks
from protos.contract.queue import GPUS

ADDED, TAKEN = 5, 15
"""Cost of adding a node, or a pod of a queue; and of a pod that takes its place."""
HOSTNAME = "kubernetes.io/hostname"
OF_NODES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of taints that tell of the state of one node."""


class Sandbox:
    """The nodes of the cluster and further ones, on which the workloads of a question take places."""

    def __init__(self, view: ClusterView) -> None:
        """Without nodes: `fill` adds them."""
        self._nodes: dict[str, NodeState] = {}
        self.view = msgspec.structs.replace(view, nodes=self._nodes, indexes=Indexes(self._nodes, view.indexes.scorer))
        self.untouched = view
        """The nodes without what the workloads take."""
        self.claims: list[Claim] = []
        """What the workloads before have taken."""

    def fill(self, further: Sequence[NodeState]) -> Iterator[int]:
        """Add all nodes, in steps."""
        before = self.untouched
        if further:
            more = {node.name: node for node in further}
            self.untouched = msgspec.structs.replace(before, nodes={**before.nodes, **more})
            yield len(before.nodes) * LOOK
        for batch in batched(list(self.untouched.nodes.items())):
            for name, node in batch:
                self._nodes[name] = node
                self.view.indexes.stale(name)
            yield STEP * ADDED

    def take(self, pods: Mapping[str, PodState], assignments: Mapping[str, Assignment]) -> Iterator[int]:
        """A workload gets these places, in steps."""
        for batch in batched(assignments.items()):
            for uid, assignment in batch:
                pod, node = pods[uid], self._nodes[assignment.node]
                if not isinstance(node, NodeSnapshot):
                    node = self._nodes[assignment.node] = NodeSnapshot(node)
                node.hold(uid, pod.ask, pod.requests, assignment.charges)
                node.version += 1
                self.claims.append((pod, assignment))
                self.view.indexes.stale(assignment.node)
            yield STEP * TAKEN

    def dissolve(self) -> Iterator[int]:
        """Free the copies in steps."""
        for batch in batched(list(self._nodes)):
            for name in batch:
                del self._nodes[name]
                self.view.indexes.stale(name)
            yield STEP * ADDED
        self.claims.clear()
        yield PIECE


def further(nodes: Sequence[tuple[NodeState, int]]) -> list[NodeState]:
    """So many empty nodes like each of these. Their names can be those of no node."""
    return [_like(node, f"{node.name}+{number + 1}") for node, count in nodes for number in range(count)]


def _like(model: NodeState, name: str) -> NodeState:
    node = NodeState(name, model.number)
    node.seen, node.labels, node.allocatable = True, {**model.labels, HOSTNAME: name}, model.allocatable
    node.taints = tuple(taint for taint in model.taints if not taint.key.startswith(OF_NODES))
    if model.books is not None:
        found = model.books.inventory
        gpus = tuple(
            msgspec.structs.replace(gpu, uuid=f"{gpu.uuid}/{name}", health=healthy(gpu.health)) for gpu in found.gpus
        )
        node.books = NodeBooks(msgspec.structs.replace(found, state="ready", gpus=gpus))
    return node


def twin(queues: Queues, more: Sequence[NodeState] = ()) -> Generator[int, None, Queues]:
    """A copy of the queues and their pods, with the capacity of further nodes."""
    copy = Queues(declared=queues.declared)
    copy.node("", queues.total)
    for node in more:
        gpus = {GPUS: usable(node.books)} if node.books is not None else {}
        copy.node(node.name, {**node.allocatable, **gpus})
    copy.also = queues.also
    promised = list(queues.promised)
    uids = list(queues.pods)
    yield PIECE
    for batch in batched(uids):
        for uid in batch:
            if (counted := queues.pods.get(uid)) is not None:
                local_queue, takes, placed, asks = counted
                copy.see(uid, local_queue.named, local_queue.namespace, takes, placed=placed, asks=asks)
        yield STEP * ADDED
    for uid in promised:
        copy.promise(uid, True)
    return copy


def may_fit_empty(view: ClusterView, ledger: Ledger, wanted: Wanted) -> Generator[int, None, bool]:
    """Whether the pods may fit if no others are on the nodes; False only if they surely do not."""
    whole = any(seat.ask is not None and seat.ask.only_whole for seat in wanted.seats)
    if whole and any(node.seen and node.books is None for node in view.nodes.values()):
        return True  # another plugin may serve GPUs there
    yield len(view.nodes) * LOOK
    gone = yield from by_node((name, uid) for name, uids in list(ledger.on_node.items()) for uid in list(uids))
    what_if = WhatIfNodes(ledger, ())
    fits = yield from Solver(view, what_if, wanted).suffices(gone)
    yield from what_if.dissolve()
    return fits

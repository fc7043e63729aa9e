"""A pod on nodes, for people: its score on the best ones, term by term, and why others do not take it.

Scores are current ones. A pod that has a node is scored there as if the pod were not on it yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from extender.engine.placement.misfit import Asked, Misfits
from extender.engine.placement.score import ALONE, UNLINKED, Scorer, terms
from extender.engine.placement.seats import UNTOUCHED, fits
from extender.engine.planning.attempt import ClusterView
from extender.engine.state.intree import passes
from extender.engine.state.ledger import Ledger
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.types.amounts import add
from protos.contract import choose
from protos.contract.books import NodeBooks
from protos.contract.choose import Choice
from protos.contract.reason import Reason

BEST = 5
"""Nodes that are shown."""
LOOKED = 1000
"""Nodes looked at for them, best first: kube-scheduler may exclude some, or they lack CPU."""
PIECE = 32
"""Nodes scored at a time."""


class Row(NamedTuple):
    """A pod on one node."""

    node: str
    points: int
    """The score."""
    terms: Mapping[str, int]
    """Terms by name: those of `score.Terms`, whose negative sum is the score; for a pod with the selection `spread`,
    `emptiness` less `links`. Empty on a node without GPUs of ours."""
    here: bool = False
    """The pod is on this node."""


def before(scorer: Scorer, node: NodeState, pod: PodState) -> Row | None:
    """The pod on its own node as if it were not there yet, None if that is unknown.

    It is scored on its GPUs; with only a soft charge, on the GPUs that it would get.
    """
    used = dict(node.used)
    add(used, pod.requests, -1)
    if node.books is None or pod.ask is None:
        return _row(scorer, pod, node, node.books, used)
    entry = node.books.entries.get(pod.ref.uid)
    if entry is None or not entry.placed or not entry.charges.keys() <= node.books.gpus.keys():
        return None
    held = Choice(pod.allocation.containers, dict(entry.charges)) if pod.allocation is not None else None
    books = node.books.without([pod.ref.uid])
    return _row(scorer, pod, node, books, used, held)


def _row(
    scorer: Scorer,
    pod: PodState,
    node: NodeState,
    books: NodeBooks | None,
    used: Mapping[str, int],
    held: Choice | None = None,
) -> Row | None:
    """The pod on a node with these books and totals: on the GPUs `held`, or on those that it would get."""
    seated, shape = ALONE, pod.shape
    if pod.ask is not None:
        if books is None:
            return Row(node.name, UNTOUCHED, {})
        choice = held or choose.choose(pod.ask, books)
        if choice is None:
            return None
        seated = scorer.seated(choice, books, spread=pod.ask.selection.spread)
    present = scorer.present(books, node.allocatable, used)
    points = scorer.points(shape, present, seated)
    if seated.spread is not None:
        links = 0 if seated.joined else UNLINKED
        return Row(node.name, points, {"emptiness": points + links, "links": links})
    return Row(node.name, points, terms(shape, present, seated)._asdict() if present is not None else {})


class Worth:
    """Scores any pod."""

    def __init__(self, ledger: Ledger, view: ClusterView) -> None:
        self._ledger, self._view = ledger, view

    def prepare(self, pod: PodState) -> bool:
        """Score some nodes for the shape of the pod; returns whether there are more."""
        return self._view.indexes.prepare(pod.shape, PIECE, aged=True)

    def rows(self, pod: PodState) -> list[Row]:
        """The best nodes on which the pod fits, and its own node, best first."""
        if isinstance(pod.asked, Reason):
            return []
        scorer, own = self._view.indexes.scorer, self._view.nodes.get(pod.node)
        rows = (_row(scorer, pod, node, node.books, node.used) for node in self._nodes(pod))
        found = list(islice((row for row in rows if row is not None), BEST))
        here = before(scorer, own, pod) if own is not None else None
        found += [here._replace(here=True)] if here is not None else []
        return sorted(found, key=lambda row: (-row.points, row.node))

    def misfits(self, pod: PodState) -> Misfits:
        """Compares a pod with nodes."""
        asked = Asked(pod.ask, pod.requests, pod.info.constraints, self._excluded(pod), self._view.ignored)
        return Misfits(asked)

    def having_gpus(self, pod: PodState, nodes: Sequence[NodeState]) -> Collection[str]:
        """The names of those of some nodes on which the GPUs that the pod requests are free."""
        if pod.ask is None:
            return ()
        if pod.ask.selection.uuids:
            return {node.name for node in nodes if fits(pod.ask, node)}
        return {name for name, _ in self._view.indexes.among(pod.shape, [node.name for node in nodes])}

    def _excluded(self, pod: PodState) -> int:
        pending = pod.state == "waiting"
        return pod.excluded | self._ledger.excluded.get(pod.ref.uid, 0) if pending else 0

    def _nodes(self, pod: PodState) -> Iterator[NodeState]:
        """The other nodes on which the pod may be, best first."""
        excluded = self._excluded(pod)
        for name, _ in islice(self._view.indexes.of(pod.shape).ranked(), LOOKED):
            node = self._view.nodes[name]
            open_to = name != pod.node and not excluded >> node.number & 1
            if open_to and passes(node, pod.info.constraints, pod.requests, self._view.ignored):
                yield node

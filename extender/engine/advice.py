"""What kube-scheduler is told that changes nothing: which nodes are as good as the best, which victims would help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from extender.engine.index import UNTOUCHED, Indexes
from extender.engine.ledger import Ledger, PodState
from extender.engine.score import ALONE, Scorer, seated
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.books import NodeBooks


def points(ledger: Ledger, indexes: Indexes, state: PodState, nodes: Sequence[str], band: int) -> dict[str, int]:
    """10 for each node at most `band` below our best, 0 for the rest: the scheduler's own wishes decide among tens."""
    index = indexes.of(state.shape)
    found = {name: points for name in nodes if (points := index.points(name)) is not None}
    if state.node in nodes:
        before = _before(ledger, indexes.scorer, state)
        if before is not None:
            found[state.node] = before
    best = max(found.values(), default=0)
    return {name: 10 if name in found and found[name] >= best - band else 0 for name in nodes}


def _before(ledger: Ledger, scorer: Scorer, state: PodState) -> int | None:
    """The score of the pod's node as it was before the pod itself was softly charged there."""
    node = ledger.nodes[state.node]
    used = dict(node.used)
    for resource, amount in state.requests:
        used[resource] -= amount
    if state.ask is None:
        return scorer.points(state.shape, scorer.present(node.books, node.allocatable, used), ALONE)
    if node.books is None:
        return UNTOUCHED
    books = _without(node.books, [state.ref.uid])
    choice = choose.choose(state.ask, books)
    if choice is None:
        return None
    sits = seated(choice, books, spread=state.ask.selection.spread)
    return scorer.points(state.shape, scorer.present(books, node.allocatable, used), sits)


def victims(ledger: Ledger, ask: PodAsk | None, offered: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Of kube-scheduler's candidates (node → victims' UIDs) those where the pod then really gets its GPUs."""
    return {
        name: list(uids)
        for name, uids in offered.items()
        if uids and (ask is None or _fits_without(ledger, ask, name, uids))
    }


def _fits_without(ledger: Ledger, ask: PodAsk, name: str, uids: Sequence[str]) -> bool:
    node = ledger.nodes.get(name)
    if node is None or node.books is None or node.problem:
        return False
    return choose.choose(ask, _without(node.books, uids)) is not None


def _without(books: NodeBooks, uids: Iterable[str]) -> NodeBooks:
    """A copy of the books on which these pods are not."""
    books = books.copy()
    for uid in uids:
        if uid in books.entries:
            books.release(uid)
    return books

"""What kube-scheduler is told that changes nothing: which nodes are as good as the best, which victims would help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from extender.engine.index import UNTOUCHED, Indexes, score
from extender.engine.ledger import Ledger, PodState
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.books import NodeBooks


def points(ledger: Ledger, indexes: Indexes, state: PodState, nodes: Iterable[str], band: int) -> dict[str, int]:
    """10 for each node at most `band` below our best, 0 for the rest: the scheduler's own wishes decide among tens."""
    if state.ask is None:
        return dict.fromkeys(nodes, 0)
    index = indexes.of(state.ask)
    found = {name: index.points(name) for name in nodes if name in ledger.nodes}
    if state.node in found:
        found[state.node] = _before(ledger, state, state.ask)
    best = max(found.values(), default=0)
    return {name: 10 if name in found and found[name] >= best - band else 0 for name in nodes}


def _before(ledger: Ledger, state: PodState, ask: PodAsk) -> int:
    """The score of the pod's node as it was before the pod itself was softly charged there."""
    node = ledger.nodes[state.node]
    if node.books is None:
        return UNTOUCHED
    if state.ref.uid not in node.books.entries:
        return score(ask, node) or 0
    return _rank_without(ask, node.books, [state.ref.uid]) or 0


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
    return _rank_without(ask, node.books, uids) is not None


def _rank_without(ask: PodAsk, books: NodeBooks, uids: Iterable[str]) -> int | None:
    """The score that the ask would have if these pods were not on the node, None if it would not fit."""
    gone = {uid: books.entries[uid] for uid in uids if uid in books.entries}
    for uid in gone:
        books.release(uid)
    rank = choose.rank(ask, books)
    for uid, entry in gone.items():
        books.restore(uid, entry)
    return rank

"""What kube-scheduler is told that changes nothing: which nodes are as good as the best, which victims would help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from extender.engine.cycle import worth
from extender.engine.placement.index import Indexes
from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import PodState
from protos.contract import choose
from protos.contract.ask import PodAsk


def points(
    ledger: Ledger, indexes: Indexes, state: PodState, nodes: Sequence[str], score_tolerance: int
) -> dict[str, int]:
    """10 for each node at most `score_tolerance` below our best, 0 for the rest.

    Among nodes with 10 kube-scheduler's own scores decide.
    """
    index = indexes.of(state.shape)
    found = {name: points for name in nodes if (points := index.points(name)) is not None}
    if state.node in nodes:
        before = worth.before(indexes.scorer, ledger.nodes[state.node], state)  # it is softly charged there
        if before is not None:
            found[state.node] = before.points
    best = max(found.values(), default=0)
    return {name: 10 if name in found and found[name] >= best - score_tolerance else 0 for name in nodes}


def victims(
    ledger: Ledger, ask: PodAsk | None, offered: Mapping[str, Sequence[str]], stays: Callable[[str], bool]
) -> dict[str, list[str]]:
    """Of kube-scheduler's candidates (node → victims' UIDs, perhaps none) those where the pod then gets its GPUs.

    Not those with a victim that `stays`: a whole gang would go with it, and kube-scheduler sees only the one.
    """
    return {
        name: list(uids)
        for name, uids in offered.items()
        if not any(map(stays, uids)) and (ask is None or _fits_without(ledger, ask, name, uids))
    }


def _fits_without(ledger: Ledger, ask: PodAsk, name: str, uids: Sequence[str]) -> bool:
    node = ledger.nodes.get(name)
    if node is None or node.books is None or node.problem:
        return False
    return choose.choose(ask, node.books.without(uids)) is not None

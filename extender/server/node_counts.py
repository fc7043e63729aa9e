"""Counts the nodes by the reason for which they do not take a pod."""

from collections.abc import Generator
from itertools import islice

from extender.engine.cycle.engine import Engine
from extender.engine.placement.misfit import Misfit
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.server.desk import current
from extender.wire.answers import NodeCount
from protos.contract.printable import brief

NODES = 32
"""Nodes compared with a pod between two pieces."""
MOST_REASONS = 12
"""Reasons that are shown; the nodes of all others are counted together."""
LONGEST_WHY = 200
"""Characters of what a node says."""
TAKES = Misfit("", never=False)
"""Of nodes that would take the pod."""
OTHERS = "other reasons"


def by_reason(engine: Engine, pod: PodState) -> Generator[bytes, None, list[NodeCount]]:
    """The nodes by reason, most nodes first."""
    misfits, found = engine.worth.misfits(pod), dict[Misfit, list[str]]()
    nodes = current(engine.nodes)
    while some := list(islice(nodes, NODES)):
        seen = [node for node in some if node.seen]
        have = engine.worth.having_gpus(pod, seen)
        for node in seen:
            misfit = _told(misfits.of(node, has_gpus=node.name in have) or TAKES, node)
            found.setdefault(misfit, []).append(node.name)
        yield b""
    counts = [
        NodeCount(why=misfit.why, never=misfit.never, nodes=len(names), example=min(names))
        for misfit, names in found.items()
    ]
    counts.sort(key=lambda count: (-count.nodes, count.why))
    return _shortened(counts)


def _told(misfit: Misfit, node: NodeState) -> Misfit:
    """With what the node itself says of a lack of isolation."""
    isolation = node.books.inventory.isolation if node.books is not None else None
    if isolation is None or not isolation.why or misfit.why != isolation.lack:
        return misfit
    return Misfit(f"{misfit.why}: {brief(isolation.why, LONGEST_WHY)}", misfit.never)


def _shortened(counts: list[NodeCount]) -> list[NodeCount]:
    shown, rest = counts[:MOST_REASONS], counts[MOST_REASONS:]
    if not rest:
        return shown
    nodes, never = sum(count.nodes for count in rest), all(count.never for count in rest)
    return [*shown, NodeCount(why=OTHERS, nodes=nodes, example=rest[0].example, never=never)]

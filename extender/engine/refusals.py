"""Why a pod does not get GPUs: the constant sentence for the scheduler and the arithmetic for people."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from extender.engine.ledger import NodeState
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.reason import Reason

FORGED = Reason(
    "AllocationForged", "the pod carries an allocation that gangshare did not write; it waits until that is removed"
)
UNSEEN = Reason("BindUnseen", "this extender has not placed the pod; it goes through the scheduler again")
TAKEN = Reason("BindConflict", "the GPUs on the chosen node were taken meanwhile; the pod is placed anew")
ELSEWHERE = Reason("BindElsewhere", "the pod is bound to another node already")


def no_room(ask: PodAsk) -> Reason:
    """The constant sentence for an ask that no node can take now."""
    if len(ask.containers) == 1 and not ask.containers[0].whole and ask.containers[0].gpus == 1:
        container = ask.containers[0]
        amounts = [f"{container.mem} units"] if container.mem else []
        amounts += [f"{container.slices} slices"] if container.slices else []
        return Reason("NoRoom", f"no GPU with {' and '.join(amounts) or 'room'} free")
    return Reason("NoRoom", f"no node with {choose.wanted(ask)} free")


def with_numbers(reason: Reason, ask: PodAsk, nodes: Mapping[str, NodeState], among: Collection[str] | None) -> Reason:
    """The same refusal with the arithmetic: what is needed, and where the most of it is free."""
    names = sorted(nodes if among is None else (name for name in among if name in nodes))
    freest = _freest(ask, nodes, names)
    return Reason(reason.code, reason.sentence, f"needs {choose.wanted(ask)}; {freest}")


def _freest(ask: PodAsk, nodes: Mapping[str, NodeState], names: Collection[str]) -> str:
    best: tuple[tuple[int, int, int], str] | None = None
    largest = closed = 0
    for name in names:
        node = nodes[name]
        if node.books is None or node.problem:
            closed += 1
            continue
        largest = max([largest, *(book.gpu.mem for book in node.books.gpus.values())])
        room = _room(ask, node)
        if best is None or room > best[0]:
            best = (room, name)
    if best is None:
        return f"no GPUs of ours on the {len(names)} nodes offered"
    books = nodes[best[1]].books
    assert books is not None
    words = choose.misfit(ask, books).removeprefix("freest: ")
    too_big = max((container.mem for container in ask.containers), default=0) > largest
    size = f"the largest GPU has {largest}; " if too_big else ""
    return f"{size}freest: {best[1]} {words}"


def _room(ask: PodAsk, node: NodeState) -> tuple[int, int, int]:
    """How near the node comes: (wholly free GPUs, most units, most slices free on one GPU), what is asked first."""
    assert node.books is not None
    eligible = [book for book in node.books.eligible(ask.selection) if not book.wholes]
    wholly = sum(not book.sharers for book in eligible)
    mem = max((book.mem_free for book in eligible), default=-1)
    slices = max((book.slices_free for book in eligible), default=-1)
    return (wholly, mem, slices) if ask.only_whole else (mem, slices, wholly)

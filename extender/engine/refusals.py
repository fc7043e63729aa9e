"""Why a pod does not get GPUs: the constant sentence for the scheduler and the arithmetic for people."""

from __future__ import annotations

from extender.engine.ledger import NodeState
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.reason import Reason

NO_ROOM = "NoRoom"
FORGED = Reason(
    "AllocationForged", "the pod carries an allocation that gangshare did not write; it waits until that is removed"
)
GONE = Reason("PodGone", "the pod has ended")
UNSEEN = Reason("BindUnseen", "this extender has not placed the pod; it goes through the scheduler again")
TAKEN = Reason("BindConflict", "the GPUs on the chosen node were taken meanwhile; the pod is placed anew")
ELSEWHERE = Reason("BindElsewhere", "the pod is bound to another node already")


def no_room(ask: PodAsk) -> Reason:
    """The constant sentence for an ask that no node can take now."""
    if len(ask.containers) == 1 and not ask.containers[0].whole and ask.containers[0].gpus == 1:
        container = ask.containers[0]
        amounts = [f"{container.mem} units"] if container.mem else []
        amounts += [f"{container.slices} slices"] if container.slices else []
        return Reason(NO_ROOM, f"no GPU with {' and '.join(amounts) or 'room'} free")
    return Reason(NO_ROOM, f"no node with {choose.wanted(ask)} free")


def with_numbers(reason: Reason, ask: PodAsk, nearest: NodeState | None, largest: int) -> Reason:
    """The same refusal with the arithmetic: what is needed, and where the most of it is free.

    `nearest` is the node that comes nearest, `largest` the units of the largest GPU in the cluster.
    """
    if nearest is None or nearest.books is None:
        where = "no node offered has GPUs of ours"
    else:
        where = f"freest: {nearest.name} {choose.misfit(ask, nearest.books).removeprefix('freest: ')}"
    too_big = max((container.mem for container in ask.containers), default=0) > largest
    size = f"the largest GPU has {largest}; " if too_big else ""
    return Reason(reason.code, reason.sentence, f"needs {choose.wanted(ask)}; {size}{where}")

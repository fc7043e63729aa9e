"""Checks that a pod on a reserved node does not delay the pods for which the node is reserved."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from extender.engine.planning.snapshot import NodeSnapshot, fill
from extender.engine.state.intree import Amounts, short_of
from extender.engine.state.node_state import NodeState
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.books import NodeBooks
from protos.contract.signature import Signature

Key = tuple[PodAsk, Signature, Signature, tuple[PodAsk, ...]]
"""What an answer depends on; the names of the node and its GPUs do not matter."""
Answers = dict[Key, bool]


class BackfillGuard:
    """One reserved node as it will be when the reservation starts, and the asks that must fit on its GPUs then."""

    __slots__ = ("_answers", "_asks", "_ignored", "_then")

    def __init__(
        self, then: NodeSnapshot, asks: tuple[PodAsk, ...], ignored: Collection[str], answers: Answers
    ) -> None:
        """`then`: the node at that time; its totals include what the `asks` request. `answers`: shared by guards."""
        self._then, self._asks, self._ignored, self._answers = then, asks, ignored, answers

    def copy(self) -> BackfillGuard:
        """A guard for a trial: what is put there does not change this one."""
        return BackfillGuard(NodeSnapshot(self._then), self._asks, self._ignored, self._answers)

    def admits(self, ask: PodAsk | None, requests: Amounts, now: NodeBooks | None) -> bool:
        """Whether the reservation still fits if one more pod gets the GPUs that it would get `now`."""
        if short_of(self._then, requests, self._ignored):
            return False
        then = self._then.books
        if ask is None or now is None or then is None:
            return True
        if ask.selection.uuids:
            return self._leaves_room(ask, now, then)
        key = ask, now.signature(), then.signature(), self._asks
        if key not in self._answers:
            self._answers[key] = self._leaves_room(ask, now, then)
        return self._answers[key]

    def _leaves_room(self, ask: PodAsk, now: NodeBooks, then: NodeBooks) -> bool:
        choice = choose.choose(ask, now)
        if choice is None:
            return False
        trial = then.copy()
        trial.hold("one more", ask, choice.charges)
        if any(trial.gpus[uuid].overused for uuid in choice.charges if uuid in trial.gpus):
            return False
        return fill(trial, self._asks) == len(self._asks)

    def put(self, uid: str, requests: Amounts, now: NodeBooks | None) -> None:
        """Count a pod that goes there; it keeps the GPUs that are booked for it `now`."""
        entry = now.entries.get(uid) if now is not None else None
        if entry is None:
            self._then.hold(uid, None, requests, {})
        else:
            self._then.hold(uid, entry.ask, requests, entry.charges)


Kept = Callable[[NodeState], Sequence[BackfillGuard]]
"""The guards of a node: reservations that the workload being planned must not delay."""


def unguarded(_: NodeState) -> Sequence[BackfillGuard]:
    """No node is reserved."""
    return ()

"""Which refused pods are brought back to the scheduler when there is room again: best first, no more than fit.

A pod woken is softly charged where it fits, so that the next in line is not woken for the same room. A wake needs news:
room somewhere since the pod was last refused or woken, or a soft charge that ended on a node it was offered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from extender.engine.effects import Wake
from extender.engine.index import Indexes
from extender.engine.ledger import Ledger, PodState
from protos.contract import choose
from protos.contract.ask import Demand, PodAsk
from protos.contract.reason import Reason


class Waking:
    """The refused pods, by shape of ask."""

    def __init__(self, ledger: Ledger, indexes: Indexes) -> None:
        self._ledger, self._indexes = ledger, indexes
        self._refused: dict[PodAsk, dict[str, PodState]] = {}
        self._epoch = 0
        """Counts the occasions on which room appeared."""
        self._due = False

    def room(self) -> None:
        """Room appeared somewhere."""
        self._epoch += 1
        self._due = True

    def look(self) -> None:
        """A soft charge ended."""
        self._due = True

    def refused(self, pod: PodState, reason: Reason, among: frozenset[str] | None, now: float) -> None:
        """The pod was refused all the nodes of `among` (None = all nodes)."""
        pod.refusal, pod.refused_at, pod.offered = reason, now, among
        pod.refused_room, pod.woken = self._epoch, False
        if pod.ask is not None:
            self._refused.setdefault(pod.ask, {})[pod.ref.uid] = pod

    def forget(self, pod: PodState) -> None:
        """The pod no longer waits for room."""
        if pod.ask is None:
            return
        of_shape = self._refused.get(pod.ask)
        if of_shape is not None and of_shape.pop(pod.ref.uid, None) is not None and not of_shape:
            del self._refused[pod.ask]

    def due(self, hold: Callable[[PodState, str, Mapping[str, Demand]], None]) -> list[Wake]:
        """The pods to wake now; `hold` keeps what each needs for a moment."""
        if not self._due:
            return []
        self._due = False
        waiting = [pod for of_shape in self._refused.values() for pod in of_shape.values() if pod.state == "waiting"]
        wakes, hopeless = [], set()
        for pod in sorted(waiting, key=lambda pod: (-pod.priority, pod.since, pod.ref)):
            assert pod.ask is not None
            node = None if pod.ask in hopeless else self._first(pod, pod.ask)
            if node is None:
                if not len(self._indexes.of(pod.ask)):
                    hopeless.add(pod.ask)
                continue
            books = self._ledger.nodes[node].books
            choice = choose.choose(pod.ask, books) if books is not None else None
            hold(pod, node, choice.charges if choice else {})
            pod.refused_room, pod.woken = self._epoch, True
            wakes.append(Wake(pod.ref))
        return wakes

    def _first(self, pod: PodState, ask: PodAsk) -> str | None:
        """The best node for it of which there is news."""
        ranked = self._indexes.of(ask).ranked()
        if self._epoch > pod.refused_room:
            return next((name for name, _ in ranked), None)
        if pod.woken:
            return None
        return next((name for name, _ in ranked if pod.offered is None or name in pod.offered), None)

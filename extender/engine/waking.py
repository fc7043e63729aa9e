"""Which refused pods are brought back to the scheduler when there is room again: best first, no more than fit.

A pod was refused since no node that it was asked for had room; so only nodes that got room since then are looked at,
and of them those it was asked for. The others kube-scheduler ruled out itself, and it brings the pod back by itself
when it changes its mind. A pod woken is softly charged where it fits, so that the next in line is not woken for the
same room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from extender.engine.effects import Wake
from extender.engine.index import Indexes
from extender.engine.ledger import Ledger, PodState
from protos.contract import choose
from protos.contract.ask import Demand, PodAsk
from protos.contract.reason import Reason

MOST_WAKES = 50
"""Pods woken at once; the rest comes with the next look."""
AGAIN_S, AGAIN_MOST_S = 10.0, 300.0
"""Seconds after which a pod that was woken and did not come is woken again; doubled each time."""


class _Room(NamedTuple):
    """Where one shape of ask fits, of the nodes that got room: best first, and as bits by node number."""

    nodes: list[str]
    bits: int


class Waking:
    """The refused pods, by shape of ask."""

    def __init__(self, ledger: Ledger, indexes: Indexes) -> None:
        self._ledger, self._indexes = ledger, indexes
        self._refused: dict[PodAsk, dict[str, PodState]] = {}
        self._news: set[str] = set()
        """Nodes that got room since the refused pods were looked at."""

    def room(self, node: str) -> None:
        """There may be more room on this node."""
        if self._refused:
            self._news.add(node)

    def refused(self, pod: PodState, ask: PodAsk, reason: Reason, excluded: int) -> None:
        """The pod was refused all nodes but those excluded."""
        pod.refusal, pod.excluded = reason, excluded
        pod.wakes, pod.again_at = 0, 0.0
        self._refused.setdefault(ask, {})[pod.ref.uid] = pod

    def forget(self, pod: PodState) -> None:
        """The pod no longer waits for room."""
        if pod.ask is None:
            return
        of_shape = self._refused.get(pod.ask)
        if of_shape is not None and of_shape.pop(pod.ref.uid, None) is not None and not of_shape:
            del self._refused[pod.ask]

    def due(self, hold: Callable[[PodState, str, Mapping[str, Demand]], None], now: float) -> list[Wake]:
        """The pods to wake now; `hold` keeps what each needs for a moment."""
        news, self._news = self._news, set()
        room = self._room(news) if news else {}
        waiting = [pod for ask in room for pod in self._refused[ask].values() if pod.state == "waiting"]
        wakes: list[Wake] = []
        for pod in sorted(waiting, key=lambda pod: (-pod.priority, pod.wakes > 0, pod.since, pod.ref)):
            assert pod.ask is not None
            if not room[pod.ask].bits & ~pod.excluded:
                continue
            if len(wakes) == MOST_WAKES:
                self._news |= news
                break
            place = self._place(pod, pod.ask, room[pod.ask].nodes)
            if place is None:
                continue
            if now < pod.again_at:
                self._news.update(room[pod.ask].nodes)
                continue
            hold(pod, *place)
            pod.again_at = now + min(AGAIN_MOST_S, AGAIN_S * 2.0 ** min(pod.wakes, 16))
            pod.wakes += 1
            wakes.append(Wake(pod.ref))
        return wakes

    def _room(self, news: set[str]) -> dict[PodAsk, _Room]:
        found = {}
        for ask in self._refused:
            nodes = [name for name, _ in self._indexes.of(ask).ranked(news)]
            bits = 0
            for name in nodes:
                bits |= 1 << self._ledger.nodes[name].number
            if nodes:
                found[ask] = _Room(nodes, bits)
        return found

    def _place(self, pod: PodState, ask: PodAsk, nodes: list[str]) -> tuple[str, Mapping[str, Demand]] | None:
        """The best of these nodes for the pod, and what it takes there; those woken before it took their part."""
        for name in nodes:
            node = self._ledger.nodes[name]
            if pod.excluded >> node.number & 1:
                continue
            if node.books is None:
                return name, {}
            choice = choose.choose(ask, node.books)
            if choice is not None:
                return name, choice.charges
        return None

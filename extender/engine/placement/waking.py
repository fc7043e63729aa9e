"""Which refused pods are brought back to the scheduler when there is room again: best first, no more than fit.

A pod was refused since no node that it was asked for had room; so only nodes that got room since then are looked at,
and of them those it was asked for. The others kube-scheduler ruled out itself, and it brings the pod back by itself
when it changes its mind. A pod woken is softly charged where it fits, so that the next in line is not woken for the
same room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from itertools import chain

from sortedcontainers import SortedKeyList

from extender.engine.books.ledger import Ledger, NodeState, PodState
from extender.engine.effects import PodRef, Wake
from extender.engine.placement.room import Places, Room
from protos.contract.ask import Demand, PodAsk
from protos.contract.reason import Reason

MOST_WAKES = 25
"""Pods woken at once; the rest comes with the next look."""
MOST_LOOKS = 2000
"""Shapes times nodes looked at at once."""
MOST_DENIED = 50
"""Nodes that are found to be kept for others, after which nobody else of that shape is looked at."""
AGAIN_S, AGAIN_MOST_S = 10.0, 300.0
"""Seconds after which a pod that was woken and did not come is woken again; doubled each time."""


def _turn(pod: PodState) -> tuple[int, bool, bool, float, PodRef]:
    """Who comes first: by priority, then whom no gang can do without, then those not woken in vain, then by age."""
    return -pod.priority, pod.spare, pod.wakes > 0, pod.since, pod.ref


class Waking:
    """The refused pods, by shape of ask."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.admits: Callable[[PodState], bool] = lambda _: True
        """Whether the pod may have room at all; one that may not is woken by whoever says so."""
        self.defers: Callable[[PodState], bool] = lambda _: False
        """Whether others are to be placed before the pod, at this moment."""
        self.spare: Callable[[PodState], bool] = lambda _: False
        """Whether a gang that runs can do without the pod."""
        self.first: Callable[[], Iterable[PodState]] = tuple
        """Those for whom room is kept: they come before all others."""
        self.open_to: Callable[[PodState, float], Callable[[NodeState], bool] | None] = lambda _pod, _now: None
        """Whether a node is not kept for others than this pod; None if none is."""
        self._refused: dict[PodAsk, SortedKeyList[PodState]] = {}
        self._news: dict[str, None] = {}
        """Nodes that got room since the refused pods were looked at, in that order."""

    def room(self, node: str) -> None:
        """There may be more room on this node."""
        if self._refused:
            self._news[node] = None

    def refused(self, pod: PodState, ask: PodAsk, reason: Reason, excluded: int) -> None:
        """The pod was refused all nodes but those excluded."""
        self.forget(pod)
        pod.refusal, pod.excluded = reason, excluded
        pod.wakes, pod.again_at, pod.spare = 0, 0.0, self.spare(pod)
        if ask not in self._refused:
            self._refused[ask] = SortedKeyList(key=_turn)
        self._refused[ask].add(pod)

    def pending(self, nodes: Iterable[str]) -> bool:
        """Whether one of these nodes has room that those who wait were not yet looked at for."""
        return not self._news.keys().isdisjoint(nodes)

    def forget(self, pod: PodState) -> None:
        """The pod no longer waits for room."""
        of_shape = self._refused.get(pod.ask) if pod.ask is not None else None
        if pod.ask is not None and of_shape is not None and pod in of_shape:
            of_shape.remove(pod)
            if not of_shape:
                del self._refused[pod.ask]

    def due(self, hold: Callable[[PodState, str, Mapping[str, Demand]], None], now: float) -> list[Wake]:
        """The pods to wake now; `hold` keeps what each needs for a moment."""
        news = list(self._news)[: max(1, MOST_LOOKS // max(1, len(self._refused)))]
        for name in news:
            del self._news[name]
        room = Room([node for name in news if (node := self._ledger.nodes.get(name)) is not None])
        lines = [self._line(places) for ask in self._refused if (places := room.of(ask)).nodes] if news else []
        wakes: list[Wake] = []
        later: dict[PodAsk, Places] = {}
        for pod, places in chain(self._ahead(room), merge(*lines, key=lambda found: _turn(found[0]))):
            if len(wakes) == MOST_WAKES:
                self._news.update(dict.fromkeys(news))
                break
            if now < pod.again_at or self.defers(pod):
                later[places.ask] = places
            elif (place := places.take(pod.excluded, self.open_to(pod, now))) is not None:
                node, charges = place
                hold(pod, node.name, charges)
                room.taken(node)
                self._woken(pod, places.ask, now)
                wakes.append(Wake(pod.ref))
        for places in later.values():
            self._news.update(dict.fromkeys(places.nodes))
        return wakes

    def _ahead(self, room: Room) -> Iterator[tuple[PodState, Places]]:
        """Those for whom room is kept, if they were refused."""
        for pod in self.first() if self._refused else ():
            if pod.state == "waiting" and pod.ask is not None and pod in self._refused.get(pod.ask, ()):
                yield pod, room.of(pod.ask)

    def _line(self, places: Places) -> Iterator[tuple[PodState, Places]]:
        """Those who wait for one of these places, in turn, as long as there is room."""
        for pod in list(self._refused[places.ask]):
            if not places.nodes or places.denied >= MOST_DENIED:
                return
            if pod.state == "waiting" and places.bits & ~pod.excluded:
                if self.admits(pod):
                    yield pod, places
                else:
                    self.forget(pod)

    def _woken(self, pod: PodState, ask: PodAsk, now: float) -> None:
        self._refused[ask].remove(pod)
        pod.again_at = now + min(AGAIN_MOST_S, AGAIN_S * 2.0 ** min(pod.wakes, 16))
        pod.wakes += 1
        self._refused[ask].add(pod)

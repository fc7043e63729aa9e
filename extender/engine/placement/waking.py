"""Which refused pods are brought back to the scheduler when there is room again: best first, no more than fit.

A pod was refused since no node that it was asked for had room; so only nodes that got room since then are looked at,
and of them those it was asked for. The others kube-scheduler ruled out itself, and it brings the pod back by itself
when it changes its mind. A pod woken is softly charged where it fits, so that the next in line is not woken for the
same room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain
from operator import attrgetter

from sortedcontainers import SortedKeyList

from extender.engine.books.ledger import Ledger, NodeState, PodState
from extender.engine.effects import Wake
from extender.engine.placement.room import Places, Room
from extender.engine.queues.line import Turn, Waiter, Walk
from extender.engine.queues.queues import Queues
from extender.engine.queues.standing import Standing
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

_TURN, _RANK = attrgetter("turn"), attrgetter("rank")
_Line = tuple[SortedKeyList[Waiter], Places]
"""Those of one queue and shape, and where they may fit."""


def _turn(pod: PodState) -> Turn:
    """Who comes first in a queue: by priority, then those whom no gang can spare, those not woken in vain, by age."""
    return Turn(-pod.priority, 2 * pod.spare + (pod.wakes > 0), pod.since, pod.ref)


class Waking:
    """The refused pods, by shape of ask and queue."""

    def __init__(self, ledger: Ledger, queues: Queues) -> None:
        self._ledger, self._queues = ledger, queues
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
        self._refused: dict[PodAsk, dict[Standing, SortedKeyList[Waiter]]] = {}
        self._waiters: dict[str, Waiter] = {}
        """The same by the UIDs of pods."""
        self._epoch = 0
        """Of the tree of queues when they were put there."""
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
        self._put(pod, ask)

    def _put(self, pod: PodState, ask: PodAsk) -> None:
        self._epoch = self._epoch if self._waiters else self._queues.epoch
        queue = self._queues.home(pod.ref.uid)
        waiter = self._waiters[pod.ref.uid] = Waiter(pod, queue, ask, _turn(pod))
        of_shape = self._refused.setdefault(ask, {})
        if queue not in of_shape:
            of_shape[queue] = SortedKeyList(key=_TURN)
        of_shape[queue].add(waiter)

    def pending(self, nodes: Iterable[str]) -> bool:
        """Whether one of these nodes has room that those who wait were not yet looked at for."""
        return not self._news.keys().isdisjoint(nodes)

    def forget(self, pod: PodState) -> None:
        """The pod no longer waits for room."""
        waiter = self._waiters.pop(pod.ref.uid, None)
        if waiter is None:
            return
        of_shape = self._refused[waiter.shape]
        of_shape[waiter.queue].remove(waiter)
        if not of_shape[waiter.queue]:
            del of_shape[waiter.queue]
        if not of_shape:
            del self._refused[waiter.shape]

    def moved(self, uid: str) -> None:
        """The pod, if it is one of them, is in another queue now."""
        waiter = self._waiters.get(uid)
        if waiter is not None:
            self.forget(waiter.name)
            self._put(waiter.name, waiter.shape)

    def due(self, hold: Callable[[PodState, str, Mapping[str, Demand]], None], now: float) -> list[Wake]:
        """The pods to wake now; `hold` keeps what each needs for a moment."""
        news = list(self._news)[: max(1, MOST_LOOKS // max(1, len(self._refused)))]
        for name in news:
            del self._news[name]
        room = Room([node for name in news if (node := self._ledger.nodes.get(name)) is not None])
        if news:
            self._sort()
        found = {ask: places for ask in self._refused if (places := room.of(ask)).nodes} if news else {}
        wakes: list[Wake] = []
        later: dict[PodAsk, Places] = {}
        for pod, places in chain(self._ahead(room), self._in_turn(found)):
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
            if pod.state == "waiting" and pod.ask is not None and pod.ref.uid in self._waiters:
                yield pod, room.of(pod.ask)

    def _in_turn(self, found: Mapping[PodAsk, Places]) -> Iterator[tuple[PodState, Places]]:
        """Those who wait for these places: of the queue first that has least, with what was kept for those before."""
        lines: dict[Standing, list[_Line]] = {}
        for ask, places in found.items():
            for queue, waiters in self._refused.get(ask, {}).items():
                lines.setdefault(queue, []).append((waiters, places))
        walk = Walk(map(_together, lines.values()), _RANK)
        full = 0
        for pod, _, ask, _ in walk:
            places = found[ask]
            if self.admits(pod):
                yield pod, places
            else:
                self.forget(pod)
            if _full(places):
                walk.leave_out(ask)
                full += 1
                if full == len(found):
                    return

    def _sort(self) -> None:
        """Take in that there are other queues now."""
        if self._epoch == self._queues.epoch:
            return
        self._epoch = self._queues.epoch
        waiters = [waiter for of_shape in self._refused.values() for line in of_shape.values() for waiter in line]
        anew: dict[PodAsk, dict[Standing, list[Waiter]]] = {}
        for pod, _, ask, turn in waiters:
            queue = self._queues.home(pod.ref.uid)
            self._waiters[pod.ref.uid] = waiter = Waiter(pod, queue, ask, turn)
            anew.setdefault(ask, {}).setdefault(queue, []).append(waiter)
        self._refused = {
            ask: {queue: SortedKeyList(those, key=_TURN) for queue, those in of_shape.items()}
            for ask, of_shape in anew.items()
        }

    def _woken(self, pod: PodState, ask: PodAsk, now: float) -> None:
        self.forget(pod)
        pod.again_at = now + min(AGAIN_MOST_S, AGAIN_S * 2.0 ** min(pod.wakes, 16))
        pod.wakes += 1
        self._put(pod, ask)


def _together(lines: Sequence[_Line]) -> Iterator[Waiter]:
    """Those of one queue. Most queues are asked for the first alone, so that is found at a glance."""
    first, of_first = min(((waiters[0], places) for waiters, places in lines), key=lambda found: found[0].turn)
    if _may(first.name, of_first):
        yield first
    for waiter in merge(*(_one_by_one(*line) for line in lines if not _full(line[1])), key=_TURN):
        if waiter.name is not first.name:
            yield waiter


def _one_by_one(waiters: Iterable[Waiter], places: Places) -> Iterator[Waiter]:
    """Those of one queue and shape, as long as there is room."""
    for waiter in list(waiters):
        if _full(places):
            return
        if _may(waiter.name, places):
            yield waiter


def _may(pod: PodState, places: Places) -> bool:
    """Whether the pod waits for one of these places."""
    return pod.state == "waiting" and places.bits & ~pod.excluded != 0


def _full(places: Places) -> bool:
    """Whether nobody else need be looked at for them."""
    return not places.nodes or places.denied >= MOST_DENIED

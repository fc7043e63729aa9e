"""Which refused pods are brought back to the scheduler when there is room again: best first, no more than fit.

A pod was refused since no node that it was asked for had room; so only nodes that got room since then are looked at,
and of them those it was asked for. The others kube-scheduler ruled out itself, and it brings the pod back by itself
when it changes its mind. Where others go first the pod is refused although there is room: it is woken once nobody does.
A pod woken is softly charged where it fits, so that the next in line is not woken for the same room.

They are looked at in rounds, and a round in slices: between two of them pods come and go, and room does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter

import msgspec

from extender.engine.queueing.line import TURN, Waiter, Walk
from extender.engine.queueing.order import PendingOrder
from extender.engine.queueing.queue_node import QueueNode
from extender.engine.queueing.refused import Refused
from extender.engine.queueing.room import Places, Room
from extender.engine.queueing.tenancy import Tenancy
from extender.engine.state.ledger import Ledger
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.quarantine import Quarantine
from extender.engine.types import refusals
from extender.engine.types.effects import Requeue
from extender.engine.types.shape import Shape
from extender.engine.types.sliced import Sliced
from protos.contract.ask import Demand, PodAsk
from protos.contract.reason import Reason

MOST_WAKES = 25
"""Pods woken with one round, of which there is one for each tick; the rest comes with the next."""
MOST_LOOKS = 4000
"""Shapes times nodes looked at in one round."""
MOST_DENIED = 50
"""Nodes that are found to be kept for others, after which nobody else of that shape is looked at."""
AGAIN_S, AGAIN_MOST_S = 10.0, 300.0
"""Seconds after which a pod that was woken and did not come is woken again; doubled each time."""
SLICE = 800
"""Work done at once, in looks at a node, some 1 ms in all; and that of these parts of it:"""
QUEUE, POD = 5, 40

_RANK = attrgetter("rank")
_Lines = Sequence[tuple[Sequence[Waiter], Places]]
"""Those of one queue by shape, and where they may fit."""


class RoundRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a round asks of those who know more than the queues."""

    hold: Callable[[PodState, str, Mapping[str, Demand], float], None]
    """Keeps so much of a node for a pod, from now on."""
    first: Callable[[], Iterable[PodState]]
    """Those for whom a reservation is kept: they come before all others."""
    defers: Callable[[PodState], bool]
    """Whether others are to be placed before the pod, at this moment."""
    room: Callable[[Shape], Generator[int, None, list[str]]]
    """The best nodes that have room for such a pod."""
    open_to: Callable[[PodState, float], Callable[[NodeState], bool] | None]
    """Whether a node is not reserved for others than this pod; None if none is."""


class Waking:
    """The refused pods, and the nodes that got room."""

    def __init__(self, ledger: Ledger, tenancy: Tenancy, quarantine: Quarantine, order: PendingOrder) -> None:
        self._ledger, self._tenancy, self._quarantine = ledger, tenancy, quarantine
        self._refused = Refused(tenancy.queues, order)
        self._news: dict[str, None] = {}
        """Nodes that got room since the refused pods were looked at, in that order."""
        self._looking: dict[str, None] = {}
        """Those of the round under way."""
        self._behind: dict[str, PodState] = {}
        """Those that were refused though there is room, since others go first; by UID."""
        self._round: Sliced[None] | None = None
        self._wakes: list[Requeue] = []
        self._left = 0
        """How many more the round may wake."""

    def room(self, node: str) -> None:
        """There may be more room on this node."""
        if self._refused:
            self._news[node] = None

    def refused(self, pod: PodState, ask: PodAsk, reason: Reason, excluded: int) -> None:
        """The pod was refused all nodes but those excluded."""
        self.forget(pod)
        pod.refusal, pod.excluded = reason, excluded
        pod.wakes, pod.again_at = 0, 0.0
        self._refused.put(pod, ask)
        if reason is refusals.BEHIND_GANGS:
            self._behind[pod.ref.uid] = pod

    def pending(self, nodes: Collection[str]) -> bool:
        """Whether one of these nodes has room that those who wait were not yet looked at for."""
        return not (self._news.keys().isdisjoint(nodes) and self._looking.keys().isdisjoint(nodes))

    def forget(self, pod: PodState) -> None:
        """The pod no longer waits for room."""
        self._refused.forget(pod.ref.uid)
        self._behind.pop(pod.ref.uid, None)

    def moved(self, uid: str) -> None:
        """The pod, if it is one of them, is in another queue now."""
        self._refused.moved(uid)

    def reorder(self) -> None:
        """The times of pods are other ones now: all take the places that they have by those."""
        self._refused.reorder()

    # -- rounds

    def begin(self, rules: RoundRules, now: float) -> None:
        """Begin a round over the nodes that got room, if none is under way."""
        if self._round is None and (self._news or self._behind):
            self._refused.settle()
            self._left = MOST_WAKES
            self._round = Sliced(self._look(rules, now))

    def work(self) -> bool:
        """Do a slice of the round; returns whether there is more of it."""
        if self._round is None:
            return False
        if not self._refused.settled or self._round.advance(SLICE):
            self._round = None
            self._news = {**self._looking, **self._news}  # those not looked at to the end
            self._looking = {}
        return self._round is not None

    def taken(self) -> list[Requeue]:
        """The pods to wake now, told once."""
        wakes, self._wakes = self._wakes, []
        return wakes

    def _look(self, rules: RoundRules, now: float) -> Generator[int, None, None]:
        """A round. Whatever happens meanwhile, nobody is woken who does not wait, nor for room that is not there."""
        asks = self._refused.asks
        self._looking = dict.fromkeys(islice(self._news, max(1, MOST_LOOKS // max(1, len(asks)))))
        for name in self._looking:
            del self._news[name]
        room = Room([node for name in self._looking if (node := self._ledger.nodes.get(name)) is not None])
        yield from room.look()
        for pod in list(rules.first()):
            if pod.ask is not None and self._waits(pod, pod.ask):
                yield from self._offer(pod, (yield from room.of(pod.ask)), room, rules, now)
        found: dict[PodAsk, Places] = {}
        for ask in asks:
            places = yield from room.of(ask)
            if places.nodes:
                found[ask] = places
        yield from self._in_turn((yield from self._lined_up(found)), found, room, rules, now)
        yield from self._behind_no_more(rules)
        if self._left > 0:
            self._looking = {}

    def _behind_no_more(self, rules: RoundRules) -> Generator[int, None, None]:
        """For those that nobody goes before any more the next round looks at all room: it was there all the time."""
        for pod in list(self._behind.values()):
            with self._quarantine.over(pod.subject, "requeue"):
                if pod.ask is not None and self._waits(pod, pod.ask) and not rules.defers(pod):
                    del self._behind[pod.ref.uid]
                    self._news |= dict.fromkeys((yield from rules.room(pod.shape)))
            yield POD

    def _lined_up(self, found: Mapping[PodAsk, Places]) -> Generator[int, None, Walk]:
        """Those who wait for these places: of the queue first that has least, with what was kept for those before."""
        lines: dict[QueueNode, list[tuple[Sequence[Waiter], Places]]] = {}
        for ask, places in found.items():
            of_ask = self._refused.of(ask)
            for queue, line in of_ask.items():
                lines.setdefault(queue, []).append((line, places))
            yield len(of_ask)
        walk = Walk((), _RANK)
        for of_queue in lines.values():
            if there := [(line, places) for line, places in of_queue if line]:
                walk.join(_together(there))
            yield QUEUE + len(of_queue)
        return walk

    def _in_turn(
        self, walk: Walk, found: Mapping[PodAsk, Places], room: Room, rules: RoundRules, now: float
    ) -> Generator[int, None, None]:
        full = 0
        for pod, _, ask, _ in walk:
            if not self._waits(pod, ask):
                continue
            places, admitted = found[ask], False
            with self._quarantine.over(pod.subject, "requeue"):
                admitted = self._tenancy.admits(pod)
            if admitted:
                yield from self._offer(pod, places, room, rules, now)
            else:
                self.forget(pod)
                yield POD
            if _full(places):
                walk.leave_out(ask)
                full += 1
            if full == len(found) or self._left == 0:
                return

    def _offer(
        self, pod: PodState, places: Places, room: Room, rules: RoundRules, now: float
    ) -> Generator[int, None, None]:
        """Wake the pod, if it fits anywhere and nobody comes before it."""
        if not self._waits(pod, places.ask) or self._left == 0:
            return
        with self._quarantine.over(pod.subject, "requeue"):
            if now < pod.again_at or rules.defers(pod):
                self._news.update(dict.fromkeys(places.nodes))
            else:
                place = yield from places.take(pod.excluded, rules.open_to(pod, now))
                if place is not None and self._waits(pod, places.ask):
                    node, charges = place
                    rules.hold(pod, node.name, charges, now)
                    room.taken(node)
                    self._woken(pod, places.ask, now)
        yield POD

    def _waits(self, pod: PodState, ask: PodAsk) -> bool:
        """Whether it still does; an error may have kept one in line that is gone."""
        return self._refused.waits(pod, ask) and self._ledger.pods.get(pod.ref.uid) is pod

    def _woken(self, pod: PodState, ask: PodAsk, now: float) -> None:
        self.forget(pod)
        pod.again_at = now + min(AGAIN_MOST_S, AGAIN_S * 2.0 ** min(pod.wakes, 16))
        pod.wakes += 1
        self._refused.put(pod, ask)
        self._wakes.append(Requeue(pod.ref))
        self._left -= 1


def _together(lines: _Lines) -> Iterator[Waiter]:
    """Those of one queue. Most queues are asked for the first alone, so that is found at a glance."""
    first, of_first = min(((waiters[0], places) for waiters, places in lines), key=lambda found: found[0].turn)
    if _may(first.name, of_first):
        yield first
    for waiter in merge(*(_one_by_one(*line) for line in lines if not _full(line[1])), key=TURN):
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

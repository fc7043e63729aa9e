"""Which refused pods are requeued when capacity becomes free: in order, and no more than fit.

A pod was refused because no node that it was asked for had capacity. So only nodes that got capacity since then are
checked, except those that kube-scheduler refuses: it requeues the pod itself when they suit. A pod that was refused
because other workloads go first is requeued once none does. A requeued pod gets a soft charge where it fits, so that no
other pod is requeued for the same capacity. It is also nominated there if kube-scheduler does not look at every node.

Pods are checked in rounds, and a round runs in slices: between two slices pods, nodes and capacity may change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from itertools import islice

import msgspec

from extender.engine.queueing.admission import MOST_WAKES, again_after
from extender.engine.queueing.line import TURN, Waiter, Walk
from extender.engine.queueing.order import PendingOrder
from extender.engine.queueing.queue_node import QueueNode
from extender.engine.queueing.refused import Refused
from extender.engine.queueing.room import Places, Room
from extender.engine.queueing.tenancy import Tenancy
from extender.engine.state.context import EngineContext
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.types import refusals
from extender.engine.types.effects import Requeue
from extender.engine.types.look import Look
from extender.engine.types.shape import Shape
from extender.engine.types.sliced import Sliced
from protos.contract.ask import PodAsk
from protos.contract.choose import Choice
from protos.contract.reason import Reason

MOST_LOOKS = 4000
"""Shapes times nodes checked in one round."""
MOST_DENIED = 50
"""Reserved nodes found, after which no other pod of that shape is checked."""
SLICE = 800
"""Work of one slice, in checks of a node: some 1 ms."""
QUEUE, POD = 5, 40
"""The cost of one queue, and of one pod, in such checks."""


class RoundRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a round needs from layers above."""

    hold: Callable[[PodState, str, Choice, float], None]
    """Charge this much of a node softly to a pod, from now on."""
    first: Callable[[], Iterable[PodState]]
    """The pods with backfill reservations: they come before all others."""
    defers: Callable[[PodState], bool]
    """Whether other workloads go before the pod at this moment."""
    room: Callable[[Shape], Generator[int, None, list[str]]]
    """The best nodes that have capacity for such a pod."""
    open_to: Callable[[PodState, float], Callable[[NodeState], bool] | None]
    """Whether a node is not reserved for other pods; None if no node is."""


class Waking:
    """Keeps the refused pods and the nodes that got capacity, and runs the rounds over them."""

    def __init__(self, context: EngineContext, tenancy: Tenancy, order: PendingOrder) -> None:
        self._ledger, self._quarantine, self._outbox = context.ledger, context.quarantine, context.outbox
        self._tenancy, self._cannot_fit = tenancy, context.cannot_fit
        self._ignored = frozenset(context.settings.resources.managed)
        self._refused = Refused(tenancy.queues, order)
        self._fresh: dict[str, None] = {}
        """Nodes that got capacity since they were last checked, the earliest first."""
        self._checking: dict[str, None] = {}
        """The nodes of the current round."""
        self._behind: dict[str, PodState] = {}
        """Pods, by UID, that were refused though capacity is free, since other workloads go first."""
        self._round: Sliced[None] | None = None
        self._left = 0
        """How many more pods the round may requeue."""

    def room(self, node: str) -> None:
        """The node may have more capacity."""
        if self._refused:
            self._fresh[node] = None

    def refused(self, pod: PodState, ask: PodAsk, reason: Reason, look: Look) -> None:
        """The pod was refused all nodes that kube-scheduler does not refuse it."""
        self.forget(pod)
        before = pod.excluded if look.sampled and look.nominated else 0
        pod.refusal, pod.excluded = reason, before | self._ledger.refused_by(look)
        pod.wakes, pod.again_at = 0, 0.0
        self._refused.put(pod, ask)
        if reason is refusals.BEHIND_GANGS:
            self._behind[pod.ref.uid] = pod

    def pending(self, nodes: Collection[str]) -> bool:
        """Whether one of these nodes has capacity for which the waiting pods were not yet checked."""
        return not (self._fresh.keys().isdisjoint(nodes) and self._checking.keys().isdisjoint(nodes))

    def forget(self, pod: PodState) -> None:
        self._refused.forget(pod.ref.uid)
        self._behind.pop(pod.ref.uid, None)

    def moved(self, uid: str) -> None:
        self._refused.moved(uid)

    def reorder(self) -> None:
        """The wall clock was set: compute all places again."""
        self._refused.reorder()

    # -- rounds

    def begin(self, rules: RoundRules, now: float) -> None:
        """Begin a round over the nodes that got capacity, unless one runs."""
        if self._round is None and (self._fresh or self._behind):
            self._refused.settle()
            self._left = MOST_WAKES
            self._round = Sliced(self._run(rules, now))

    def work(self) -> bool:
        """Do a slice of the round; return whether there is more of it."""
        if self._round is None:
            return False
        if not self._refused.settled or self._round.advance(SLICE):
            self._round = None
            self._fresh = {**self._checking, **self._fresh}  # the round may have ended early
            self._checking = {}
        return self._round is not None

    def _run(self, rules: RoundRules, now: float) -> Generator[int, None, None]:
        """A round. It requeues no pod that has stopped waiting, nor for capacity that is gone."""
        asks: list[PodAsk] = []
        for ask in dict.fromkeys(ask for _, ask in self._refused.lines):
            if self._cannot_fit.why(ask) is None:
                asks.append(ask)
            yield 1
        self._checking = dict.fromkeys(islice(self._fresh, max(1, MOST_LOOKS // max(1, len(asks)))))
        for name in self._checking:
            del self._fresh[name]
        room = Room([node for name in self._checking if (node := self._ledger.nodes.get(name)) is not None])
        yield from room.look()
        for pod in list(rules.first()):
            if pod.ask is not None and self._waits(pod, pod.ask):
                yield from self._offer(pod, (yield from room.of(pod.ask)), room, rules, now)
        by_ask: dict[PodAsk, Places] = {}
        for ask in asks:
            places = yield from room.of(ask)
            if places.nodes:
                by_ask[ask] = places
        yield from self._in_turn((yield from self._lined_up(by_ask)), by_ask, room, rules, now)
        yield from self._no_longer_behind(rules)
        if self._left > 0:
            self._checking = {}

    def _no_longer_behind(self, rules: RoundRules) -> Generator[int, None, None]:
        """Have the next round check all capacity for pods that no workload goes before any more."""
        for pod in list(self._behind.values()):
            with self._quarantine.over(pod.subject, "requeue"):
                if pod.ask is not None and self._waits(pod, pod.ask) and not rules.defers(pod):
                    del self._behind[pod.ref.uid]
                    self._fresh |= dict.fromkeys((yield from rules.room(pod.shape)))
            yield POD

    def _lined_up(self, by_ask: Mapping[PodAsk, Places]) -> Generator[int, None, Walk]:
        """The pods that wait for these places, in order: soft charges of pods before count in the ranks of queues."""
        lines: dict[QueueNode, list[tuple[Sequence[Waiter], Places]]] = {}
        for (queue, ask), line in list(self._refused.lines.items()):
            if ask in by_ask:
                lines.setdefault(queue, []).append((line, by_ask[ask]))
            yield 1
        walk = Walk((), lambda place: place[0].rank)
        for of_queue in lines.values():
            if there := [(line, places) for line, places in of_queue if line]:
                walk.join(_together(there))
            yield QUEUE + len(of_queue)
        return walk

    def _in_turn(
        self, walk: Walk, by_ask: Mapping[PodAsk, Places], room: Room, rules: RoundRules, now: float
    ) -> Generator[int, None, None]:
        full = 0
        for pod, _, ask, _ in walk:
            if not self._waits(pod, ask):
                continue
            places, admitted = by_ask[ask], False
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
            if full == len(by_ask) or self._left == 0:
                return

    def _offer(
        self, pod: PodState, places: Places, room: Room, rules: RoundRules, now: float
    ) -> Generator[int, None, None]:
        """Requeue the pod if it fits and no other workload goes before it."""
        if not self._waits(pod, places.ask) or self._left == 0:
            return
        with self._quarantine.over(pod.subject, "requeue"):
            if now < pod.again_at or rules.defers(pod):
                self._fresh.update(dict.fromkeys(places.nodes))
            else:
                place = yield from places.take(partial(pod.passes, ignored=self._ignored), rules.open_to(pod, now))
                if place is not None and self._waits(pod, places.ask):
                    node, choice = place
                    rules.hold(pod, node.name, choice, now)
                    room.taken(node)
                    self._requeue(pod, node.name, places.ask, now)
        yield POD

    def _waits(self, pod: PodState, ask: PodAsk) -> bool:
        """Whether the pod still waits; an error may have left a pod in line that is gone."""
        return self._refused.waits(pod, ask) and self._ledger.pods.get(pod.ref.uid) is pod

    def _requeue(self, pod: PodState, node: str, ask: PodAsk, now: float) -> None:
        self.forget(pod)
        pod.again_at = now + again_after(pod.wakes)
        pod.wakes += 1
        self._refused.put(pod, ask)
        self._outbox.put(Requeue(pod.ref, node, nominate=pod.sampled))
        self._left -= 1


def _together(lines: Sequence[tuple[Sequence[Waiter], Places]]) -> Iterator[Waiter]:
    """The pods of one queue in order. Often only the first is needed, so it is found without a merge."""
    first, places = min(((waiters[0], places) for waiters, places in lines), key=lambda each: each[0].turn)
    if _may(first.name, places):
        yield first
    for waiter in merge(*(_while_room(*line) for line in lines if not _full(line[1])), key=TURN):
        if waiter.name is not first.name:
            yield waiter


def _while_room(waiters: Iterable[Waiter], places: Places) -> Iterator[Waiter]:
    """The pods of one queue and shape, as long as places are left."""
    for waiter in list(waiters):
        if _full(places):
            return
        if _may(waiter.name, places):
            yield waiter


def _may(pod: PodState, places: Places) -> bool:
    """Whether the pod waits for one of these places."""
    return pod.state == "waiting" and places.bits & ~pod.excluded != 0


def _full(places: Places) -> bool:
    """Whether no other pod need be checked for them."""
    return not places.nodes or places.denied >= MOST_DENIED

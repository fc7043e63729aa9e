"""The start that is promised to the head of a queue, and what must stay free on its nodes until then."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from extender.engine.planning.backfill_guard import Answers, BackfillGuard
from extender.engine.planning.snapshot import NodeSnapshot
from extender.engine.policies.backfill.earliest import Earliest, EndOf
from extender.engine.policies.backfill.heads import Head
from extender.engine.state.ledger import Ledger
from extender.engine.state.running_pods import RunningPods
from extender.engine.state.seats import Seat
from extender.engine.types.amounts import add

SOON_S = 300.0
"""Seconds before a start in which it binds pods with unknown run times, and all pods if the start is a guess."""


class FutureNodes:
    """The nodes as they will be at a given start."""

    def __init__(self, ledger: Ledger, running_pods: RunningPods, ignored: Collection[str], end_of: EndOf) -> None:
        """`ignored`: resources that kube-scheduler leaves to us."""
        self._ledger, self._running_pods, self._ignored, self._end_of = ledger, running_pods, ignored, end_of
        self._answers: Answers = {}

    def version(self, name: str) -> int:
        """Changes with the node; -1 if it is gone."""
        node = self._ledger.nodes.get(name)
        return node.version if node is not None and node.seen else -1

    def guard(self, name: str, seats: Sequence[Seat], gone: frozenset[str], start: float) -> BackfillGuard:
        """The guard of these seats on the node without pods that are `gone`, leave now, or surely end by the start."""
        pods, here = self._ledger.pods, self._ledger.on_node.get(name, ())
        ended = {uid for uid in here if (end := self._end_of(uid)) is not None and end[1] and end[0] <= start}
        ended.update(uid for uid in here if uid in self._running_pods.leaving)
        then = NodeSnapshot(self._ledger.nodes[name])
        for uid in gone | ended:
            if uid in pods:
                then.remove(uid, pods[uid].requests)
        for seat in seats:
            add(then.used, seat.requests)
        return BackfillGuard(then, tuple(seat.ask for seat in seats if seat.ask), self._ignored, self._answers)


class BackfillReservation:
    """The nodes and the start reserved for one head."""

    def __init__(
        self,
        head: Head,
        first: Earliest,
        seats: Mapping[str, Sequence[Seat]],
        made: float,
        until: float,
        future_nodes: FutureNodes,
    ) -> None:
        """`seats`: needed on each node, by the heads before this one too. It is kept from `made` to `until`."""
        self.head, self.first, self.seats, self.nodes = head, first, seats, first.nodes
        self.made, self.until, self._future_nodes = made, until, future_nodes
        self._guards: dict[str, tuple[int, BackfillGuard | None]] = {}

    def binds(self, end: float, now: float) -> bool:
        """Whether a workload behind the head that would end then must leave the room; infinity: the end is unknown."""
        if end <= self.first.start:
            return False
        guessed = end == math.inf or not self.first.sure
        return not guessed or self.first.start - now <= max(SOON_S, now - self.head.since)

    def guard(self, name: str) -> BackfillGuard | None:
        """The guard of this node, None if nothing is reserved there."""
        if name not in self.seats:
            return None
        version = self._future_nodes.version(name)
        known = self._guards.get(name)
        if known is None or known[0] != version:
            gone, start = self.first.gone[name], self.first.start
            guard = self._future_nodes.guard(name, self.seats[name], gone, start) if version >= 0 else None
            known = self._guards[name] = version, guard
        return known[1]

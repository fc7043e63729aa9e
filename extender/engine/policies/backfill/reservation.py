"""The start that is promised to the head of a queue, and what must stay free on its nodes until then."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from extender.engine.planning.backfill_guard import Answers, BackfillGuard
from extender.engine.planning.snapshot import NodeSnapshot
from extender.engine.policies.backfill.earliest import Earliest, EndOf
from extender.engine.policies.backfill.heads import Head
from extender.engine.policies.context import PolicyContext
from extender.engine.state.seats import Seat
from extender.engine.types.amounts import add

SOON_S = 300.0
"""Least seconds before a guessed start in which it binds; the same for pods with unknown run times."""


class BackfillReservation:
    """The nodes and the start reserved for one head, and the guards of these nodes."""

    def __init__(
        self,
        context: PolicyContext,
        head: Head,
        first: Earliest,
        seats: Mapping[str, Sequence[Seat]],
        made: float,
        until: float,
        end_of: EndOf,
    ) -> None:
        """`seats`: needed on each node, by the heads before this one too. It is kept from `made` to `until`."""
        self._context, self._end_of = context, end_of
        self.head, self.first, self.seats, self.nodes = head, first, seats, first.nodes
        self.made, self.until = made, until
        self._answers: Answers = {}
        self._guards: dict[str, tuple[int, BackfillGuard | None]] = {}
        """By node, with the version of the node; no guard if the node is gone."""

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
        node = self._context.ledger.nodes.get(name)
        version = node.version if node is not None and node.seen else -1
        known = self._guards.get(name)
        if known is None or known[0] != version:
            guard = self._guard(NodeSnapshot(node)) if node is not None and node.seen else None
            known = self._guards[name] = version, guard
        return known[1]

    def _guard(self, then: NodeSnapshot) -> BackfillGuard:
        """The guard of a node without pods that are gone by the start, leave now, or surely end before the start."""
        ledger, leaving = self._context.ledger, self._context.running_pods.leaving
        gone = set(self.first.gone[then.name])
        for uid in ledger.on_node.get(then.name, ()):
            end = self._end_of(uid)
            if uid in leaving or (end is not None and end[1] and end[0] <= self.first.start):
                gone.add(uid)
        for uid in gone:
            if uid in ledger.pods:
                then.remove(uid, ledger.pods[uid].requests)
        seats = self.seats[then.name]
        for seat in seats:
            add(then.used, seat.requests)
        asks = tuple(seat.ask for seat in seats if seat.ask is not None)
        return BackfillGuard(then, asks, self._context.gangs.planner.view.ignored, self._answers)

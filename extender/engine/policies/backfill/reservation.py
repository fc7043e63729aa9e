"""The start that is promised to one who comes first, and what must be left on its nodes until then."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from extender.engine.planning.backfill_guard import BackfillGuard, Known
from extender.engine.planning.what_if import WhatIfNodes
from extender.engine.policies.backfill.earliest import Earliest, EndOf
from extender.engine.policies.backfill.heads import Head
from extender.engine.state.ledger import Ledger
from extender.engine.state.running_pods import RunningPods
from extender.engine.state.seats import Seat

SOON_S = 300.0
"""Seconds before a start in which it binds if it is a guess, or those of whom nobody knows when they end, at least."""


class FutureNodes:
    """The nodes as they are, and who of those on them has ended by when."""

    def __init__(self, ledger: Ledger, running_pods: RunningPods, ignored: Collection[str], end_of: EndOf) -> None:
        """`ignored`: resources that kube-scheduler leaves to us."""
        self._ledger, self._running_pods, self._ignored, self._end_of = ledger, running_pods, ignored, end_of
        self._known: Known = {}

    def version(self, name: str) -> int:
        """Another one if the node has changed; -1 if it is gone."""
        node = self._ledger.nodes.get(name)
        return node.version if node is not None and node.seen else -1

    def beside(self, name: str, seats: Sequence[Seat], gone: frozenset[str], start: float) -> BackfillGuard:
        """The node without those who are gone by that start, with room needed for these."""
        node, here = self._ledger.nodes[name], self._ledger.on_node.get(name, ())
        gone |= {uid for uid in here if (end := self._end_of(uid)) is not None and end[1] and end[0] <= start}
        leaving = [uid for uid in here if uid in self._running_pods.leaving]
        return BackfillGuard(WhatIfNodes(self._ledger, leaving).without(node, gone), seats, self._ignored, self._known)


class BackfillReservation:
    """What is kept for one."""

    def __init__(
        self,
        head: Head,
        first: Earliest,
        seats: Mapping[str, Sequence[Seat]],
        made: float,
        until: float,
        future_nodes: FutureNodes,
    ) -> None:
        """`seats`: who needs room on each node, with those for whom it is kept before; since when, until when it is."""
        self.head, self.first, self.seats, self.nodes = head, first, seats, first.nodes
        self.made, self.until, self._future_nodes = made, until, future_nodes
        self._besides: dict[str, tuple[int, BackfillGuard | None]] = {}

    def binds(self, end: float, now: float) -> bool:
        """Whether one who stands behind and would end then must leave the room; infinity: nobody knows when."""
        if end <= self.first.start:
            return False
        guessed = end == math.inf or not self.first.sure
        return not guessed or self.first.start - now <= max(SOON_S, now - self.head.since)

    def beside(self, name: str) -> BackfillGuard | None:
        """What is to be left on this node, None if nothing is."""
        if name not in self.seats:
            return None
        version = self._future_nodes.version(name)
        known = self._besides.get(name)
        if known is None or known[0] != version:
            gone, start = self.first.gone[name], self.first.start
            beside = self._future_nodes.beside(name, self.seats[name], gone, start) if version >= 0 else None
            known = self._besides[name] = version, beside
        return known[1]

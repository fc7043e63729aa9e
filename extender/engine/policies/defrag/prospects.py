"""Where a search for moves looks first: nodes that have room, and nodes that the fewest pods must leave."""

from __future__ import annotations

from collections.abc import Collection, Generator
from heapq import nsmallest
from operator import attrgetter

import msgspec

from extender.engine.planning.attempt import LOOK, PIECE, STEP, TRY, ClusterView, Entry, ranking
from extender.engine.planning.movable_pods import Movable, MovablePods
from extender.engine.planning.sketch import Outlook, may_go, outlook
from extender.engine.state.intree import short_of
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Likeness, Seat

NEAR, AROUND = 28, 48
"""Most nodes listed for one shape: nodes that have room, and nodes that pods would have to leave."""


class View(msgspec.Struct, frozen=True):
    """What stands in the way of one shape."""

    nearest: Outlook | None
    """The node where the least stands in the way; None if no node would do if it were empty."""
    useful: list[Outlook]
    """Nodes on which moves may help, the fewest first."""


class Prospects:
    """What was seen of the cluster, remembered by likeness. Its generators yield costs in LOOKs."""

    def __init__(self, view: ClusterView, movable_pods: MovablePods, kept: Collection[str]) -> None:
        """Pods in `kept` (NAMESPACE/NAME) are not moved."""
        self._view, self._movable_pods, self._kept = view, movable_pods, frozenset(kept)
        self._movable: dict[str, list[Movable]] = {}
        self._near: dict[Likeness, list[str]] = {}
        self._views: dict[Likeness, View] = {}

    def clear(self) -> None:
        """Forget everything."""
        for remembered in (self._movable, self._near, self._views):
            remembered.clear()

    def movable(self, name: str) -> list[Movable]:
        """The pods that may be moved from a node."""
        node = self._view.nodes.get(name)
        if name not in self._movable:
            self._movable[name] = self._may_move(node) if node is not None else []
        return self._movable[name]

    def _may_move(self, node: NodeState) -> list[Movable]:
        return [pod for pod in self._movable_pods.movable(node) if pod.name not in self._kept]

    def near(self, seat: Seat) -> Generator[int, None, list[str]]:
        """The best nodes that have room as they are."""
        likeness = seat.likeness
        if likeness not in self._near:
            ranked = yield from (ranking(self._view, seat.shape) if seat.ask is not None else self._by_name())
            near: list[str] = []
            for number, (_, name) in enumerate(ranked):
                node = self._view.nodes.get(name)
                if node is not None and self._has_room(seat, node):
                    near.append(name)
                if len(near) == NEAR:
                    break
                if number % STEP == 0:
                    yield STEP * LOOK
            self._near[likeness] = near
        return self._near[likeness]

    def _by_name(self) -> Generator[int, None, list[Entry]]:
        yield PIECE
        return sorted((0, node.name) for node in self._view.nodes.values() if node.seen)

    def _has_room(self, seat: Seat, node: NodeState) -> bool:
        """Whether the pod fits on the node, GPUs apart."""
        ignored = self._view.ignored
        return may_go(seat, node, ignored) and not short_of(node, seat.requests, ignored)

    def view(self, seat: Seat) -> Generator[int, None, View]:
        """What stands in the way of the pod on all nodes."""
        likeness = seat.likeness
        if likeness not in self._views:
            outlooks: list[Outlook] = []
            for node in tuple(self._view.nodes.values()):
                seen = outlook(seat, node, self._may_move(node), self._view.ignored)
                if seen is not None:
                    outlooks.append(seen)
                yield TRY
            yield PIECE
            useful = nsmallest(AROUND, (seen for seen in outlooks if not seen.stuck), key=attrgetter("moves", "node"))
            yield PIECE
            nearest = min(outlooks, key=attrgetter("stuck", "moves", "node"), default=None)
            self._views[likeness] = View(nearest, useful)
        return self._views[likeness]

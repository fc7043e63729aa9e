"""Where a search for moves looks first: nodes that have room for somebody, and those where the fewest have to go."""

from __future__ import annotations

from collections.abc import Collection, Generator
from heapq import nsmallest
from operator import attrgetter

import msgspec

from extender.engine.planning.attempt import LOOK, PIECE, STEP, TRY, ClusterView, Entry, ranking
from extender.engine.planning.movable_pods import Movable, MovablePods
from extender.engine.planning.outlook import Outlook, outlook
from extender.engine.planning.sketch import barred
from extender.engine.state.intree import short_of
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Likeness, Seat

NEAR, AROUND = 28, 48
"""Nodes that are known for one shape: such that have room, and such that others would have to leave."""


class View(msgspec.Struct, frozen=True):
    """What stands in the way of one shape."""

    nearest: Outlook | None
    """Where the least does; None if no node would do if it were empty."""
    useful: list[Outlook]
    """Nodes on which moves may help, the fewest first."""


class Prospects:
    """What was seen of the cluster. Work is told as it is done, in `attempt.LOOK`s."""

    def __init__(self, view: ClusterView, movable_pods: MovablePods, kept: Collection[str]) -> None:
        """Pods in `kept` (NAMESPACE/NAME) are not moved."""
        self._view, self._movable_pods, self._kept = view, movable_pods, frozenset(kept)
        self._movable: dict[str, list[Movable]] = {}
        self._rooms: dict[Likeness, list[str]] = {}
        self._views: dict[Likeness, View] = {}

    def clear(self) -> None:
        """Look at everything anew."""
        for known in (self._movable, self._rooms, self._views):
            known.clear()

    def movable(self, name: str) -> list[Movable]:
        """Who may be moved from a node."""
        node = self._view.nodes.get(name)
        if name not in self._movable:
            self._movable[name] = self._may_move(node) if node is not None else []
        return self._movable[name]

    def _may_move(self, node: NodeState) -> list[Movable]:
        return [one for one in self._movable_pods.movable(node) if one.name not in self._kept]

    def near(self, seat: Seat) -> Generator[int, None, list[str]]:
        """The best nodes that have room as they are."""
        known = seat.likeness
        if known not in self._rooms:
            ranked = yield from (ranking(self._view, seat.shape) if seat.ask is not None else self._by_name())
            found: list[str] = []
            for number, (_, name) in enumerate(ranked):
                if self._has_room(seat, name):
                    found.append(name)
                if len(found) == NEAR:
                    break
                if number % STEP == 0:
                    yield STEP * LOOK
            self._rooms[known] = found
        return self._rooms[known]

    def _by_name(self) -> Generator[int, None, list[Entry]]:
        yield PIECE
        return sorted((0, node.name) for node in self._view.nodes.values() if node.seen)

    def _has_room(self, seat: Seat, name: str) -> bool:
        """Whether it may go there, as far as anybody but us would hold it against the node."""
        node = self._view.nodes.get(name)
        if node is None or barred(seat, node, self._view.ignored) or not seat.constraints.admits(node):
            return False
        return not short_of(node, seat.requests, self._view.ignored)

    def view(self, seat: Seat) -> Generator[int, None, View]:
        """What stands in its way on all nodes."""
        known = seat.likeness
        if known not in self._views:
            found: list[Outlook] = []
            for node in tuple(self._view.nodes.values()):
                seen = outlook(seat, node, self._may_move(node), self._view.ignored)
                if seen is not None:
                    found.append(seen)
                yield TRY
            yield PIECE
            useful = nsmallest(AROUND, (seen for seen in found if not seen.stuck), key=attrgetter("moves", "node"))
            yield PIECE
            self._views[known] = View(min(found, key=attrgetter("stuck", "moves", "node"), default=None), useful)
        return self._views[known]

"""How many members of each kind the nodes would take if some pods were gone: told fast, and never too few of one kind.

For members that are all alike and ask single GPUs, whole ones or none, that says whether they fit. For others it says
when they do not.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence

from extender.engine.planning.attempt import STEP, TRY, ClusterView
from extender.engine.planning.trial import EquivalenceClass, group, is_puzzle
from extender.engine.planning.what_if import Gone, WhatIfNodes
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Seat
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.books import NodeBooks
from protos.contract.signature import Signature

COUNTED = 2
"""What it costs to look up a node's room, in `attempt.LOOK`s."""
Room = tuple[int, ...]
"""Members that a node takes, of each kind if it took no other."""


class CapacityBound:
    """The room of all nodes for some members."""

    def __init__(self, view: ClusterView, cleared: WhatIfNodes, seats: Sequence[Seat]) -> None:
        self._view, self._cleared = view, cleared
        found: dict[Hashable, EquivalenceClass] = {}
        group(seats, view.ignored, found)
        self._eq_classes = list(found.values())
        self._known: dict[tuple[str, frozenset[str]], Room] = {}
        self._times: dict[tuple[PodAsk, Signature], int] = {}
        """How often an ask goes onto GPUs of which that is taken."""
        self._needed = tuple(eq_class.size for eq_class in self._eq_classes)
        self._before: list[int] | None = None
        """Room for each kind while nobody is gone."""

    @property
    def exact(self) -> bool:
        """Whether members fit if there is room for so many."""
        return len(self._eq_classes) == 1 and not is_puzzle(self._eq_classes[0].ask)

    def room(self, name: str, gone: frozenset[str]) -> Generator[int, None, Room]:
        """What the node takes without these pods."""
        found = self._known.get((name, gone))
        if found is None:
            node = self._view.nodes.get(name)
            found = (0,) * len(self._eq_classes)
            if node is not None and node.seen:
                twin = self._cleared.without(node, gone)
                found = tuple([self._takes(eq_class, twin) for eq_class in self._eq_classes])
                yield (1 + sum(found)) * TRY
            self._known[name, gone] = found
        return found

    def _takes(self, eq_class: EquivalenceClass, node: NodeState) -> int:
        """How many members of the lot go there, if nobody else does."""
        if eq_class.barred(node) or (eq_class.ask is not None and (node.problem or node.books is None)):
            return 0
        most = eq_class.times(eq_class.size, node.books, node.allocatable, node.used)
        if eq_class.ask is None or node.books is None or not most:
            return most
        if eq_class.ask.selection.uuids:
            return _times(eq_class.ask, node.books, most)
        key = eq_class.ask, node.books.signature()
        if key not in self._times:
            self._times[key] = _times(eq_class.ask, node.books, eq_class.size)
        return min(most, self._times[key])

    def suffices(self, gone: Gone) -> Generator[int, None, bool]:
        """Whether there is room for so many of each kind once these pods are gone, by node."""
        if self._before is None:
            self._before = [0] * len(self._eq_classes)
            for name in list(self._view.nodes):
                _add(self._before, (yield from self.room(name, NOBODY)))
        total = list(self._before)
        for number, (name, uids) in enumerate(gone.items()):
            _add(total, self._known.get((name, uids)) or (yield from self.room(name, uids)))
            _add(total, self._known.get((name, NOBODY)) or (yield from self.room(name, NOBODY)), -1)
            if number % STEP == 0:
                yield STEP * COUNTED
        return all(have >= need for have, need in zip(total, self._needed, strict=True))

    def useful(self, gone: Gone) -> Generator[int, None, set[str]]:
        """The nodes that take more members once these pods are gone."""
        found = set()
        for number, (name, uids) in enumerate(gone.items()):
            before = yield from self.room(name, NOBODY)
            after = yield from self.room(name, uids)
            if any(now > then for now, then in zip(after, before, strict=True)):
                found.add(name)
            if number % STEP == 0:
                yield STEP * COUNTED
        return found

    def taking(self, gone: Gone) -> Generator[int, None, dict[str, NodeState]]:
        """The nodes that take anybody then, as they would be."""
        found: dict[str, NodeState] = {}
        for number, (name, node) in enumerate(list(self._view.nodes.items())):
            if any((yield from self.room(name, gone.get(name, NOBODY)))):
                found[name] = self._cleared.without(node, gone.get(name, NOBODY))
            if number % STEP == 0:
                yield STEP * COUNTED
        return found


NOBODY: frozenset[str] = frozenset()


def _add(total: list[int], room: Room, sign: int = 1) -> None:
    for number, count in enumerate(room):
        total[number] += sign * count


def _times(ask: PodAsk, books: NodeBooks, most: int) -> int:
    """How often the ask goes onto these GPUs one after the other, `most` at most."""
    twin = books.copy()
    for count in range(most):
        choice = choose.choose(ask, twin)
        if choice is None:
            return count
        twin.hold(f"{count}", ask, choice.charges)
    return most

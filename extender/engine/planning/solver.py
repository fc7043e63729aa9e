"""The solver: whether pending pods fit once some pods are gone, and where.

Preemption, reclaim and backfill ask it with ever other sets of pods that are gone. An upper bound answers most of that:
how many members of each class each node takes if it takes no others. If all members are alike and each asks a single
GPU, whole GPUs or none, the bound is exact. Otherwise a plan on snapshots of the nodes decides. Members that are alike
and must get GPUs of one model of several are one class for each model, of which one must fit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable
from itertools import repeat

import msgspec

from extender.engine.placement.indexes import Indexes
from extender.engine.planning.attempt import PIECE, STEP, TRY, ClusterView
from extender.engine.planning.one_model import restricted, undecided
from extender.engine.planning.plan import Placement, Plan
from extender.engine.planning.snapshot import fill
from extender.engine.planning.trial import EquivalenceClass, group, is_puzzle
from extender.engine.planning.what_if import Gone, WhatIfNodes
from extender.engine.state.intree import Amounts, short_of
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Seat
from protos.contract.ask import PodAsk
from protos.contract.signature import Signature

COUNTED = 2
"""Cost of looking up how many members a node takes."""
NONE: frozenset[str] = frozenset()
Room = tuple[int, ...]
"""How many members of each class a node takes if it takes no others."""


class Wanted(msgspec.Struct, frozen=True):
    """What the solver looks for: places for pods, and resources that must be free beside them."""

    seats: tuple[Seat, ...]
    free: Amounts = ()


def reopen(view: ClusterView, seats: Iterable[Seat]) -> tuple[Seat, ...]:
    """The seats, allowed again on nodes that kube-scheduler may have refused only for a lack of free resources."""
    excluded: dict[tuple[int, Amounts], int] = {}
    reopened = []
    for seat in seats:
        key = seat.excluded, seat.requests
        if key not in excluded:
            excluded[key] = _excluded(view, *key) if seat.excluded else 0
        reopened.append(msgspec.structs.replace(seat, excluded=excluded[key]))
    return tuple(reopened)


def _excluded(view: ClusterView, excluded: int, requests: Amounts) -> int:
    for node in view.nodes.values():
        if excluded >> node.number & 1 and short_of(node, requests, view.ignored):
            excluded &= ~(1 << node.number)
    return excluded


def least_prefix(fits: Callable[[int], Generator[int, None, bool]], few: int, many: int) -> Generator[int, None, int]:
    """How many of the first pods must be gone at least; `few` is known not to suffice, `many` to suffice."""
    while few + 1 < many:
        middle = (few + many) // 2
        if (yield from fits(middle)):
            many = middle
        else:
            few = middle
    return many


class Solver:
    """Answers for pending pods on one set of snapshots, with different pods gone each time."""

    def __init__(self, view: ClusterView, what_if: WhatIfNodes, wanted: Wanted) -> None:
        self._view, self._what_if, self._wanted = view, what_if, wanted
        classes: dict[Hashable, EquivalenceClass] = {}
        group(wanted.seats, view.ignored, classes)
        self._classes = list(classes.values())
        self._exact = len(self._classes) == 1 and not is_puzzle(self._classes[0].ask) and not wanted.free
        """Whether the pods fit if the bound says so."""
        asks = undecided(view, wanted.seats) if self._exact else []
        self._either = bool(asks)
        """Whether the classes are the same members, for each model."""
        if asks:
            chosen = [{asks[0]: model} for model in view.models(asks[0].selection)]
            seats = [restricted(wanted.seats[0], choice) for choice in chosen]
            self._classes = [EquivalenceClass(seat, view.ignored, len(wanted.seats)) for seat in seats]
        self._rooms: dict[tuple[str, frozenset[str]], Room] = {}
        self._times: dict[tuple[PodAsk, Signature], int] = {}
        """How often an ask fits on GPUs in this state."""
        self._before: list[int] | None = None
        """Members of each class that all nodes take while no pod is gone."""

    def fits(self, gone: Gone) -> Generator[int, None, bool]:
        """Whether all pods have a place once these are gone."""
        if not (yield from self.suffices(gone)):
            return False
        return self._exact or (yield from self.place(gone)) is not None

    def suffices(self, gone: Gone) -> Generator[int, None, bool]:
        """Whether the nodes take enough members of each class, or of either, once these pods are gone.

        If not, the pods surely do not fit.
        """
        if self._before is None:
            self._before = [0] * len(self._classes)
            for name in list(self._view.nodes):
                _add(self._before, (yield from self._room(name, NONE)))
        total = list(self._before)
        for number, (name, uids) in enumerate(gone.items()):
            _add(total, self._rooms.get((name, uids)) or (yield from self._room(name, uids)))
            _add(total, self._rooms.get((name, NONE)) or (yield from self._room(name, NONE)), -1)
            if number % STEP == 0:
                yield STEP * COUNTED
        enough = (have >= eq_class.size for have, eq_class in zip(total, self._classes, strict=True))
        return any(enough) if self._either else all(enough)

    def place(self, gone: Gone) -> Generator[int, None, Placement | None]:
        """Places for all pods once these are gone, as a plan chooses them."""
        nodes: dict[str, NodeState] = {}
        for number, (name, node) in enumerate(list(self._view.nodes.items())):
            if any((yield from self._room(name, gone.get(name, NONE)))):
                nodes[name] = self._what_if.without(node, gone.get(name, NONE))
            if number % STEP == 0:
                yield STEP * COUNTED
        yield PIECE
        indexes = Indexes(nodes, self._view.indexes.scorer)
        view = msgspec.structs.replace(self._view, nodes=nodes, indexes=indexes)
        plan = Plan(view, self._wanted.seats, self._wanted.seats, self._wanted.free)
        yield PIECE
        outcome = yield from plan.whole()
        return outcome if isinstance(outcome, Placement) else None

    def useful(self, gone: Gone) -> Generator[int, None, set[str]]:
        """The nodes that take more members once these pods are gone."""
        useful = set()
        for number, (name, uids) in enumerate(gone.items()):
            before = yield from self._room(name, NONE)
            after = yield from self._room(name, uids)
            if any(now > then for now, then in zip(after, before, strict=True)):
                useful.add(name)
            if number % STEP == 0:
                yield STEP * COUNTED
        return useful

    # -- the bound

    def _room(self, name: str, gone: frozenset[str]) -> Generator[int, None, Room]:
        room = self._rooms.get((name, gone))
        if room is None:
            node = self._view.nodes.get(name)
            room = (0,) * len(self._classes)
            if node is not None and node.seen:
                without = self._what_if.without(node, gone)
                room = tuple([self._takes(eq_class, without) for eq_class in self._classes])
                yield (1 + sum(room)) * TRY
            self._rooms[name, gone] = room
        return room

    def _takes(self, eq_class: EquivalenceClass, node: NodeState) -> int:
        """How many members of the class fit on the node if no others go there."""
        ask, books = eq_class.ask, node.books
        if eq_class.barred(node) or (ask is not None and (node.problem or books is None)):
            return 0
        most = eq_class.times(eq_class.size, node)
        if ask is None or books is None or not most:
            return most
        if ask.selection.uuids:
            return fill(books.copy(), repeat(ask, most))
        key = ask, books.signature()
        if key not in self._times:
            self._times[key] = fill(books.copy(), repeat(ask, eq_class.size))
        return min(most, self._times[key])


def _add(total: list[int], room: Room, sign: int = 1) -> None:
    for number, count in enumerate(room):
        total[number] += sign * count

"""Nodes close together that have room for a whole gang: those of one rack if there is one, else of one zone, and so on.

Labels of the nodes say where they are, by keys from near to far. Of the domains (nodes with the same value) that have
room for all, at the nearest level where there is one, the one with the least room to spare is taken, so that others
stay whole for larger gangs; within it as few nearer domains as suffice. Room is reckoned by sums, so the gang may not
fit there after all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Generator, Hashable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from extender.engine.planning.attempt import LISTED, LOOK, PIECE, STEP, ClusterView, ranking
from extender.engine.planning.trial import EquivalenceClass, group
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Seat
from protos.contract.ask import ContainerAsk, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.signature import Signature

KINDS = 16
"""Different kinds of members for which room is reckoned; a gang with more of them is placed anywhere."""
RECKONED = 2
"""What it costs to reckon the room of a node for one kind of members, in LOOKs."""

UNLIMITED = 2**20
"""Members that something has room for that they do not take."""

Room = tuple[int, ...]
"""How many members go there at most, of each kind."""
Place = tuple[NodeState, Room]


class Domain(NamedTuple):
    """Nodes that lie together."""

    places: Sequence[Place]
    room: Room
    size: int
    """Sum of the room."""
    members: int
    """How many of the gang are there already."""

    def covers(self, needed: Room) -> bool:
        return all(room >= need for room, need in zip(self.room, needed, strict=True))


def nearby(
    view: ClusterView, labels: Sequence[str], seats: Sequence[Seat], beside: Sequence[str] = ()
) -> Generator[int, None, frozenset[str] | None]:
    """Names of the nodes among which the gang is to be placed first, None if any will do.

    `labels`: their keys, from near to far; `beside`: the nodes of members that have a place already, a name for each.
    """
    levels: list[str] = []
    for key in labels:
        if (yield from _differs(view, key)):
            levels.append(key)
    eq_classes = _eq_classes(view, seats) if levels and len(seats) + len(beside) > 1 else []
    if not 0 < len(eq_classes) <= KINDS:
        return None
    yield PIECE
    site = _Site(tuple(eq_class.size for eq_class in eq_classes), Counter(beside))
    places = yield from _reckoned(view, eq_classes, site.known)
    found = yield from site.narrowed(places, levels)
    yield PIECE
    return None if len(found) == len(places) else frozenset(node.name for node, _ in found)


def _differs(view: ClusterView, key: str) -> Generator[int, None, bool]:
    """Whether nodes have different values of this label, or some have none."""
    nodes, found = iter(tuple(view.nodes.values())), set[str | None]()
    while some := list(islice(nodes, LISTED)):
        found.update([node.labels.get(key) for node in some])
        yield PIECE
        if len(found) > 1:
            return True
    return False


def _eq_classes(view: ClusterView, seats: Sequence[Seat]) -> list[EquivalenceClass]:
    """Members that are alike, whatever kube-scheduler refuses one or the other of them."""
    found: dict[Hashable, EquivalenceClass] = {}
    group(seats, view.ignored, found, attrgetter("ask", "requests", "constraints"))
    for eq_class in found.values():
        eq_class.excluded = 0
    return list(found.values())


def _reckoned(
    view: ClusterView, eq_classes: Sequence[EquivalenceClass], members: Container[str]
) -> Generator[int, None, list[Place]]:
    """The nodes with room for somebody, and those where members are."""
    fitting: list[Container[str]] = []
    for eq_class in eq_classes:
        if eq_class.ask is None:
            fitting.append(view.nodes)
            continue
        fitting.append({name for _, name in (yield from ranking(view, eq_class.shape))})
    memos: list[dict[Signature, int]] = [{} for _ in eq_classes]
    nodes, found = iter(tuple(view.nodes.values())), []
    while some := list(islice(nodes, STEP)):
        for node in some:
            each = zip(eq_classes, fitting, memos, strict=True)
            room = tuple([_room(eq_class, node, known) if node.name in fit else 0 for eq_class, fit, known in each])
            if any(room) or node.name in members:
                found.append((node, room))
        yield RECKONED * len(eq_classes) * STEP * LOOK
    return found


def _room(eq_class: EquivalenceClass, node: NodeState, known: dict[Signature, int]) -> int:
    """How many members of the lot go at most onto a node that has GPUs for one."""
    if not node.seen or eq_class.barred(node):
        return 0
    most = eq_class.size
    if eq_class.ask is not None and node.books is not None:
        most = min(most, _by_gpus(eq_class.ask, node.books, known))
    return eq_class.times(most, node)


def _by_gpus(ask: PodAsk, books: NodeBooks, known: dict[Signature, int]) -> int:
    """The same by GPUs alone; `known` are the states of nodes for which it was reckoned already."""
    signature = books.signature()
    found = known.get(signature)
    if found is None:
        found = known[signature] = min(_times(container, books) // container.gpus for container in ask.containers)
    return found


def _times(ask: ContainerAsk, books: NodeBooks) -> int:
    """How often the GPUs together have at most what the container takes of one."""
    gpus = [book for book in books.gpus.values() if not book.wholes]
    if not gpus:
        return 0
    demand = books.demand(ask, gpus[0].gpu)
    if demand is None or demand.whole:
        return sum([not book.sharers for book in gpus])
    mem, slices, per_gpu = demand.mem, demand.slices, books.inventory.slices_per_gpu
    by_mem = sum([(book.gpu.mem - book.mem_used) // mem for book in gpus]) if mem else UNLIMITED
    return min(by_mem, sum([(per_gpu - book.slices_used) // slices for book in gpus])) if slices else by_mem


class _Site(NamedTuple):
    """Where the gang shall go."""

    needed: Room
    known: Mapping[str, int]
    """How many members each node has already."""

    def narrowed(self, places: Sequence[Place], levels: Sequence[str]) -> Generator[int, None, Sequence[Place]]:
        """Those of the nodes that lie closest together and have room for all."""
        if not self._together(places).covers(self.needed):
            return places
        for key in reversed(levels if self.known else ()):
            yield PIECE
            home = max(self._domains(places, key), key=lambda domain: domain.members)
            if not home.members or not home.covers(self.needed):
                break
            places = home.places
        for depth, key in enumerate(levels):
            yield PIECE
            fitting = [domain for domain in self._domains(places, key) if domain.covers(self.needed)]
            if fitting:
                places, levels = min(fitting, key=lambda domain: domain.size).places, levels[:depth]
                break
        for key in reversed(levels):
            yield PIECE
            places = self._fewest(self._domains(places, key))
        return places

    def _domains(self, places: Sequence[Place], key: str) -> list[Domain]:
        """The nodes by the label's value, in its order; a node that has no such label is alone."""
        found: dict[tuple[str, str], list[Place]] = {}
        for place in places:
            value = place[0].labels.get(key)
            found.setdefault(("", place[0].name) if value is None else (value, ""), []).append(place)
        return [self._together(found[value]) for value in sorted(found)]

    def _together(self, places: Sequence[Place]) -> Domain:
        room = tuple(map(sum, zip(*(room for _, room in places), strict=True))) or (0,) * len(self.needed)
        members = sum(self.known.get(node.name, 0) for node, _ in places) if self.known else 0
        return Domain(places, room, sum(room), members)

    def _fewest(self, left: list[Domain]) -> Sequence[Place]:
        """The nodes of few domains that have room for all: the largest, then the smallest that has the rest."""
        left.sort(key=lambda domain: (-domain.members, -domain.size))
        needed = self.needed
        taken: list[Place] = []
        while left:
            total = sum(needed)
            last = [domain for domain in left if domain.size >= total and domain.covers(needed)]
            if last:
                taken += min(last, key=lambda domain: (-domain.members, domain.size)).places
                break
            domain = left.pop(0)
            taken += domain.places
            needed = tuple(max(0, need - room) for need, room in zip(needed, domain.room, strict=True))
        return taken

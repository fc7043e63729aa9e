"""Nodes close together that have room for a whole gang: of one rack if possible, else of one zone, and so on.

Labels of nodes say where they are, by keys from near to far. Nodes with the same value form a domain. At the nearest
level where domains have room for the gang, the one with the least room to spare is taken, so that others stay whole for
larger gangs. Within it as few nearer domains as suffice are taken. Room is computed as sums, so the gang may not fit
there after all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Generator, Hashable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from extender.engine.planning.attempt import LISTED, LOOK, PIECE, STEP, ClusterView, batched, ranking
from extender.engine.planning.trial import EquivalenceClass, group
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Seat
from protos.contract.ask import ContainerAsk, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook
from protos.contract.signature import Signature

KINDS = 16
"""Most classes of members for which room is computed; a gang with more of them is placed anywhere."""
COMPUTED = 2
"""Cost of computing the room of a node for one class, in LOOKs."""

UNLIMITED = 2**20
"""Room in members if they need nothing of a resource."""

Room = tuple[int, ...]
"""How many members of each class fit at most."""
Place = tuple[NodeState, Room]


class Domain(NamedTuple):
    """Nodes that lie together."""

    places: Sequence[Place]
    room: Room
    size: int
    """Sum of the room."""
    members: int
    """How many members of the gang are there already."""

    def covers(self, needed: Room) -> bool:
        return all(room >= need for room, need in zip(self.room, needed, strict=True))


def nearby(
    view: ClusterView, labels: Sequence[str], seats: Sequence[Seat], beside: Sequence[str] = ()
) -> Generator[int, None, frozenset[str] | None]:
    """Names of the nodes on which the gang is tried first, None if all nodes are equally close.

    `labels`: keys, from near to far; `beside`: for each member that has a place already, the name of its node.
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
    places = yield from _with_room(view, eq_classes, site.members)
    narrowed = yield from site.narrowed(places, levels)
    yield PIECE
    return None if len(narrowed) == len(places) else frozenset(node.name for node, _ in narrowed)


def _differs(view: ClusterView, key: str) -> Generator[int, None, bool]:
    """Whether nodes have different values of this label, or some have none."""
    values = set[str | None]()
    for nodes in batched(tuple(view.nodes.values()), LISTED):
        values.update([node.labels.get(key) for node in nodes])
        yield PIECE
        if len(values) > 1:
            return True
    return False


def _eq_classes(view: ClusterView, seats: Sequence[Seat]) -> list[EquivalenceClass]:
    """Classes of members, whatever nodes kube-scheduler refused to some of them."""
    classes: dict[Hashable, EquivalenceClass] = {}
    group(seats, view.ignored, classes, attrgetter("ask", "requests", "constraints"))
    for eq_class in classes.values():
        eq_class.excluded = 0
    return list(classes.values())


def _with_room(
    view: ClusterView, eq_classes: Sequence[EquivalenceClass], members: Container[str]
) -> Generator[int, None, list[Place]]:
    """The nodes with room for any member, and the nodes where members are."""
    fitting: list[Container[str]] = []
    for eq_class in eq_classes:
        if eq_class.ask is None:
            fitting.append(view.nodes)
            continue
        fitting.append({name for _, name in (yield from ranking(view, eq_class.shape))})
    memos: list[dict[Signature, int]] = [{} for _ in eq_classes]
    places = []
    for nodes in batched(tuple(view.nodes.values())):
        for node in nodes:
            each = zip(eq_classes, fitting, memos, strict=True)
            room = tuple([_room(eq_class, node, memo) if node.name in fit else 0 for eq_class, fit, memo in each])
            if any(room) or node.name in members:
                places.append((node, room))
        yield COMPUTED * len(eq_classes) * STEP * LOOK
    return places


def _room(eq_class: EquivalenceClass, node: NodeState, memo: dict[Signature, int]) -> int:
    """How many members of the class fit at most on a node that has GPUs for one."""
    if not node.seen or eq_class.barred(node):
        return 0
    most = eq_class.size
    if eq_class.ask is not None and node.books is not None:
        most = min(most, _by_gpus(eq_class.ask, node.books, memo))
    return eq_class.times(most, node)


def _by_gpus(ask: PodAsk, books: NodeBooks, memo: dict[Signature, int]) -> int:
    """The same by GPUs alone, remembered by the state of the node."""
    signature = books.signature()
    room = memo.get(signature)
    if room is None:
        room = memo[signature] = min(_times(container, books) // container.gpus for container in ask.containers)
    return room


def _times(ask: ContainerAsk, books: NodeBooks) -> int:
    """How often, at most, the GPUs together have what the container takes of one."""
    if books.profiles:
        return sum([_on_gpu(ask, book, books) for book in books.gpus.values() if book.offered])
    gpus = [book for book in books.gpus.values() if not book.wholes]
    if not gpus:
        return 0
    demand = books.demand(ask, gpus[0].gpu)
    if demand is None or demand.whole:
        return sum([not book.sharers for book in gpus])
    mem, slices, per_gpu = demand.mem, demand.slices, books.inventory.slices_per_gpu
    by_mem = sum([(book.gpu.mem - book.mem_used) // mem for book in gpus]) if mem else UNLIMITED
    return min(by_mem, sum([(per_gpu - book.slices_used) // slices for book in gpus])) if slices else by_mem


def _on_gpu(ask: ContainerAsk, book: GpuBook, books: NodeBooks) -> int:
    """How often one GPU, or MIG instance, has what the container takes of one."""
    demand = books.demand(ask, book.gpu)
    if demand is None or not book.fits(demand):
        return 0
    if demand.whole:
        return 1
    free = (book.mem_free, demand.mem), (book.slices_free, demand.slices)
    return min([left // part for left, part in free if part], default=UNLIMITED)


class _Site(NamedTuple):
    """What the gang needs, and where its members are."""

    needed: Room
    members: Mapping[str, int]
    """How many members each node has already."""

    def narrowed(self, places: Sequence[Place], levels: Sequence[str]) -> Generator[int, None, Sequence[Place]]:
        """The nodes that lie closest together and have room for all."""
        if not self._together(places).covers(self.needed):
            return places
        for key in reversed(levels if self.members else ()):
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
        """The domains by this label, in the order of its values; a node without the label is alone."""
        domains: dict[tuple[str, str], list[Place]] = {}
        for place in places:
            value = place[0].labels.get(key)
            domains.setdefault(("", place[0].name) if value is None else (value, ""), []).append(place)
        return [self._together(domains[value]) for value in sorted(domains)]

    def _together(self, places: Sequence[Place]) -> Domain:
        room = tuple(map(sum, zip(*(room for _, room in places), strict=True))) or (0,) * len(self.needed)
        members = sum(self.members.get(node.name, 0) for node, _ in places) if self.members else 0
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

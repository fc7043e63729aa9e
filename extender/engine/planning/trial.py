"""Trial copies of nodes: members are put on them to see whether all fit, and the ledger knows nothing of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter

from extender.engine.placement.score import Scorer, Seated
from extender.engine.placement.seats import UNTOUCHED
from extender.engine.planning.backfill_guard import BackfillGuard
from extender.engine.state.apart import Spread
from extender.engine.state.intree import counted, lacking
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Assignment, Seat
from extender.engine.types.amounts import add
from protos.contract import choose
from protos.contract.allocation import Share
from protos.contract.ask import Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.choose import Choice
from protos.contract.gpu_book import GpuBook
from protos.contract.signature import Signature

REFUSED = "refused by kube-scheduler"
UNSUITED = "tainted or not selected"
KEPT = "reserved for workloads before it in its queue"
APART = "of members that must be apart"
UNEVEN = "of members that must be spread"


Found = tuple[Choice, tuple[str, ...], Seated]
"""GPUs, the UUIDs of the node that was looked at, in index order, and how a member with these sits there."""


def is_puzzle(ask: PodAsk | None) -> bool:
    """Whether it decides how many such members go onto a node which of its GPUs each of them gets."""
    return ask is not None and len(ask.containers) == 1 and ask.containers[0].gpus > 1 and not ask.containers[0].whole


class Choices:
    """The GPUs that members of one shape get; nodes in the same state give the same, whatever their names."""

    def __init__(self, ask: PodAsk, scorer: Scorer, *, evenly: bool = False) -> None:
        """`evenly`: where it is a puzzle, those GPUs on which the most of them fit, rather than `choose`'s."""
        self._ask, self._scorer = ask, scorer
        free = ask.selection.link != "nvlink" and not ask.selection.numa_local
        self._choose = _evenly if evenly and free and is_puzzle(ask) else choose.choose
        self._known: dict[Signature, Found | None] = {}

    def seated(self, books: NodeBooks) -> Seated | None:
        """How one more sits there, None if it does not fit."""
        found = self._found(books)
        return None if found is None else found[2]

    def of(self, books: NodeBooks) -> Choice | None:
        found = self._found(books)
        if found is None:
            return None
        choice, uuids, _ = found
        here = dict(zip(uuids, books.gpus, strict=True))
        shares = {
            name: tuple([Share(here[s.uuid], s.index, s.mem, s.slices, s.whole) for s in given])
            for name, given in choice.shares.items()
        }
        return Choice(shares, {here[uuid]: demand for uuid, demand in choice.charges.items()})

    def forget(self) -> None:
        """Nothing is remembered."""
        self._known.clear()

    def _found(self, books: NodeBooks) -> Found | None:
        if self._ask.selection.uuids:
            return self._look(books)
        signature = books.signature()
        try:
            return self._known[signature]
        except KeyError:
            found = self._known[signature] = self._look(books)
            return found

    def _look(self, books: NodeBooks) -> Found | None:
        choice = self._choose(self._ask, books)
        if choice is None:
            return None
        sits = self._scorer.seated(choice, books, spread=self._ask.selection.spread)
        return choice, tuple(books.gpus), sits


def _evenly(ask: PodAsk, books: NodeBooks) -> Choice | None:
    """The GPUs on which the most members of this shape fit: then the most fit on the node, each on several GPUs."""
    container = ask.containers[0]
    room: list[tuple[int, int, GpuBook, Demand]] = []
    for book in books.eligible(ask.selection) if books.inventory.state == "ready" else ():
        demand = books.demand(container, book.gpu)
        if demand is not None and book.fits(demand):
            free = (book.mem_free, demand.mem), (book.slices_free, demand.slices)
            room.append((-min(left // part for left, part in free if part), book.gpu.index, book, demand))
    if len(room) < container.gpus:
        return None
    chosen = sorted(sorted(room)[: container.gpus], key=itemgetter(1))
    shares = tuple(Share(book.gpu.uuid, index, demand.mem, demand.slices) for _, index, book, demand in chosen)
    return Choice({container.name: shares}, {book.gpu.uuid: demand for *_, book, demand in chosen})


class EquivalenceClass:
    """Members that ask the same and may go to the same nodes; `waiting` are those without a place."""

    def __init__(self, like: Seat, ignored: Collection[str]) -> None:
        self.shape = like.shape
        self.ask, self.constraints, self.excluded = like.ask, like.constraints, like.excluded
        self.choices: Choices | None = None
        self.weight = len(like.ask.containers) if like.ask else 1
        """Containers for which GPUs must be found."""
        self.size = 0
        self.each: int | None = None
        """So many of them go to one node at most, where they must be spread."""
        self.waiting: deque[Seat] = deque()
        self.passed: Counter[str] = Counter()
        """Why nodes were passed over on which there are GPUs for it: words → nodes."""
        self.requests, self.amounts = like.requests, counted(like.requests)
        self._beside = counted(like.requests, ignored)
        self.hardness = _hardness(like)
        """Which lot is placed first: less is harder."""

    def add(self, seat: Seat) -> None:
        self.size += 1
        self.waiting.append(seat)

    def spread_over(self, nodes: int) -> None:
        """As kube-scheduler will have it if these nodes, all they may go to, get nearly as many each."""
        if (spread := self.constraints.spread) is not None:
            self.each = max(spread.skew, -(-self.size // max(1, nodes)))

    def barred(self, node: NodeState) -> str:
        """Why its members may not go to this node whatever is free there; "" if they may."""
        if self.excluded >> node.number & 1:
            return REFUSED
        return "" if self.constraints.admits(node) else UNSUITED

    def lack(self, books: NodeBooks | None, allocatable: Mapping[str, int], used: Mapping[str, int]) -> str:
        """What there is too little of. Our own resources are counted in the books, where there are any."""
        short = lacking(self.amounts if books is None else self._beside, allocatable, used)
        return f"short of {'pod slots' if short == 'pods' else short}" if short else ""

    def times(self, most: int, books: NodeBooks | None, allocatable: Mapping[str, int], used: Mapping[str, int]) -> int:
        """For how many members, `most` at most, there is enough of everything but the GPUs in the books."""
        most = min(most, 1) if self.constraints.apart else most
        for key, amount in self.amounts if books is None else self._beside:
            free = allocatable.get(key, 0) - used.get(key, 0)
            if free < most * amount:
                most = max(0, free // amount)
        return most


def group(
    seats: Iterable[Seat],
    ignored: Collection[str],
    found: dict[Hashable, EquivalenceClass],
    key: Callable[[Seat], Hashable] = attrgetter("likeness"),
) -> None:
    """Add members to their lots: those that are alike by this key are one."""
    for seat in seats:
        like = key(seat)
        eq_class = found.get(like)
        if eq_class is None:
            eq_class = found[like] = EquivalenceClass(seat, ignored)
        eq_class.add(seat)


def _hardness(seat: Seat) -> tuple[int, ...]:
    """Most whole GPUs, most GPUs, most of one GPU, scarce things, few nodes, much CPU and memory."""
    amounts = dict(seat.requests)
    return (
        *seat.gpus,
        -sum(amount for resource, amount in seat.requests if "/" in resource),
        not seat.constraints.selective,
        -seat.excluded.bit_count(),
        -amounts.get("cpu", 0),
        -amounts.get("memory", 0),
    )


class Trial:
    """A copy of one node, and the members that were put there."""

    __slots__ = (
        "_alike", "_apart", "_kept", "_scorer", "_version", "allocatable", "books", "name", "node", "seated", "used",
    )  # fmt: skip

    def __init__(self, node: NodeState, scorer: Scorer, kept: Sequence[BackfillGuard] = ()) -> None:
        """`kept`: what is left there for others."""
        self._scorer, self._kept = scorer, [each.copy() for each in kept]
        self.node, self._version = node, node.version
        self.name = node.name
        self.allocatable = node.allocatable
        self.used = dict(node.used)
        self.books = node.books.copy() if node.books is not None else None
        self.seated: list[tuple[EquivalenceClass, Seat, Assignment]] = []
        self._apart: set[str] = set()
        self._alike: dict[Spread | None, int] = {}

    def current(self, nodes: Mapping[str, NodeState]) -> bool:
        """Whether the node is still as it was when it was copied."""
        return nodes.get(self.name) is self.node and self.node.version == self._version

    def alike(self, eq_class: EquivalenceClass) -> int:
        """How many are here from which the lot's members must be spread."""
        return self._alike.get(eq_class.constraints.spread, 0)

    def score(self, eq_class: EquivalenceClass) -> int | None:
        """How well one more of the lot's members goes here, None if not at all; any that needs no GPU scores 0."""
        points = self._points(eq_class)
        if points is None:
            return None
        lack = eq_class.lack(self.books, self.allocatable, self.used)
        if not lack and not self._apart.isdisjoint(eq_class.constraints.apart):
            lack = APART
        if not lack and eq_class.each is not None and self.alike(eq_class) >= eq_class.each:
            lack = UNEVEN
        if not lack and not all(each.admits(eq_class.ask, eq_class.requests, self.books) for each in self._kept):
            lack = KEPT
        if lack:
            eq_class.passed[lack] += 1
            return None
        return points

    def _points(self, eq_class: EquivalenceClass) -> int | None:
        if eq_class.choices is None or eq_class.ask is None:
            return 0
        if self.node.problem:
            return None
        if self.books is None:
            return UNTOUCHED if eq_class.ask.only_whole and not eq_class.ask.selection.selective else None
        seat = eq_class.choices.seated(self.books)
        if seat is None:
            return None
        return self._scorer.points(eq_class.shape, self._scorer.present(self.books, self.allocatable, self.used), seat)

    def put(self, eq_class: EquivalenceClass, seat: Seat) -> None:
        """Put a member of the lot here, after `score` said that it fits."""
        assignment = Assignment(self.name)
        if eq_class.choices is not None and eq_class.ask is not None and self.books is not None:
            choice = eq_class.choices.of(self.books)
            if choice is None:
                raise ValueError(f"{seat.uid} does not fit on {self.name}: expected a member that does")
            self.books.hold(seat.uid, eq_class.ask, choice.charges)
            assignment = Assignment(self.name, choice.charges, choice.shares)
        add(self.used, seat.requests)
        for each in self._kept:
            each.put(seat.uid, eq_class.ask, seat.requests, self.books)
        self._apart.update(eq_class.constraints.apart)
        if eq_class.each is not None:
            self._alike[eq_class.constraints.spread] = self.alike(eq_class) + 1
        self.seated.append((eq_class, seat, assignment))

"""Trials of nodes: members of a gang are placed on copies, and members that are alike are placed as one class."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from operator import attrgetter, itemgetter

from extender.engine.placement.score import Scorer, Seated
from extender.engine.placement.seats import UNTOUCHED
from extender.engine.planning.backfill_guard import BackfillGuard
from extender.engine.planning.snapshot import NodeSnapshot
from extender.engine.state.apart import Spread
from extender.engine.state.intree import counted, lacking
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Assignment, Seat
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


Known = tuple[Choice, tuple[str, ...], Seated]
"""The GPUs chosen on a node, the UUIDs of that node in index order, and what the score needs of the choice."""


def is_puzzle(ask: PodAsk | None) -> bool:
    """Whether the choice of GPUs for one member decides how many such members fit on a node."""
    if ask is None or len(ask.containers) > 1:
        return False
    container = ask.containers[0]
    return container.gpus > 1 and not (container.whole or container.profile)


class Choices:
    """The GPUs that members with one ask get, remembered by the state of the node, whatever its name."""

    def __init__(self, ask: PodAsk, scorer: Scorer, *, evenly: bool = False) -> None:
        """`evenly`: if the ask is a puzzle, choose the GPUs on which the most members fit, not those of `choose`."""
        self._ask, self._scorer = ask, scorer
        free = ask.selection.link != "nvlink" and not ask.selection.numa_local
        self._choose = _evenly if evenly and free and is_puzzle(ask) else choose.choose
        self._known: dict[Signature, Known | None] = {}

    def seated(self, books: NodeBooks) -> Seated | None:
        """What the score needs of one more member there, None if it does not fit."""
        known = self._look_up(books)
        return None if known is None else known[2]

    def of(self, books: NodeBooks) -> Choice | None:
        """The GPUs of one more member there, None if it does not fit."""
        known = self._look_up(books)
        if known is None:
            return None
        choice, uuids, _ = known
        here = dict(zip(uuids, books.gpus, strict=True))
        shares = {
            name: tuple([Share(here[s.uuid], s.index, s.mem, s.slices, s.whole) for s in given])
            for name, given in choice.shares.items()
        }
        return Choice(shares, {here[uuid]: demand for uuid, demand in choice.charges.items()})

    def forget(self) -> None:
        """Free all that is remembered."""
        self._known.clear()

    def _look_up(self, books: NodeBooks) -> Known | None:
        if self._ask.selection.uuids:
            return self._look(books)
        signature = books.signature()
        try:
            return self._known[signature]
        except KeyError:
            known = self._known[signature] = self._look(books)
            return known

    def _look(self, books: NodeBooks) -> Known | None:
        choice = self._choose(self._ask, books)
        if choice is None:
            return None
        return choice, tuple(books.gpus), self._scorer.seated(choice, books, spread=self._ask.selection.spread)


def _evenly(ask: PodAsk, books: NodeBooks) -> Choice | None:
    """The GPUs on which the most members fit; then the most members that need several GPUs fit on the node."""
    container, alike = ask.containers[0], choose.alike_only(ask, books)
    room: dict[str, list[tuple[int, int, GpuBook, Demand]]] = {}
    for book in books.eligible(ask.selection) if books.inventory.state == "ready" else ():
        demand = books.demand(container, book.gpu)
        if demand is not None and book.fits(demand):
            free = (book.mem_free, demand.mem), (book.slices_free, demand.slices)
            of_model = room.setdefault(book.gpu.model if alike else "", [])
            of_model.append((-min(left // part for left, part in free if part), book.gpu.index, book, demand))
    enough = [sorted(of_model)[: container.gpus] for of_model in room.values() if len(of_model) >= container.gpus]
    if not enough:
        return None
    chosen = sorted(min(enough), key=itemgetter(1))
    shares = tuple(Share(book.gpu.uuid, index, demand.mem, demand.slices) for _, index, book, demand in chosen)
    return Choice({container.name: shares}, {book.gpu.uuid: demand for *_, book, demand in chosen})


class EquivalenceClass:
    """Members with equal requests that may go to the same nodes; `waiting` are those without a place."""

    def __init__(self, like: Seat, ignored: Collection[str], size: int = 0) -> None:
        self.shape = like.shape
        self.ask, self.constraints, self.excluded = like.ask, like.constraints, like.excluded
        self.choices: Choices | None = None
        self.weight = len(like.ask.containers) if like.ask else 1
        """Containers that need GPUs; the work for one member is proportional to it."""
        self.size = size
        self.each: int | None = None
        """Most members on one node, if they must be spread."""
        self.waiting: deque[Seat] = deque()
        self.passed: Counter[str] = Counter()
        """Nodes with GPUs for it that were passed over, counted by reason."""
        self.requests, self.amounts = like.requests, counted(like.requests)
        self._beside = counted(like.requests, ignored)
        self.hardness = like.hardness

    def spread_over(self, nodes: int) -> None:
        """Limit the members on one node as kube-scheduler will, if these are all nodes that they may go to."""
        if (spread := self.constraints.spread) is not None:
            self.each = max(spread.skew, -(-self.size // max(1, nodes)))

    def barred(self, node: NodeState) -> str:
        """Why its members may not go to this node, whatever is free there; "" if they may."""
        if self.excluded >> node.number & 1:
            return REFUSED
        return "" if self.constraints.admits(node) else UNSUITED

    def lack(self, node: NodeState) -> str:
        """What the node has too little of. The books count our own resources, if the node has any."""
        short = lacking(self.amounts if node.books is None else self._beside, node.allocatable, node.used)
        return f"short of {'pod slots' if short == 'pods' else short}" if short else ""

    def times(self, most: int, node: NodeState) -> int:
        """How many members, at most `most`, fit on the node, GPUs apart."""
        most = min(most, 1) if self.constraints.apart else most
        allocatable, used = node.allocatable, node.used
        for key, amount in self.amounts if node.books is None else self._beside:
            free = allocatable.get(key, 0) - used.get(key, 0)
            if free < most * amount:
                most = max(0, free // amount)
        return most


def group(
    seats: Iterable[Seat],
    ignored: Collection[str],
    classes: dict[Hashable, EquivalenceClass],
    key: Callable[[Seat], Hashable] = attrgetter("likeness"),
) -> None:
    """Add members to their classes: members with equal keys are one class."""
    for seat in seats:
        likeness = key(seat)
        eq_class = classes.get(likeness)
        if eq_class is None:
            eq_class = classes[likeness] = EquivalenceClass(seat, ignored)
        eq_class.size += 1
        eq_class.waiting.append(seat)


class Trial(NodeSnapshot):
    """A copy of one node, and the members placed on it."""

    __slots__ = ("_alike", "_apart", "_guards", "_scorer", "seated")

    def __init__(self, node: NodeState, scorer: Scorer, guards: Sequence[BackfillGuard] = ()) -> None:
        """`guards`: of the reservations on this node that its members must not delay."""
        super().__init__(node)
        self._scorer, self._guards = scorer, [guard.copy() for guard in guards]
        self.seated: list[tuple[EquivalenceClass, Seat, Assignment]] = []
        self._apart: set[str] = set()
        self._alike: dict[Spread | None, int] = {}

    def alike(self, eq_class: EquivalenceClass) -> int:
        """How many members are here from which the class must be spread."""
        return self._alike.get(eq_class.constraints.spread, 0)

    def score(self, eq_class: EquivalenceClass) -> int | None:
        """The score of one more member of the class here, None if it does not fit; 0 if it needs no GPU."""
        points = self._points(eq_class)
        if points is None:
            return None
        lack = eq_class.lack(self)
        if not lack and not self._apart.isdisjoint(eq_class.constraints.apart):
            lack = APART
        if not lack and eq_class.each is not None and self.alike(eq_class) >= eq_class.each:
            lack = UNEVEN
        if not lack and not all(guard.admits(eq_class.ask, eq_class.requests, self.books) for guard in self._guards):
            lack = KEPT
        if lack:
            eq_class.passed[lack] += 1
            return None
        return points

    def _points(self, eq_class: EquivalenceClass) -> int | None:
        if eq_class.choices is None or eq_class.ask is None:
            return 0
        if self.problem:
            return None
        if self.books is None:
            return UNTOUCHED if eq_class.ask.only_whole and not eq_class.ask.selection.selective else None
        seat = eq_class.choices.seated(self.books)
        if seat is None:
            return None
        return self._scorer.points(eq_class.shape, self._scorer.present(self.books, self.allocatable, self.used), seat)

    def put(self, eq_class: EquivalenceClass, seat: Seat) -> None:
        """Place a member of the class here, after `score` said that it fits."""
        assignment = Assignment(self.name)
        if eq_class.choices is not None and self.books is not None:
            choice = eq_class.choices.of(self.books)
            if choice is None:
                raise ValueError(f"{seat.uid} does not fit on {self.name}: expected a member that does")
            assignment = Assignment(self.name, choice.charges, choice.shares)
        self.hold(seat.uid, eq_class.ask, seat.requests, assignment.charges)
        for guard in self._guards:
            guard.put(seat.uid, seat.requests, self.books)
        self._apart.update(eq_class.constraints.apart)
        if eq_class.each is not None:
            self._alike[eq_class.constraints.spread] = self.alike(eq_class) + 1
        self.seated.append((eq_class, seat, assignment))

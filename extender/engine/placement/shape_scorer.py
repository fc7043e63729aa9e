"""The standings of nodes for one shape: numbers that sort, see `ranking`.

For a pod with one GPU the standing follows from what is free on the node. It equals what `choose` and `score.terms`
give, at a small part of the cost: most pods are such, and of hundreds of shapes in turn each finds most nodes changed.
For several whole GPUs the same way says only that there are too few.
"""

from __future__ import annotations

from extender.engine.placement.gpus import thousandths
from extender.engine.placement.ranking import NOWHERE, of_room, of_score
from extender.engine.placement.score import ALONE, Present, Scorer, Seated, costs, worth
from extender.engine.placement.seats import UNTOUCHED, Seats, untouched
from extender.engine.state.node_state import NodeState
from extender.engine.types.shape import Shape
from protos.contract.ask import Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.signature import Kind

SEATING = 16
"""The cost of seating one container, in looks at a node whose state is known."""
KINDS = 16
"""Kinds of nodes of which a pod's demand is remembered."""


class ShapeScorer:
    """Computes and remembers the standings for one shape. Nodes in equal states have equal standings."""

    def __init__(self, shape: Shape, scorer: Scorer, seats: Seats) -> None:
        self._shape, self._scorer, self._seats = shape, scorer, seats
        self._single = Single(shape, shape.ask) if shape.ask is not None and is_single(shape.ask) else None
        self._profiles = (
            frozenset(each.profile for each in shape.ask.containers if each.profile) if shape.ask else frozenset[str]()
        )
        """The MIG profiles that it asks for."""
        self._known: dict[Present | None, int] = {}
        """Of nodes with inventory."""
        self.spent = 0
        """The cost of all seating so far."""

    def forget(self) -> None:
        """Forget the known standings: the mix changed, or no node is left to look at."""
        self._known.clear()

    def of(self, node: NodeState) -> int:
        """The standing of a node that exists."""
        ask, books = self._shape.ask, node.books
        if ask is None:
            return of_score(self._scorer.points(self._shape, self._scorer.node(node), ALONE))
        if node.problem:
            return NOWHERE
        if books is None:
            return of_score(UNTOUCHED) if untouched(ask, node) else NOWHERE
        if self._profiles and not self._profiles <= books.profiles:
            return NOWHERE
        if ask.selection.uuids:
            return self._seated(ask, node, books) if books.named(ask.selection) else NOWHERE
        present = self._scorer.node(node)
        standing = self._known.get(present)
        if standing is None:
            if self._single is not None and present is not None:
                standing = self._single.standing(present, books)
            if standing is None:
                standing = self._seated(ask, node, books)
            self._known[present] = standing
        return standing

    def _seated(self, ask: PodAsk, node: NodeState, books: NodeBooks) -> int:
        seated = self._seats.known(ask, books)
        if seated is None:
            seated = self._seats.find(ask, books)
            self.spent += SEATING * len(ask.containers)
        if isinstance(seated, Seated):
            return of_score(self._scorer.points(self._shape, self._scorer.node(node), seated))
        return of_room(seated)


def is_single(ask: PodAsk) -> bool:
    """Whether it requests one packed GPU, or whole GPUs, for one container and not by UUID."""
    container, wanted = ask.containers[0], ask.selection
    simple = len(ask.containers) == 1 and not (wanted.uuids or wanted.spread)
    return simple and (container.gpus == 1 or bool(container.whole))


class Single:
    """The standings of nodes for one shape of which `is_single` holds."""

    def __init__(self, shape: Shape, ask: PodAsk) -> None:
        self._shape, self._ask, self._cpu = shape, ask, shape.cpu
        self._count, self._only_whole = ask.containers[0].gpus, ask.only_whole
        self._demands: dict[Kind, Demand | None] = {}

    def standing(self, present: Present, books: NodeBooks) -> int | None:
        """The standing of a schedulable node; None if it depends on the choice of GPUs, or the pod is not served."""
        gpus = present.gpus
        try:
            demand = self._demands[gpus.kind]
        except KeyError:
            demand = self._demand(gpus.kind, books)
        if demand is None:
            return None
        mem, slices, whole = demand
        if whole:
            if gpus.idle < self._count:
                return gpus.short_of_whole
            if self._count > 1:
                return None  # their links count
            before, after = gpus.order[-1][2], 0
        else:
            for units, parts, rest in gpus.order:  # the first that fits is the one that `choose` prefers
                if units >= mem and parts >= slices:
                    before, after = rest, thousandths(units - mem, parts - slices, gpus.size, gpus.per_gpu)
                    break
            else:
                return gpus.short_of_whole if self._only_whole else gpus.short
        rates = present.usable.rates(present.cpu - self._cpu)
        now = worth(present, rates)
        left = now[0] - rates.loss(now, before, after)
        return of_score(-sum(costs(self._shape, present, gpus.total - before + after, left, 0)))

    def _demand(self, kind: Kind, books: NodeBooks) -> Demand | None:
        if len(self._demands) >= KINDS:
            self._demands.clear()
        sizes = {book.gpu.mem for book in books.gpus.values()}
        alike = books.inventory.state == "ready" and len(sizes) == 1 and books.accepts_all(self._ask.selection)
        alike = alike and not books.profiles
        gpu = next(iter(books.gpus.values())).gpu
        demand = books.demand(self._ask.containers[0], gpu) if alike else None
        if self._count > 1 and demand is not None and not demand.whole:
            demand = None
        self._demands[kind] = demand
        return demand

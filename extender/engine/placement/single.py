"""Pods with one GPU: how nodes stand for them is told by what is free there, without seating them on each node.

It is the same as `choose` and `score.terms` say, at a small part of the price. Most pods are such, and where hundreds
of shapes are asked in turn, each of them finds that most nodes have changed. Of several whole GPUs it is told so that
there are not enough.
"""

from __future__ import annotations

from extender.engine.placement.gpus import thousandths
from extender.engine.placement.ranking import of_score
from extender.engine.placement.score import Present, costs, worth
from extender.engine.types.shape import Shape
from protos.contract.ask import Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.signature import Kind

KINDS = 16
"""Kinds of nodes of which it is remembered what a pod takes there."""


def is_single(ask: PodAsk) -> bool:
    """Whether it asks for one GPU, packed, or whole ones, whatever their UUIDs."""
    container, wanted = ask.containers[0], ask.selection
    simple = len(ask.containers) == 1 and not (wanted.uuids or wanted.spread)
    return simple and (container.gpus == 1 or bool(container.whole))


class Single:
    """How nodes stand for one shape."""

    def __init__(self, shape: Shape, ask: PodAsk) -> None:
        """`ask`: the shape's, of which `is_single` holds."""
        self._shape, self._ask, self._cpu = shape, ask, shape.cpu
        self._count = ask.containers[0].gpus
        self._taken: dict[Kind, Demand | None] = {}

    def standing(self, present: Present, books: NodeBooks) -> int | None:
        """Of a node that takes new pods; None where it matters which GPUs the pod gets, or it is not served."""
        found = present.gpus
        try:
            taken = self._taken[found.kind]
        except KeyError:
            taken = self._look(found.kind, books)
        if taken is None:
            return None
        mem, slices, whole = taken
        if whole:
            if found.idle < self._count:
                return found.short_of_whole
            if self._count > 1:
                return None  # their links count
            before, after = found.order[-1][2], 0
        else:
            for units, parts, rest in found.order:  # the first that fits is the one that `choose` prefers
                if units >= mem and parts >= slices:
                    before, after = rest, thousandths(units - mem, parts - slices, found.size, found.per_gpu)
                    break
            else:
                return found.short_of_whole if self._ask.only_whole else found.short
        rates = present.usable.rates(present.cpu - self._cpu)
        now = worth(present, rates)
        left = now[0] - rates.loss(now, before, after)
        return of_score(-sum(costs(self._shape, present, found.total - before + after, left, 0)))

    def _look(self, kind: Kind, books: NodeBooks) -> Demand | None:
        if len(self._taken) >= KINDS:
            self._taken.clear()
        sizes = {book.gpu.mem for book in books.gpus.values()}
        alike = books.inventory.state == "ready" and len(sizes) == 1 and books.accepts_all(self._ask.selection)
        gpu = next(iter(books.gpus.values())).gpu
        found = books.demand(self._ask.containers[0], gpu) if alike else None
        if self._count > 1 and found is not None and not found.whole:
            found = None
        self._taken[kind] = found
        return found

"""How nodes stand for one shape of ask, as numbers that sort: see `ranking`."""

from __future__ import annotations

from extender.engine.placement.ranking import NOWHERE, of_room, of_score
from extender.engine.placement.score import ALONE, Present, Scorer, Seated
from extender.engine.placement.seats import UNTOUCHED, Seats, untouched
from extender.engine.placement.single import Single, is_single
from extender.engine.state.node_state import NodeState
from extender.engine.types.shape import Shape
from protos.contract.ask import PodAsk
from protos.contract.books import NodeBooks

SEATING = 16
"""What it costs to seat one container, in looks at a node that is like one that is known."""


class ShapeScorer:
    """Of one shape. Nodes that are alike stand alike."""

    def __init__(self, shape: Shape, scorer: Scorer, seats: Seats) -> None:
        self._shape, self._scorer, self._seats = shape, scorer, seats
        self._single = Single(shape, shape.ask) if shape.ask is not None and is_single(shape.ask) else None
        self._known: dict[Present | None, int] = {}
        """Of nodes with inventory."""
        self.spent = 0
        """What seating pods cost so far."""

    def forget(self) -> None:
        """Forget what nodes that are alike were found to be: the mix is another one, or there is nothing to look at."""
        self._known.clear()

    def of(self, node: NodeState) -> int:
        """How the node stands, which is there."""
        ask, books = self._shape.ask, node.books
        if ask is None:
            return of_score(self._scorer.points(self._shape, self._scorer.node(node), ALONE))
        if node.problem:
            return NOWHERE
        if books is None:
            return of_score(UNTOUCHED) if untouched(ask, node) else NOWHERE
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
        found = self._seats.known(ask, books)
        if found is None:
            found = self._seats.find(ask, books)
            self.spent += SEATING * len(ask.containers)
        if isinstance(found, Seated):
            return of_score(self._scorer.points(self._shape, self._scorer.node(node), found))
        return of_room(found)

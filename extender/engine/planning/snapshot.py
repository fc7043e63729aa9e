"""A copy of one node on which plans remove and place pods; the ledger does not see it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from extender.engine.state.intree import Amounts, short_of
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Assignment, Seat
from extender.engine.types.amounts import add
from protos.contract import choose
from protos.contract.ask import Demand, PodAsk
from protos.contract.books import NodeBooks


class NodeSnapshot(NodeState):
    """A node to try changes on: `books` and `used` are copies; the other fields that plans read are shared.

    `version` stays the version that `origin` had at the time of the copy. What only the ledger reads is not there.
    """

    __slots__ = ("origin",)

    def __init__(self, origin: NodeState) -> None:
        self.origin = origin
        self.name, self.number, self.version = origin.name, origin.number, origin.version
        self.seen, self.problem, self.leaving = origin.seen, origin.problem, origin.leaving
        self.labels, self.taints, self.unschedulable = origin.labels, origin.taints, origin.unschedulable
        self.allocatable, self.used = origin.allocatable, dict(origin.used)
        self.books = origin.books.copy() if origin.books is not None else None
        self.present = None

    def current(self, nodes: Mapping[str, NodeState]) -> bool:
        """Whether the node has not changed since it was copied."""
        return nodes.get(self.name) is self.origin and self.origin.version == self.version

    def remove(self, uid: str, requests: Amounts) -> None:
        """Free what a pod holds and requests."""
        add(self.used, requests, -1)
        if self.books is not None:
            self.books.release(uid)

    def hold(self, uid: str, ask: PodAsk | None, requests: Amounts, charges: Mapping[str, Demand]) -> None:
        """Count a pod's requests, and book its charges by GPU."""
        add(self.used, requests)
        if self.books is not None and ask is not None:
            self.books.hold(uid, ask, charges)

    def place(self, seat: Seat, ignored: Collection[str]) -> Assignment | None:
        """Place one pod on the GPUs that `choose` picks; None if it does not fit.

        `ignored`: resources that the books count, if the node has any.
        """
        if short_of(self, seat.requests, ignored):
            return None
        assignment = Assignment(self.name)
        if seat.ask is not None and self.books is not None:
            choice = choose.choose(seat.ask, self.books)
            if choice is None:
                return None
            assignment = Assignment(self.name, choice.charges, choice.shares)
        elif seat.ask is not None and not seat.ask.only_whole:
            return None
        self.hold(seat.uid, seat.ask, seat.requests, assignment.charges)
        return assignment


def fill(books: NodeBooks, asks: Iterable[PodAsk]) -> int:
    """Book these asks one after the other until one does not fit; return how many fitted."""
    count = 0
    for ask in asks:
        choice = choose.choose(ask, books)
        if choice is None:
            break
        books.hold(f"{count}", ask, choice.charges)
        count += 1
    return count

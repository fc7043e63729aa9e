"""A node that is kept for somebody, as it will be when that one comes: who may go there beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from extender.engine.state.intree import Amounts, counted, lacking
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Seat
from extender.engine.types.amounts import add
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.books import NodeBooks
from protos.contract.signature import Signature

Key = tuple[PodAsk, Signature, Signature, tuple[PodAsk | None, ...]]
"""What decides whether somebody goes beside others, whatever the names of the node and its GPUs."""
Known = dict[Key, bool]


class BackfillGuard:
    """One node, and those who need room there then."""

    __slots__ = ("_allocatable", "_asks", "_books", "_ignored", "_known", "_used")

    def __init__(self, then: NodeState, seats: Sequence[Seat], ignored: Collection[str], known: Known) -> None:
        """`then`: the node without those who have ended by then; `known` remembers answers, of all nodes alike."""
        self._books, self._allocatable, self._used = then.books, then.allocatable, dict(then.used)
        self._ignored, self._known = ignored if then.books is not None else (), known
        self._asks = tuple(seat.ask for seat in seats)
        for seat in seats:
            add(self._used, seat.requests)

    def copy(self) -> BackfillGuard:
        """The same, to try things on."""
        twin = BackfillGuard.__new__(BackfillGuard)
        twin._books = self._books.copy() if self._books is not None else None
        twin._allocatable, twin._used = self._allocatable, dict(self._used)
        twin._asks, twin._ignored, twin._known = self._asks, self._ignored, self._known
        return twin

    def admits(self, ask: PodAsk | None, requests: Amounts, now: NodeBooks | None) -> bool:
        """Whether there is still room for those once one more has what it would get of the node as it is `now`."""
        if lacking(counted(requests, self._ignored), self._allocatable, self._used):
            return False
        if ask is None or now is None or self._books is None:
            return True
        if ask.selection.uuids:
            return self._leaves_room(ask, now, self._books)
        key = ask, now.signature(), self._books.signature(), self._asks
        if key not in self._known:
            self._known[key] = self._leaves_room(ask, now, self._books)
        return self._known[key]

    def _leaves_room(self, ask: PodAsk, now: NodeBooks, then: NodeBooks) -> bool:
        choice = choose.choose(ask, now)
        if choice is None:
            return False
        trial = then.copy()
        trial.hold("one more", ask, choice.charges)
        if any(trial.gpus[uuid].overused for uuid in choice.charges if uuid in trial.gpus):
            return False
        for number, other in enumerate(self._asks):
            found = choose.choose(other, trial) if other is not None else None
            if found is not None and other is not None:
                trial.hold(f"{number}", other, found.charges)
            elif other is not None:
                return False
        return True

    def put(self, uid: str, ask: PodAsk | None, requests: Amounts, now: NodeBooks | None) -> None:
        """That one goes there: it has what is booked for it `now`."""
        add(self._used, requests)
        entry = now.entries.get(uid) if now is not None else None
        if self._books is not None and ask is not None and entry is not None:
            self._books.hold(uid, ask, entry.charges)


Kept = Callable[[NodeState], Sequence[BackfillGuard]]
"""What is kept on a node for those whom somebody must not delay."""


def nobody(_: NodeState) -> Sequence[BackfillGuard]:
    """Nothing is kept for anybody."""
    return ()

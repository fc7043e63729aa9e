"""For whom moves are planned: a pod by its name, or a gang; and what comes of it, for people."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from extender.engine.books.ledger import NodeState, PodState
from extender.engine.gangs.gangs import Gangs
from extender.engine.gangs.roster import Known
from extender.engine.moves.defrag import Defrag
from extender.engine.moves.relief import Hopeless, Move, Relief, indexes
from extender.engine.moves.tenants import Tenants
from extender.engine.planning.attempt import PIECE
from extender.engine.planning.seats import Seat, Spot
from extender.engine.planning.sliced import Sliced
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract.reason import Reason

READ = 200
"""Members read in one piece."""


class Asked(msgspec.Struct, frozen=True):
    """Who waits for room."""

    who: str
    """`default/train`, `gang default/resnet`."""
    seats: Iterator[Seat]
    """Read once."""


def asked(gangs: Gangs, tenants: Tenants, pod: PodState | None, key: GroupKey) -> Asked | Hopeless | None:
    """Who is meant: this pod or the gang that it is in; without a pod, the gang of this name.

    Why it needs no room, None if it is nobody.
    """
    known = gangs.of(pod.ref.uid) if pod is not None else gangs.known.get(key)
    if known is not None and (pod is None or known.gang.phase is Phase.WAITING):
        return _gang(gangs, known)
    return _single(tenants, pod) if pod is not None else None


def _gang(gangs: Gangs, known: Known) -> Asked | Hopeless:
    key = known.gang.key
    if known.gang.phase is not Phase.WAITING:
        return Hopeless(f"gang {key} does not wait for room: it is {known.gang.phase}")
    return Asked(f"gang {key}", gangs.starts.seats(known.gang))


def _single(tenants: Tenants, pod: PodState) -> Asked | Hopeless:
    if pod.state in ("binding", "bound"):
        return Hopeless(f"{pod.ref} does not wait for room: it is bound to {pod.node}")
    if isinstance(pod.asked, Reason):
        return Hopeless(str(pod.asked))
    seat = Seat(
        uid=pod.ref.uid,
        ask=pod.ask,
        requests=pod.requests,
        constraints=tenants.constraints(pod.ref.uid),
        excluded=pod.excluded,
    )
    return Asked(str(pod.ref), iter((seat,)))


class Errand(Sliced[Relief | Hopeless]):
    """A plan of moves in the making, for whom it is, and what came of it."""

    def __init__(self, asked: Asked, pods: Mapping[str, PodState], plan: Callable[[Sequence[Seat]], Defrag]) -> None:
        """`plan`: of moves that make room for these."""
        self._asked, self._plan, self._known = asked, plan, pods
        self._pods: dict[str, PodState] = {}
        """Those who wait for room."""
        super().__init__(self._go())

    def _go(self) -> Generator[int, None, Relief | Hopeless]:
        seats: list[Seat] = []
        for seat in self._asked.seats:
            seats.append(seat)
            self._pods[seat.uid] = self._known[seat.uid]
            if len(seats) % READ == 0:
                yield PIECE
        yield PIECE
        return (yield from self._plan(seats).whole())

    def told(self, nodes: Mapping[str, NodeState]) -> dict[str, Any]:
        """What came of it, as JSON, but for the rooms."""
        outcome, who = self.outcome, self._asked.who
        if not isinstance(outcome, Relief):
            return {"for": who, "fits": False, "verdict": outcome.why if outcome else "", "moves": []}
        moves = [_move(move, nodes) for move in outcome.moves]
        return {"for": who, "fits": True, "verdict": outcome.verdict(who, nodes), "moves": moves}

    def rooms(self, nodes: Mapping[str, NodeState]) -> Iterator[dict[str, Any]]:
        """Where those go for whom it is, as JSON; nothing if there is no room."""
        if isinstance(self.outcome, Relief):
            for uid, spot in self.outcome.spots.items():
                yield _room(self._pods[uid], spot, nodes)


def _move(move: Move, nodes: Mapping[str, NodeState]) -> dict[str, Any]:
    pod, to = move.pod, move.to
    namespace, _, name = pod.name.partition("/")
    return {
        "namespace": namespace,
        "name": name,
        "uid": pod.seat.uid,
        "mem": pod.mem,
        "from": {"node": pod.node, "gpus": indexes(pod.charges, nodes.get(pod.node))},
        "to": {"node": to.node, "gpus": indexes(to.charges, nodes.get(to.node))},
    }


def _room(pod: PodState, spot: Spot, nodes: Mapping[str, NodeState]) -> dict[str, Any]:
    return {
        "namespace": pod.ref.namespace,
        "name": pod.ref.name,
        "uid": pod.ref.uid,
        "node": spot.node,
        "gpus": indexes(spot.charges, nodes.get(spot.node)),
        "containers": {name: [share.uuid for share in given] for name, given in spot.shares.items()},
    }

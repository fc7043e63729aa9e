"""For whom moves are planned: a pod by its name, or a gang; and what comes of it, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from extender.engine.books.ledger import Ledger, NodeState, PodState
from extender.engine.gangs.gangs import Gangs
from extender.engine.gangs.roster import Known
from extender.engine.moves.defrag import Defrag
from extender.engine.moves.relief import Hopeless, Move, Relief, indexes
from extender.engine.moves.tenants import Tenants
from extender.engine.planning.seats import Seat, Spot
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract.reason import Reason


class Asked(msgspec.Struct, frozen=True):
    """Who waits for room."""

    who: str
    """`default/train`, `gang default/resnet`."""
    pods: Mapping[str, PodState]
    seats: tuple[Seat, ...]


def asked(ledger: Ledger, gangs: Gangs, tenants: Tenants, namespace: str, name: str) -> Asked | Hopeless | None:
    """Who has this name: a pod, the gang that a pod is in, or a gang. Why it needs no room, None if it is nobody."""
    found = [pod for pod in ledger.pods.values() if (pod.ref.namespace, pod.ref.name) == (namespace, name)]
    pod = max(found, key=lambda pod: pod.since, default=None)
    known = gangs.of(pod.ref.uid) if pod is not None else gangs.known.get(GroupKey(namespace, name))
    if known is not None and (pod is None or known.gang.phase is Phase.WAITING):
        return _gang(ledger, gangs, known)
    return _single(tenants, pod) if pod is not None else None


def _gang(ledger: Ledger, gangs: Gangs, known: Known) -> Asked | Hopeless:
    key = known.gang.key
    if known.gang.phase is not Phase.WAITING:
        return Hopeless(f"gang {key} does not wait for room: it is {known.gang.phase}")
    _, seats, _ = gangs.starts.asked(known.gang)
    return Asked(f"gang {key}", {seat.uid: ledger.pods[seat.uid] for seat in seats}, tuple(seats))


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
    return Asked(str(pod.ref), {pod.ref.uid: pod}, (seat,))


class Errand:
    """A plan of moves in the making, for whom it is, and what came of it."""

    def __init__(self, asked: Asked, plan: Defrag) -> None:
        self._asked, self._plan = asked, plan

    def advance(self) -> bool:
        """Do a slice of planning; returns whether it is done."""
        return self._plan.advance()

    def told(self, nodes: Mapping[str, NodeState]) -> dict[str, Any]:
        """What came of it, as JSON."""
        outcome, who = self._plan.outcome, self._asked.who
        if not isinstance(outcome, Relief):
            return {"for": who, "fits": False, "verdict": outcome.why if outcome else "", "moves": [], "rooms": []}
        return {
            "for": who,
            "fits": True,
            "verdict": outcome.verdict(who, nodes),
            "moves": [_move(move, nodes) for move in outcome.moves],
            "rooms": [_room(self._asked.pods[uid], spot, nodes) for uid, spot in outcome.spots.items()],
        }


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

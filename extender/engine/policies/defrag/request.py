"""A request for a plan of moves: the pod or gang that it is for, and the outcome as JSON."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from extender.engine.gangs.gangs import Gangs
from extender.engine.planning.attempt import PIECE, ClusterView
from extender.engine.planning.defrag_plan import DefragPlan, Move, NoPlan, indexes
from extender.engine.planning.one_model import choices, of_choice, undecided
from extender.engine.policies.defrag.defrag import Defrag
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment, Seat
from extender.engine.types.sliced import Sliced
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract.reason import Reason

READ = 200
"""Members read in one piece."""


class Asked(msgspec.Struct, frozen=True):
    """The pending pod or gang."""

    who: str
    """`default/train`, `gang default/resnet`."""
    seats: Iterator[Seat]
    """Read once."""


def asked(gangs: Gangs, pod: PodState | None, key: GroupKey) -> Asked | NoPlan | None:
    """This pod, or its gang if that waits; without a pod, the gang of this name.

    A NoPlan says why it needs no room; None: there is no such pod or gang.
    """
    known = gangs.roster.of(pod.ref.uid) if pod is not None else gangs.roster.known.get(key)
    if known is not None and (pod is None or known.gang.phase is Phase.WAITING):
        who = f"gang {known.gang.key}"
        if known.gang.phase is not Phase.WAITING:
            return NoPlan(f"{who} is not pending: it is {known.gang.phase}")
        return Asked(who, gangs.planner.seats(known.gang))
    if pod is None:
        return None
    if pod.state in ("binding", "bound"):
        return NoPlan(f"{pod.ref} is not pending: it is bound to {pod.node}")
    if isinstance(pod.asked, Reason):
        return NoPlan(str(pod.asked))
    return Asked(str(pod.ref), iter((Seat.of(pod),)))


class DefragRequest(Sliced[DefragPlan | NoPlan]):
    """A plan of moves in the making, and the pods that it is for."""

    def __init__(
        self,
        asked: Asked,
        pods: Mapping[str, PodState],
        view: ClusterView,
        never: Callable[[PodState], Reason | None],
        plan: Callable[[Sequence[Seat]], Defrag],
    ) -> None:
        """`pods` by UID; `never`: why no node could take a pod; `plan` makes the plan for these seats."""
        self._asked, self._plan, self._known, self._view, self._never = asked, plan, pods, view, never
        self._pods: dict[str, PodState] = {}
        """The pending pods, by UID."""
        super().__init__(self._go())

    def _go(self) -> Generator[int, None, DefragPlan | NoPlan]:
        seats: list[Seat] = []
        for seat in self._asked.seats:
            seats.append(seat)
            pod = self._pods[seat.uid] = self._known[seat.uid]
            if (never := self._never(pod)) is not None:
                return NoPlan(str(never))
            if len(seats) % READ == 0:
                yield PIECE
        yield PIECE
        found: list[DefragPlan | NoPlan] = []
        for choice in (yield from choices(self._view, seats, undecided(self._view, seats))):
            chosen = yield from of_choice(seats, choice)
            found.append((yield from self._plan(chosen).whole()))
            if isinstance(found[-1], DefragPlan):
                return found[-1]
        return found[0]

    def told(self, nodes: Mapping[str, NodeState]) -> dict[str, Any]:
        """The outcome as JSON, without the rooms."""
        outcome, who = self.outcome, self._asked.who
        if not isinstance(outcome, DefragPlan):
            return {"for": who, "fits": False, "verdict": outcome.why if outcome else "", "moves": []}
        moves = [_move(move, nodes) for move in outcome.moves]
        return {"for": who, "fits": True, "verdict": outcome.verdict(who, nodes), "moves": moves}

    def rooms(self, nodes: Mapping[str, NodeState]) -> Iterator[dict[str, Any]]:
        """Where the pending pods go, as JSON; nothing if there is no plan."""
        if isinstance(self.outcome, DefragPlan):
            for uid, assignment in self.outcome.assignments.items():
                yield _room(self._pods[uid], assignment, nodes)


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


def _room(pod: PodState, assignment: Assignment, nodes: Mapping[str, NodeState]) -> dict[str, Any]:
    return {
        "namespace": pod.ref.namespace,
        "name": pod.ref.name,
        "uid": pod.ref.uid,
        "node": assignment.node,
        "gpus": indexes(assignment.charges, nodes.get(assignment.node)),
        "containers": {name: [share.uuid for share in given] for name, given in assignment.shares.items()},
    }

"""The outcome of a search for moves: which pods go where so that pending pods fit, or why no moves help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec

from extender.engine.planning.movable_pods import Movable
from extender.engine.planning.sketch import Outlook, Sketch
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Assignment, Seat
from extender.engine.types.amounts import in_words
from protos.contract import ask_words, mig
from protos.contract.ask import Demand
from protos.contract.reason import listed

NAMED = 8
"""Most nodes that a verdict names; the rest is counted."""


class Move(msgspec.Struct, frozen=True):
    """One pod to move, and where it fits."""

    pod: Movable
    to: Assignment


class DefragPlan(msgspec.Struct, frozen=True):
    """Moves that make room."""

    moves: tuple[Move, ...]
    assignments: Mapping[str, Assignment]
    """Where the pending pods go, by UID."""

    def verdict(self, who: str, nodes: Mapping[str, NodeState]) -> str:
        """A sentence: `2 moves make room for default/train: node-a GPU 0 and 1`."""
        count = len(self.moves)
        moves = "no move is needed" if not count else f"{count} move{'s make' if count > 1 else ' makes'} room"
        return f"{moves} for {who}: {_places(self.assignments.values(), nodes)}"


def plan_of(sketches: Sequence[Sketch], seats: Iterable[Seat]) -> DefragPlan:
    """The moves that these sketches amount to, and the places of the pending pods."""
    to = {uid: assignment for sketch in sketches for uid, assignment in sketch.assignments.items()}
    left = sorted((pod for sketch in sketches for pod in sketch.left), key=attrgetter("node", "name"))
    moves = (Move(pod, to[pod.seat.uid]) for pod in left)
    moved = tuple(move for move in moves if (move.to.node, move.to.charges) != (move.pod.node, move.pod.charges))
    return DefragPlan(moved, {seat.uid: to[seat.uid] for seat in seats})


class NoPlan(msgspec.Struct, frozen=True):
    """Why no moves help, as a sentence."""

    why: str


CHANGED = NoPlan("the cluster changes faster than moves can be planned: try again")


def indexes(uuids: Iterable[str], node: NodeState | None) -> list[int]:
    """The indexes of these GPUs; GPUs that the node no longer has are left out."""
    gpus = node.books.gpus if node is not None and node.books is not None else {}
    return sorted(gpus[uuid].gpu.index for uuid in uuids if uuid in gpus)


def place(node: str, gpus: Sequence[int]) -> str:
    """`node-a GPU 0 and 1`."""
    *first, last = map(mig.shown, gpus) if gpus else ("",)
    listed = f"{', '.join(first)} and {last}" if first else last
    return f"{node} GPU {listed}" if gpus else node


def _places(assignments: Iterable[Assignment], nodes: Mapping[str, NodeState]) -> str:
    uuids: dict[str, dict[str, Demand]] = {}
    for assignment in assignments:
        uuids.setdefault(assignment.node, {}).update(assignment.charges)
    named = sorted(uuids)
    named[:NAMED] = [place(node, indexes(uuids[node], nodes.get(node))) for node in named[:NAMED]]
    return listed(named, NAMED, "more nodes")


def wanted(seat: Seat) -> str:
    """What a pod requests, in words: `8 whole GPUs on one node`, `24 GiB on one GPU`, `4 cpu`."""
    if seat.ask is None:
        return in_words(seat.requests) or "a pod slot"
    several = seat.ask.only_whole and sum(c.gpus for c in seat.ask.containers) > 1
    return ask_words.wanted(seat.ask) + " on one node" * several


def stuck(seat: Seat, nearest: Outlook | None) -> NoPlan:
    """Pods that may not be moved are in the way on all nodes that it may go to, or it fits on none of them."""
    if nearest is None:
        return NoPlan(f"{wanted(seat)}: no node that it may go to has that, whatever is moved away")
    gpus = sum(c.gpus for c in seat.ask.containers) if seat.ask else 0
    what = f"no {gpus}-GPU node" if gpus > 1 else "no GPU" if gpus else "no node"
    pods = f"{nearest.stuck} pod{'s' * (nearest.stuck > 1)} there may not be moved"
    return NoPlan(f"{wanted(seat)}: {what} can be freed; nearest: {nearest.node}, {pods}")


def too_many(seat: Seat, nearest: Outlook, most: int) -> NoPlan:
    """It would take more moves than are allowed."""
    moves = f"{nearest.node} takes at least {nearest.moves} move{'s' * (nearest.moves > 1)}"
    return NoPlan(f"{wanted(seat)}: {moves}, and at most {most} may be made")


def nowhere(seat: Seat, freed: str, left: int, homeless: Movable) -> NoPlan:
    """A pod that would have to leave fits nowhere else."""
    moves = f"{freed} could be freed by {left} move{'s' * (left > 1)}"
    return NoPlan(f"{wanted(seat)}: {moves}, but {homeless.name} ({wanted(homeless.seat)}) then fits nowhere else")


def unfound(seat: Seat, most: int, looked: int) -> NoPlan:
    """The search found nothing, or reached its limit."""
    return NoPlan(f"{wanted(seat)}: none of {looked} ways looked at works with at most {most} moves")

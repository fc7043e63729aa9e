"""What a plan of moves comes to: which pods go where so that somebody fits, or why no moves help."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec

from extender.engine.planning.movable_pods import Movable
from extender.engine.planning.outlook import Outlook
from extender.engine.planning.shortage import amount_of
from extender.engine.planning.sketch import Sketch
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Assignment, Seat
from protos.contract import choose
from protos.contract.reason import listed

NAMED = 8
"""Nodes that a verdict names; the rest is counted."""


class Move(msgspec.Struct, frozen=True):
    """One pod that is to be moved, and where there is room for it."""

    pod: Movable
    to: Assignment

    @property
    def stays(self) -> bool:
        """Whether it is there already."""
        return self.to.node == self.pod.node and self.to.charges == self.pod.charges


class DefragPlan(msgspec.Struct, frozen=True):
    """Moves that make room."""

    moves: tuple[Move, ...]
    assignments: Mapping[str, Assignment]
    """Where those go who wait, by UID."""

    def verdict(self, who: str, nodes: Mapping[str, NodeState]) -> str:
        """In a sentence: `2 moves make room for default/train: node-a GPU 0 and 1`."""
        count = len(self.moves)
        moves = "no move is needed" if not count else f"{count} move{'s make' if count > 1 else ' makes'} room"
        return f"{moves} for {who}: {_places(self.assignments.values(), nodes)}"


def plan_of(sketches: Sequence[Sketch], seats: Iterable[Seat]) -> DefragPlan:
    """The moves that make these nodes what they are sketched as, with room for those who wait."""
    found = {uid: assignment for sketch in sketches for uid, assignment in sketch.assignments.items()}
    left = sorted((one for sketch in sketches for one in sketch.left), key=attrgetter("node", "name"))
    moves = (Move(one, found[one.seat.uid]) for one in left)
    return DefragPlan(tuple(move for move in moves if not move.stays), {seat.uid: found[seat.uid] for seat in seats})


class NoPlan(msgspec.Struct, frozen=True):
    """Why no moves help, in a sentence."""

    why: str


CHANGED = NoPlan("the cluster changes faster than moves can be planned: try again")


def indexes(spot_gpus: Iterable[str], node: NodeState | None) -> list[int]:
    """The indexes of GPUs by UUID; those that the node does not have any more are left out."""
    gpus = node.books.gpus if node is not None and node.books is not None else {}
    return sorted(gpus[uuid].gpu.index for uuid in spot_gpus if uuid in gpus)


def place(node: str, gpus: Sequence[int]) -> str:
    """`node-a GPU 0 and 1`."""
    *first, last = map(str, gpus) if gpus else ("",)
    listed = f"{', '.join(first)} and {last}" if first else last
    return f"{node} GPU {listed}" if gpus else node


def _places(assignments: Iterable[Assignment], nodes: Mapping[str, NodeState]) -> str:
    found: dict[str, list[Assignment]] = {}
    for assignment in assignments:
        found.setdefault(assignment.node, []).append(assignment)
    named = sorted(found)
    for number, node in enumerate(named[:NAMED]):
        gpus = {index for assignment in found[node] for index in indexes(assignment.charges, nodes.get(node))}
        named[number] = place(node, sorted(gpus))
    return listed(named, NAMED, "more nodes")


def wanted(seat: Seat) -> str:
    """What somebody wants, in words: `8 whole GPUs on one node`, `24 on one GPU`, `4 cpu`."""
    if seat.ask is None:
        asked = [amount_of(*amount) for amount in seat.requests if amount[0] != "pods"]
        return " and ".join(asked) or "a pod slot"
    several = seat.ask.only_whole and sum(c.gpus for c in seat.ask.containers) > 1
    return choose.wanted(seat.ask) + " on one node" * several


def stuck(seat: Seat, nearest: Outlook | None) -> NoPlan:
    """Pods that may not be moved are in the way wherever it may go, or it could never go anywhere."""
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
    """Somebody who would have to leave fits nowhere else."""
    moves = f"{freed} could be freed by {left} move{'s' * (left > 1)}"
    return NoPlan(f"{wanted(seat)}: {moves}, but {homeless.name} ({wanted(homeless.seat)}) then fits nowhere else")


def unfound(seat: Seat, most: int, looked: int) -> NoPlan:
    """All was looked at in vain, or as much as may be."""
    return NoPlan(f"{wanted(seat)}: none of {looked} ways looked at works with at most {most} moves")

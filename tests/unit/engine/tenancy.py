"""A small town of pods on GPUs of 10 units, for plans of moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from extender.engine.cycle.engine import Engine
from extender.engine.planning.defrag_plan import DefragPlan, Move, NoPlan
from extender.engine.policies.defrag.defrag import MOST_MOVES, Defrag
from extender.engine.state.seats import Seat
from extender.engine.types.events import NodeSeen, PodSeen
from extender.engine.types.settings import Settings
from protos.contract import allocation, choose, names
from protos.contract.allocation import Allocation
from protos.contract.ask import PodAsk
from tests.builders import a_container, a_node, a_pod

CONTROLLER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}]


class Town:
    """Nodes n0, n1, … with so many GPUs each, and the pods that were settled there."""

    def __init__(self, sizes: Sequence[int], mem: int = 10, *, backwards: bool = False, **settings: Any) -> None:
        """`backwards`: the last node is seen first."""
        self.engine = Engine(Settings(**settings))
        self.now = 100.0
        self.sizes = {f"n{number}": size for number, size in enumerate(sizes)}
        for name, size in sorted(self.sizes.items(), reverse=backwards):
            self.engine.step(NodeSeen(a_node(name, *[mem] * size)), self.now)
        self.items: dict[str, tuple[int, bool, int]] = {}
        self.places: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.movable: set[str] = set()

    def settle(
        self, name: str, item: tuple[int, bool, int], *, node: str, movable: bool = True, **metadata: Any
    ) -> None:
        """Put a pod that requests (GPUs, whether whole, units of each) on the node, if it fits there.

        `cpu` in cores, `slices` of each GPU; the rest is metadata.
        """
        gpus, wholly, mem = item
        annotations = {names.GPU_COUNT: str(gpus)} if gpus > 1 and not wholly else {}
        annotations |= {names.RESTARTABLE: "true"} if movable else {}
        annotations |= metadata.pop("annotations", {})
        cores = metadata.pop("cpu", 0)
        limits = {"cpu": str(cores)}
        slices = gpus * metadata.pop("slices", 0) * (not wholly)
        containers = [a_container("main", mem * gpus * (not wholly), slices, gpus * wholly, limits=limits)]
        asked: dict[str, Any] = {"containers": containers}
        waiting = a_pod(name, annotations=annotations, **asked, **metadata)
        ask = self.engine._components.observer.ask(waiting)
        books = self.engine.nodes[node].books
        assert ask is not None
        assert books is not None
        choice = choose.choose(ask, books)
        if choice is None or 1000 * cores > self.engine.nodes[node].room("cpu"):
            return
        annotations[names.ALLOCATION] = allocation.encode(Allocation(1, 1024, 100, choice.shares))
        fields: Mapping[str, Any] = {"ownerReferences": CONTROLLER, **metadata}
        self.engine.step(
            PodSeen(a_pod(name, annotations=annotations, node=node, phase="Running", **asked, **fields)), self.now
        )
        assert self.engine.check() == []
        self.items[name] = item
        self.places[name] = node, tuple(books.gpus[uuid].gpu.index for uuid in choice.charges)
        self.movable |= {name} if movable else set()

    def plan(self, asks: Sequence[PodAsk], most: int = MOST_MOVES, **fields: Any) -> DefragPlan | NoPlan:
        """A plan for pods w0, w1, … with these asks."""
        seats = [Seat(uid=f"w{number}", ask=ask, **fields) for number, ask in enumerate(asks)]
        plan = Defrag(self.engine.gangs.planner.view, self.engine.movable_pods, seats, most)
        while not plan.advance():
            pass
        assert plan.outcome is not None
        return plan.outcome

    def moves(self, *asks: PodAsk, most: int = MOST_MOVES, **fields: Any) -> list[str]:
        """The moves of a plan, `p1 n0:0→n1:2`; it is an error if there is none."""
        found = self.plan(asks, most, **fields)
        assert isinstance(found, DefragPlan), found
        return [_told(move) for move in found.moves]

    def why(self, *asks: PodAsk, most: int = MOST_MOVES, **fields: Any) -> str:
        """Why there is no plan."""
        found = self.plan(asks, most, **fields)
        assert isinstance(found, NoPlan), found
        return found.why


def _told(move: Move) -> str:
    name = move.pod.name.partition("/")[2]
    return f"{name} {_at(move.pod.node, move.pod.charges)}→{_at(move.to.node, move.to.charges)}"


def _at(node: str, charges: Mapping[str, object]) -> str:
    return f"{node}:{','.join(uuid.rpartition('-')[2] for uuid in charges)}"

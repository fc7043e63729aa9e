"""Nodes and members for tests of plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from extender.engine.placement.indexes import Indexes
from extender.engine.planning.attempt import ClusterView
from extender.engine.planning.one_model import Mixture
from extender.engine.planning.plan import Placement, Plan
from extender.engine.planning.shortage import Shortage
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Seat
from extender.engine.state.stock import Stock
from protos.contract import names
from protos.contract.ask import ContainerAsk, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.selection import Selection
from tests.builders import an_inventory

OURS = frozenset(names.Resources().all)
POD = (("cpu", 1000), ("memory", 2**30), ("pods", 1))


def a_state(name: str, number: int = 0, *mems: int, **fields: Any) -> NodeState:
    """A node with these GPUs (none: without books); `fields` are labels, taints, links, models, or amounts in-tree."""
    state = NodeState(name, number)
    state.seen = True
    state.taints, state.labels = tuple(fields.pop("taints", ())), fields.pop("labels", {})
    inventory = {key: fields.pop(key) for key in ("links", "replicas", "models") if key in fields}
    state.allocatable = {"cpu": 64_000, "memory": 2**38, "pods": 110, **fields}
    if mems:
        state.books = NodeBooks(an_inventory(*mems, node=name, **inventory))
    return state


def a_fleet(*states: NodeState) -> ClusterView:
    nodes = {state.name: state for state in states}
    stock = Stock()
    for state in states:
        stock.put(state.name, state.books.inventory if state.books is not None else None)
    return ClusterView(nodes, Indexes(nodes), OURS, models=stock.models_of)


def amounts(cores: float = 0, gib: float = 0) -> tuple[tuple[str, int], ...]:
    """CPU and memory that a pod requests."""
    return ("cpu", int(cores * 1000)), ("memory", int(gib * 2**30))


def an_ask(gpus: int = 1, **fields: Any) -> PodAsk:
    """One container that asks this; `link`, `spread`, `uuids` and `mixed` are the pod's."""
    selection = Selection(**{key: fields.pop(key) for key in ("link", "spread", "uuids", "mixed") if key in fields})
    return PodAsk(containers=(ContainerAsk(name="main", gpus=gpus, **fields),), selection=selection)


def whole(gpus: int = 1, **fields: Any) -> PodAsk:
    return an_ask(gpus, whole=names.WHOLE_GPU, **fields)


def members(count: int, ask: PodAsk | None = None, prefix: str = "m", **fields: Any) -> list[Seat]:
    """So many members with this ask; their requests include the GPUs, as in a pod."""
    gpus = [(names.WHOLE_GPU, c.gpus) for c in ask.containers if c.whole] if ask else []
    fields["requests"] = (*fields.get("requests", POD), *gpus)
    return [Seat(uid=f"{prefix}{i}", ask=ask, **fields) for i in range(count)]


def outcome(
    fleet: ClusterView, seats: Sequence[Seat], minimum: Sequence[Seat] | None = None
) -> Placement | Shortage | Mixture:
    plan = Plan(fleet, seats, seats if minimum is None else minimum)
    while not plan.advance():
        pass
    assert isinstance(plan.outcome, Placement | Shortage | Mixture)
    return plan.outcome


def places(fleet: ClusterView, seats: Sequence[Seat], minimum: Sequence[Seat] | None = None) -> dict[str, str]:
    """The node of each member that has a place; it is an error if the gang does not fit."""
    found = outcome(fleet, seats, minimum)
    assert isinstance(found, Placement), str(found)
    return {uid: assignment.node for uid, assignment in found.assignments.items()}


def missing(fleet: ClusterView, seats: Sequence[Seat], minimum: Sequence[Seat] | None = None) -> Shortage:
    """What the gang is short of; it is an error if it fits."""
    found = outcome(fleet, seats, minimum)
    assert isinstance(found, Shortage), found
    return found

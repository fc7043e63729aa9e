"""Plans of gangs against dumb twins: simple capacity, a recount of what was given, and the order of things."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.engine.planning.attempt import ClusterView
from extender.engine.planning.plan import Placement, Plan
from extender.engine.planning.shortage import Shortage
from extender.engine.state.intree import Constraints
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Seat
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NodeBooks
from tests.property.asks import asks
from tests.unit.engine.fleets import a_fleet, a_state, an_ask, members, outcome

Pod = tuple[int, int, int]
"""Which GPU, units, slices."""
LABELS = ("a", "b")

pods = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20), st.integers(0, 40)), max_size=5)
mems = st.lists(st.integers(5, 40), max_size=4)
nodes = st.lists(st.tuples(mems, pods, st.integers(0, 12), st.sampled_from(LABELS)), min_size=1, max_size=4)


def a_cluster(drawn: list[tuple[list[int], list[Pod], int, str]], order: random.Random | None = None) -> ClusterView:
    states = []
    for number, (gpus, held, cpus, label) in enumerate(drawn):
        state = a_state(f"n{number}", number, *gpus, cpu=1000 * cpus, labels={"zone": label})
        for i, (gpu, mem, slices) in enumerate(held):
            _hold(state.books, f"{state.name}-{i}", gpu, Demand(mem, slices, False))
        states.append(state)
    if order:
        order.shuffle(states)
    return msgspec.structs.replace(a_fleet(*states), localities=("zone",))


def _hold(books: NodeBooks | None, uid: str, gpu: int, demand: Demand) -> None:
    uuids = list(books.gpus) if books else []
    if books is not None and gpu < len(uuids) and books.gpus[uuids[gpu]].fits(demand):
        books.hold(uid, an_ask(mem=demand.mem, slices=demand.slices), {uuids[gpu]: demand})


asked = st.none() | asks(mem=20, mem_of_each=20)
lots = st.lists(
    st.tuples(asked, st.integers(1, 4), st.integers(0, 3), st.sampled_from(["", *LABELS]), st.integers(0, 3)),
    min_size=1,
    max_size=4,
)


def a_gang(drawn: list[tuple[PodAsk | None, int, int, str, int]]) -> list[Seat]:
    found: list[Seat] = []
    for number, (ask, count, cpus, zone, excluded) in enumerate(drawn):
        constraints = Constraints(labels=(("zone", zone),) if zone else ())
        requests = (("cpu", 1000 * cpus), ("pods", 1))
        found += members(count, ask, f"m{number}-", requests=requests, constraints=constraints, excluded=excluded)
    return found


def slots(node: NodeState, ask: PodAsk | None, cpus: int) -> int:
    """How many identical members with one container fit on a node: plain arithmetic."""
    in_tree = node.allocatable["cpu"] // (1000 * cpus) if cpus else 10**6
    if ask is None:
        return min(in_tree, node.allocatable["pods"])
    if node.books is None:
        return 0
    container = ask.containers[0]
    each = [_times(container, mem_free, slices_free, idle) for mem_free, slices_free, idle in _free(node.books)]
    count = 0
    while sum(min(times, count + 1) for times in each) >= (count + 1) * container.gpus:
        count += 1
    return min(in_tree, count)


def _free(books: NodeBooks) -> list[tuple[int, int, bool]]:
    charged = [charge for entry in books.entries.values() for charge in entry.charges.items()]
    here = {uuid: [demand for gpu, demand in charged if gpu == uuid] for uuid in books.gpus}
    return [
        (book.gpu.mem - sum(d.mem for d in here[uuid]), 100 - sum(d.slices for d in here[uuid]), not here[uuid])
        for uuid, book in books.gpus.items()
    ]


def _times(ask: ContainerAsk, mem: int, slices: int, idle: bool) -> int:
    if ask.whole:
        return int(idle)
    return min(mem // ask.mem, slices // ask.slices if ask.slices else 10**6)


single = asked.filter(lambda ask: ask is None or len(ask.containers) == 1)


@settings(max_examples=300)
@given(nodes, single, st.integers(1, 30), st.integers(0, 3))
def test_identical_members_are_placed_whenever_they_fit_by_plain_arithmetic(
    drawn: list[tuple[list[int], list[Pod], int, str]], ask: PodAsk | None, count: int, cpus: int
) -> None:
    fleet = a_cluster(drawn)
    room = {name: slots(node, ask, cpus) for name, node in fleet.nodes.items()}
    found = outcome(fleet, members(count, ask, requests=(("cpu", 1000 * cpus), ("pods", 1))))
    if count <= sum(room.values()):
        assert isinstance(found, Placement)
        assert len(found.assignments) == count
        zones = {label: sum(n for name, n in room.items() if _zone(fleet, name) == label) for label in LABELS}
        if count <= max(zones.values()) and (ask is None or ask.only_whole or ask.containers[0].gpus == 1):
            assert len({_zone(fleet, assignment.node) for assignment in found.assignments.values()}) == 1
    else:
        assert isinstance(found, Shortage)
        assert {node: placed for placed, node in found.placed} == {name: n for name, n in room.items() if n}
        assert found.short == count - sum(room.values())


def _zone(fleet: ClusterView, node: str) -> str:
    return fleet.nodes[node].labels["zone"]


def state_of(fleet: ClusterView) -> list[object]:
    return [
        (node.books and (node.books.signature(), sorted(node.books.entries)), dict(node.used), node.version)
        for node in fleet.nodes.values()
    ]


@settings(max_examples=300)
@given(nodes, lots)
def test_a_plan_takes_no_gpu_and_no_node_past_what_it_has(
    drawn: list[tuple[list[int], list[Pod], int, str]], gang: list[tuple[PodAsk | None, int, int, str, int]]
) -> None:
    fleet, seats = a_cluster(drawn), a_gang(gang)
    before = state_of(fleet)
    found = outcome(fleet, seats)
    assert state_of(fleet) == before
    if isinstance(found, Placement):
        assert set(found.assignments) == {seat.uid for seat in seats}
        _recount(fleet, seats, found)
    else:
        assert isinstance(found, Shortage), "all GPUs are of one model"
        assert found.short + sum(count for count, _ in found.placed) == len(seats)
        assert found.short > 0


def _recount(fleet: ClusterView, seats: list[Seat], found: Placement) -> None:
    cpu: Counter[str] = Counter()
    taken: Counter[tuple[str, str]] = Counter()
    alone = set()
    for seat in seats:
        assignment = found.assignments[seat.uid]
        node = fleet.nodes[assignment.node]
        assert not seat.excluded >> node.number & 1
        assert seat.constraints.admits(node)
        cpu[assignment.node] += dict(seat.requests)["cpu"]
        if seat.ask is not None:
            assert node.books is not None
            assert node.books.charges(seat.ask, assignment.shares) == assignment.charges
            for uuid, demand in assignment.charges.items():
                assert not demand.whole or node.books.gpus[uuid].fits(demand)
                assert uuid not in alone
                alone |= {uuid} if demand.whole else set()
                taken[uuid, "mem"] += demand.mem
                taken[uuid, "slices"] += demand.slices
    assert all(amount <= fleet.nodes[name].allocatable["cpu"] for name, amount in cpu.items())
    for node in fleet.nodes.values():
        for uuid, book in node.books.gpus.items() if node.books else ():
            assert taken[uuid, "mem"] <= book.mem_free
            assert taken[uuid, "slices"] <= book.slices_free
            assert not (uuid in alone and (book.sharers or book.wholes))


@settings(max_examples=100)
@given(nodes, lots, st.randoms(use_true_random=False))
def test_the_same_cluster_gives_the_same_plan(
    drawn: list[tuple[list[int], list[Pod], int, str]],
    gang: list[tuple[PodAsk | None, int, int, str, int]],
    order: random.Random,
) -> None:
    assert outcome(a_cluster(drawn), a_gang(gang)) == outcome(a_cluster(drawn, order), a_gang(gang))


small = st.lists(st.tuples(st.lists(st.sampled_from([20, 40]), min_size=1, max_size=2)), min_size=1, max_size=3)


@settings(max_examples=100)
@given(small, st.lists(st.sampled_from([10, 20, 30, 40]), min_size=1, max_size=5))
def test_a_gang_of_parts_is_placed_where_any_assignment_to_gpus_serves_it(
    drawn: list[tuple[list[int]]], wanted: list[int]
) -> None:
    fleet = a_fleet(*(a_state(f"n{i}", i, *gpus) for i, (gpus,) in enumerate(drawn)))
    sizes = [mem for (gpus,) in drawn for mem in gpus]
    fits = any(
        all(sum(m for m, at in zip(wanted, where, strict=True) if at == gpu) <= size for gpu, size in enumerate(sizes))
        for where in product(range(len(sizes)), repeat=len(wanted))
    )
    seats = [seat for i, mem in enumerate(wanted) for seat in members(1, an_ask(mem=mem), f"m{i}-")]
    assert isinstance(outcome(fleet, seats), Placement if fits else Shortage)


@settings(max_examples=150)
@given(
    nodes,
    lots,
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(0, 3), st.integers(1, 20)), max_size=6),
)
def test_what_a_plan_ends_with_is_true_of_that_moment_whatever_happened_meanwhile(
    drawn: list[tuple[list[int], list[Pod], int, str]],
    gang: list[tuple[PodAsk | None, int, int, str, int]],
    events: list[tuple[int, int, int, int]],
) -> None:
    fleet, seats = a_cluster(drawn), a_gang(gang)
    plan = Plan(fleet, seats, seats)
    ended = False
    for number, (steps, which, gpu, mem) in enumerate(events):
        ended = ended or any(plan.advance(1) for _ in range(steps))
        if ended:
            break
        node = list(fleet.nodes.values())[which % len(fleet.nodes)]
        _hold(node.books, f"late-{number}", gpu, Demand(mem, 0, False))
        node.used = {"cpu": node.used.get("cpu", 0) + 500}
        node.allocatable = {**node.allocatable, "cpu": max(0, node.allocatable["cpu"] - 500)}
        node.version += 1
        fleet.indexes.stale(node.name)
    while not ended:
        ended = plan.advance(1)
    if isinstance(plan.outcome, Placement):
        _recount(fleet, seats, plan.outcome)

"""Plans of moves against exhaustive search on tiny clusters: as few moves, and all pods fit at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.engine.planning.defrag_plan import DefragPlan, NoPlan
from extender.engine.policies.defrag.defrag import Defrag
from extender.engine.state.seats import Seat
from extender.engine.types.events import PodGone
from protos.contract.ask import PodAsk
from tests.property.asks import asks
from tests.unit.engine.fleets import an_ask, whole
from tests.unit.engine.tenancy import Town

Free = dict[tuple[str, int], tuple[int, int]]
"""By node and GPU: units free, and how many pods are on it."""
Item = tuple[int, bool, int]
"""GPUs, whether whole ones, units of each."""

items = st.one_of(
    st.tuples(st.just(1), st.just(False), st.integers(1, 10)),
    st.tuples(st.integers(1, 2), st.just(True), st.just(10)),
)
nodes = st.lists(st.integers(1, 3), min_size=1, max_size=3)
tenants = st.lists(st.tuples(items, st.booleans(), st.integers(0, 2)), max_size=7)


def an_item(item: Item) -> PodAsk:
    gpus, wholly, mem = item
    return whole(gpus) if wholly else an_ask(gpus, mem=mem)


def fits(free: Free, order: Sequence[Item]) -> bool:
    """Whether all of these find places, by trying every one."""
    if not order:
        return True
    (gpus, wholly, mem), rest = order[0], order[1:]
    for node in sorted({name for name, _ in free}):
        here = [gpu for gpu in free if gpu[0] == node]
        able = [gpu for gpu in here if (not free[gpu][1] if wholly else free[gpu][0] >= mem)]
        for chosen in combinations(able, gpus):
            taken = {gpu: (free[gpu][0] - mem, free[gpu][1] + 1) for gpu in chosen}
            if fits(free | taken, rest):
                return True
    return False


def fewest(town: Town, asked: Sequence[Item]) -> int | None:
    """The least number of moves by which all asks fit: every set of movable pods is tried."""
    movable = sorted(town.movable)
    for count in range(len(movable) + 1):
        for leaving in combinations(movable, count):
            if fits(_without(town, leaving), [*asked, *(town.items[name] for name in leaving)]):
                return count
    return None


def _without(town: Town, leaving: Sequence[str]) -> Free:
    free: Free = {(node, gpu): (10, 0) for node, gpus in town.sizes.items() for gpu in range(gpus)}
    for name, (node, gpus) in town.places.items():
        for gpu in gpus if name not in leaving else ():
            mem, pods = free[node, gpu]
            free[node, gpu] = mem - town.items[name][2], pods + 1
    return free


@settings(max_examples=400)
@given(nodes, tenants, st.lists(items, min_size=1, max_size=2))
def test_as_few_moves_as_exhaustive_search_finds(
    sizes: list[int], drawn: list[tuple[Item, bool, int]], asked: list[Item]
) -> None:
    town = Town(sizes)
    for number, (item, movable, node) in enumerate(drawn):
        town.settle(f"p{number}", item, movable=movable, node=f"n{node % len(sizes)}")
    best = fewest(town, asked)
    found = town.plan([an_item(item) for item in asked], most=7)
    if isinstance(found, NoPlan):
        assert best is None, found.why
        return
    assert fits_as_told(town, asked, found)
    assert len(found.moves) == best


parts = st.tuples(st.integers(1, 3), st.booleans(), st.integers(1, 10))
guests = st.tuples(parts, st.booleans(), st.integers(0, 3), st.integers(0, 60), st.integers(0, 40))
wanted = asks(mem=10, mem_of_each=6)


@settings(max_examples=300)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.lists(guests, max_size=14),
    st.lists(wanted, min_size=1, max_size=3),
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 13)), max_size=3),
)
def test_whatever_is_asked_everybody_fits_at_the_same_time_also_if_pods_go_meanwhile(
    sizes: list[int], drawn: list[Any], asked: list[PodAsk], cpu: int, going: list[tuple[int, int]]
) -> None:
    town = Town(sizes)
    for number, (item, movable, node, slices, cpus) in enumerate(drawn):
        place = f"n{node % len(sizes)}"
        town.settle(f"p{number}", item, movable=movable, node=place, slices=slices, cpu=cpus)
    seats = [Seat(uid=f"w{i}", ask=ask, requests=(("cpu", 1000 * cpu), ("pods", 1))) for i, ask in enumerate(asked)]
    plan = Defrag(town.engine.gangs.planner.view, town.engine.movable_pods, seats)
    pieces = dict(going)
    done = 0
    while not plan.advance(limit=50):
        done += 1
        if done in pieces:
            town.engine.step(PodGone(f"uid-p{pieces[done]}"), town.now)
    if isinstance(plan.outcome, DefragPlan):
        carry_out(town, plan.outcome, {seat.uid: seat for seat in seats})


def carry_out(town: Town, found: DefragPlan, waiting: dict[str, Seat]) -> None:
    """All at once: moved pods leave, and all pods go where the plan says."""
    books = {name: node.books.copy() for name, node in town.engine.nodes.items() if node.books is not None}
    used = {name: Counter(node.used) for name, node in town.engine.nodes.items()}
    for move in found.moves:
        assert books[move.pod.node].release(move.pod.seat.uid)
        used[move.pod.node].subtract(dict(move.pod.seat.requests))
    coming = [(waiting[uid], assignment) for uid, assignment in found.assignments.items()]
    for seat, assignment in [*coming, *((move.pod.seat, move.to) for move in found.moves)]:
        assert seat.ask is not None
        assert sum(c.gpus for c in seat.ask.containers) >= len(assignment.charges)
        assert all(books[assignment.node].gpus[uuid].fits(demand) for uuid, demand in assignment.charges.items())
        assert books[assignment.node].charges(seat.ask, assignment.shares) == assignment.charges
        books[assignment.node].hold(seat.uid, seat.ask, assignment.charges)
        used[assignment.node].update(dict(seat.requests))
    assert not any(book.overused() for book in books.values())
    for name, node in town.engine.nodes.items():
        assert used[name]["cpu"] <= node.allocatable["cpu"]
    assert set(found.assignments) == set(waiting)


def fits_as_told(town: Town, asked: Sequence[Item], found: DefragPlan) -> bool:
    """Whether pending and moved pods all fit where the plan puts them, and no pod moves for nothing."""
    free = _without(town, [move.pod.name.partition("/")[2] for move in found.moves])
    given = [(item, found.assignments[f"w{number}"]) for number, item in enumerate(asked)]
    given += [(town.items[move.pod.name.partition("/")[2]], move.to) for move in found.moves]
    for (gpus, wholly, mem), assignment in given:
        assert len(assignment.charges) == gpus
        for uuid in assignment.charges:
            gpu = assignment.node, int(uuid.rpartition("-")[2])
            assert not free[gpu][1] if wholly else free[gpu][0] >= mem
            free[gpu] = free[gpu][0] - mem, free[gpu][1] + 1
    return all((move.pod.node, move.pod.charges) != (move.to.node, move.to.charges) for move in found.moves)

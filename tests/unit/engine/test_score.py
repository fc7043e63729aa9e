"""What a placement costs those who are still to come."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from extender.engine.placement import score
from extender.engine.placement.gpus import gpus
from extender.engine.placement.index import ShapeIndex
from extender.engine.placement.indexes import Indexes
from extender.engine.placement.score import STRANDED, Terms
from extender.engine.placement.usable import BESIDE, GPU, Usable, takes
from extender.engine.state.node_state import NodeState
from extender.engine.types.shape import Shape, shape
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.selection import Selection
from tests.unit.engine.fleets import a_state, amounts, an_ask, whole

CORE = 1000


def a_cluster(*states: NodeState, asks: Iterable[Shape] = ()) -> Indexes:
    indexes = Indexes({state.name: state for state in states})
    for ask in asks:
        indexes.scorer.note(ask)
    indexes.scorer.look()
    return indexes


def take(state: NodeState, uid: str, ask: PodAsk, cores: float = 0) -> None:
    """Somebody is on the node."""
    assert state.books is not None
    choice = choose.choose(ask, state.books)
    assert choice is not None
    state.books.hold(uid, ask, choice.charges)
    state.used["cpu"] = state.used.get("cpu", 0) + int(cores * CORE)


def best(indexes: Indexes, wanted: Shape) -> str:
    return next(name for name, _ in indexes.of(wanted).ranked())


def terms(indexes: Indexes, state: NodeState, wanted: Shape) -> Terms:
    assert wanted.ask is not None
    assert state.books is not None
    choice = choose.choose(wanted.ask, state.books)
    assert choice is not None
    present = indexes.scorer.present(state.books, state.allocatable, state.used)
    assert present is not None
    return score.terms(wanted, present, indexes.scorer.seated(choice, state.books))


def test_whole_nodes_are_kept_for_those_who_need_them() -> None:
    used, idle = a_state("z-used", 0, *[16] * 8), a_state("a-idle", 1, *[16] * 8)
    take(used, "x", whole())
    indexes = a_cluster(used, idle, asks=[shape(whole(), amounts(1)), shape(whole(8), amounts(8))] * 20)
    assert best(indexes, shape(whole(), amounts(1))) == "z-used"
    costs = terms(indexes, idle, shape(whole(), amounts(1)))
    assert costs.fragments > terms(indexes, used, shape(whole(), amounts(1))).fragments + GPU


def test_gpus_are_not_left_without_cpu() -> None:
    """Both have a GPU left; on one of them there would be no CPU for it."""
    tight, ample = a_state("a-tight", 0, 16, 16, cpu=12 * CORE), a_state("z-ample", 1, 16, 16, cpu=40 * CORE)
    heavy = shape(whole(), amounts(10))
    indexes = a_cluster(tight, ample, asks=[heavy] * 20)
    assert best(indexes, heavy) == "z-ample"
    each = BESIDE * heavy.cpu
    before, after = 2 - 12 * CORE / each, 1 - (12 * CORE - heavy.cpu) / each
    assert terms(indexes, tight, heavy).stranded == pytest.approx(STRANDED * (after - before) * GPU, abs=1)
    assert terms(indexes, ample, heavy).stranded == 0


def test_memory_counts_as_cpu_does() -> None:
    tight, ample = a_state("a-tight", 0, 16, 16, memory=24 * 2**30), a_state("z-ample", 1, 16, 16)
    heavy = shape(whole(), amounts(1, gib=20))
    assert best(a_cluster(tight, ample, asks=[heavy] * 20), heavy) == "z-ample"


def test_a_pod_without_gpus_goes_where_it_strands_none() -> None:
    plain, rich = a_state("z-plain", 0), a_state("a-rich", 1, 16, 16, cpu=24 * CORE)
    asks = [shape(whole(), amounts(10))] * 20
    assert best(a_cluster(plain, rich, asks=asks), shape(None, amounts(8))) == "z-plain"
    roomy = a_state("z-roomy", 0, 16, 16, cpu=64 * CORE)
    assert best(a_cluster(roomy, rich, asks=asks), shape(None, amounts(8))) == "z-roomy"


def test_what_is_left_of_a_gpu_should_fit_those_who_come() -> None:
    """6 of 10 leave 4, which the usual ask can use; 7 would leave nothing of use on the other."""
    half, fresh = a_state("z-half", 0, 10), a_state("a-fresh", 1, 10)
    take(half, "x", an_ask(mem=4))
    usual = shape(an_ask(mem=6), amounts(1))
    indexes = a_cluster(half, fresh, asks=[usual] * 20)
    assert best(indexes, usual) == "z-half"
    assert terms(indexes, half, usual).fragments == 0, "it was of use, and all of it is taken"
    assert terms(indexes, fresh, usual).fragments == 400, "the rest is of no use to the next"


def test_gpus_asked_for_by_name_are_kept_for_those_who_do() -> None:
    rare, common = a_state("a-rare", 0, 16), a_state("z-common", 1, 40)
    assert rare.books is not None
    picky = shape(PodAsk(containers=whole().containers, selection=Selection(max_mem_mib=20 * 1024)), amounts(1))
    usual = shape(whole(), amounts(1))
    indexes = a_cluster(rare, common, asks=[picky, usual, usual] * 20)
    assert best(indexes, usual) == "z-common"
    assert terms(indexes, rare, usual).wanted > 0
    assert terms(indexes, common, usual).wanted == 0
    assert best(indexes, picky) == "a-rare"


def test_the_names_of_nodes_decide_between_equals_only() -> None:
    def assignment(first: str, second: str) -> int:
        used, idle = a_state(first, 0, 16, 16), a_state(second, 1, 16, 16)
        take(used, "x", an_ask(mem=5), cores=3)
        wanted = shape(an_ask(mem=8), amounts(2))
        index = a_cluster(used, idle, asks=[wanted] * 9).of(wanted)
        return [first, second].index(next(name for name, _ in index.ranked()))

    assert assignment("a", "b") == assignment("b", "a")


def naive(cpu: int, free: list[int], typical: list[tuple[int, int, int, float]]) -> float:
    """V by its definition: asks are (GPUs, of each, CPU, share)."""
    total = 0.0
    for count, of, cores, share in typical:
        fitting = [rest for rest in free if rest >= of]
        total += share * sum(fitting) * (cores <= cpu and len(fitting) >= count)
    return total


@pytest.mark.parametrize("seed", range(20))
def test_usable_is_what_its_definition_says(seed: int) -> None:
    draw = random.Random(seed)
    books = a_state("n", 0, *[100] * 8).books
    assert books is not None
    asks = [(draw.choice((1, 1, 2, 8)), draw.choice((10, 25, 60, 100)), draw.randrange(33)) for _ in range(12)]
    shapes = [Shape(an_ask(gpus, mem=mem), cpu, 0) for gpus, mem, cpu in asks]
    usable = Usable(dict.fromkeys(shapes, 1 / 12), [(of, 1 / 12) for of in shapes], takes(shapes, books))
    typical = [(gpus, 10 * mem, cpu, 1 / 12) for gpus, mem, cpu in asks]
    for _ in range(40):
        cpu, free = draw.randrange(40), [draw.choice((0, 100, 250, 400, 610, 1000)) for _ in range(8)]
        assert usable.rates(cpu).worth(tuple(free))[0] == pytest.approx(naive(cpu, free, typical))


@pytest.mark.parametrize("seed", range(10))
def test_an_index_knows_what_a_new_one_would(seed: int) -> None:
    draw = random.Random(seed)
    states = [a_state(f"n{i}", i, *[16] * draw.choice((1, 2, 8))) for i in range(12)]
    wishes = [shape(ask, amounts(draw.choice((1, 4)))) for ask in (an_ask(mem=5), whole(), whole(2), None)]
    indexes = a_cluster(*states, asks=[wish for wish in wishes if wish.ask] * 9)
    for step in range(60):
        state, wanted = draw.choice(states), draw.choice(wishes)
        assert state.books is not None
        if wanted.ask is not None and choose.choose(wanted.ask, state.books) is not None:
            take(state, f"p{step}", wanted.ask, cores=1)
        else:
            state.used["cpu"] = draw.randrange(64 * CORE)
        state.version += 1
        indexes.stale(state.name)
        asked = draw.choice(wishes)
        assert ranking(indexes.of(asked)) == anew(indexes, asked)


def ranking(index: ShapeIndex) -> list[Any]:
    return list(index.ranked())


def anew(indexes: Indexes, wanted: Shape) -> list[Any]:
    """What indexes say that know nothing of what was before."""
    return ranking(Indexes(indexes.scorer._nodes, indexes.scorer).of(wanted))


def test_another_mix_is_taken_over_little_by_little() -> None:
    states = [a_state(f"n{i}", i, *[16] * 8) for i in range(30)]
    usual = shape(whole(), amounts(1))
    indexes = a_cluster(*states, asks=[usual] * 20)
    before = ranking(indexes.of(usual))
    for _ in range(40):
        indexes.scorer.note(shape(whole(8), amounts(8)))
    indexes.scorer.look()
    assert ranking(indexes.of(usual)) == before
    indexes.renew(10)
    assert len({points for _, points in ranking(indexes.of(usual))}) == 2
    for _ in range(2):
        indexes.renew(10)
    assert ranking(indexes.of(usual)) == anew(indexes, usual) != before


def test_a_gpu_asked_for_by_its_uuid_counts_by_what_it_leaves_there() -> None:
    """Both nodes are in the same state; the GPU named on one of them is shared, on the other it is not."""
    states = [a_state(name, i, 16, 16) for i, name in enumerate(("a", "b"))]
    for state in states:
        take(state, "x", an_ask(mem=8))
    uuids = [list(state.books.gpus)[i] for i, state in enumerate(states) if state.books is not None]
    named = PodAsk(containers=an_ask(mem=8).containers, selection=Selection(uuids=tuple(uuids)))
    ranked = dict(a_cluster(*states, asks=[shape(whole(), amounts(1))] * 9).of(shape(named, ())).ranked())
    assert ranked["a"] > ranked["b"]


def test_what_is_not_offered_is_not_free() -> None:
    state = a_state("n", 0, 16, 16, 16)
    assert state.books is not None
    take(state, "x", an_ask(mem=4))
    take(state, "y", whole())
    uuids = list(state.books.gpus)
    state.books.set_inventory(state.books.inventory, [uuids[2]])
    assert gpus(state.books).free == (750, 0, 0)


def test_without_gpus_nothing_is_lost() -> None:
    indexes = a_cluster(a_state("n", 0))
    assert list(indexes.of(shape(None, amounts(4))).ranked()) == [("n", 0)]


def test_what_the_first_asks_say_is_learnt_at_once_and_what_later_ones_say_when_there_is_time() -> None:
    indexes = a_cluster(*(a_state(f"n{i}", i, *[16] * 8) for i in range(30)))
    usual, large = shape(whole(), amounts(1)), shape(whole(8), amounts(8))
    ranking(indexes.of(usual))
    indexes.scorer.note(large)
    while indexes.learn(10):
        pass
    assert indexes.scorer.version == 1
    assert ranking(indexes.of(usual)) == anew(indexes, usual)
    for _ in range(100):
        indexes.scorer.note(usual)
    assert not indexes.learn(10)
    assert indexes.scorer.version == 1

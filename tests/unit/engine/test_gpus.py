"""What is told of a node by what is free on it agrees with seating the pod there."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import pytest

from extender.engine.placement import seats, shape_scorer
from extender.engine.placement.indexes import Indexes
from extender.engine.placement.ranking import NOWHERE
from extender.engine.placement.score import Scorer
from extender.engine.placement.shape_scorer import ShapeScorer
from extender.engine.placement.usable import RATES, Usable, takes
from extender.engine.state.node_state import NodeState
from extender.engine.types.shape import Shape, shape
from protos.contract import choose, names
from protos.contract.ask import ContainerAsk, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.selection import Selection
from tests.builders import an_inventory
from tests.unit.engine.fleets import a_state, amounts, an_ask, whole

SELECTIONS = (Selection(), Selection(mixed=True), Selection(min_mem_mib=20_000), Selection(models=("*",)))
CORE = 1000


def a_simple_ask(draw: random.Random) -> PodAsk:
    amount = draw.choice(
        ({"mem": draw.randrange(1, 20)}, {"slices": draw.randrange(1, 101)}, {"whole": names.WHOLE_GPU})
    )
    if draw.random() < 0.3:
        amount = {"mem": draw.randrange(1, 17), "slices": draw.randrange(1, 60)}
    count = draw.choice((1, 2)) if "whole" in amount else 1
    kind: Any = draw.choice(("app", "app", "init", "sidecar"))
    return PodAsk(
        containers=(ContainerAsk(name="main", gpus=count, kind=kind, **amount),), selection=draw.choice(SELECTIONS)
    )


def a_node(draw: random.Random, number: int) -> NodeState:
    """With pods of all sorts on it, GPUs that are cordoned or sick, a smaller inventory than what is held."""
    mems = [16] * draw.choice((1, 2, 8, 20)) if draw.random() < 0.8 else [16, 40]
    state = a_state(f"n{number}", number, *mems, cpu=draw.choice((2, 64)) * CORE)
    replicas = {names.WHOLE_GPU: 4} if draw.random() < 0.2 else {}
    models = draw.choice(((), [draw.choice(("T4", "A100")) for _ in mems]))
    state.books = books = NodeBooks(an_inventory(*mems, node=state.name, replicas=replicas, models=models))
    for pod in range(draw.randrange(12)):
        ask = draw.choice((a_simple_ask(draw), whole(2)))
        choice = choose.choose(ask, books)
        if choice is not None:
            books.hold(f"p{pod}", ask, choice.charges)
    if draw.random() < 0.3:
        books.set_inventory(books.inventory, [list(books.gpus)[draw.randrange(len(mems))]])
    if draw.random() < 0.2:
        smaller = an_inventory(*[mem // 2 for mem in mems], node=state.name, replicas=replicas, models=models)
        books.set_inventory(smaller)
    state.used["cpu"] = draw.randrange(70 * CORE)
    return state


@pytest.mark.parametrize("seed", range(60))
def test_what_is_free_tells_the_same_as_seating(seed: int) -> None:
    draw = random.Random(seed)
    nodes = {state.name: state for state in (a_node(draw, i) for i in range(8))}
    indexes = Indexes(nodes)
    for _ in range(20):
        ask = draw.choice((a_simple_ask(draw), whole(draw.choice((2, 8))), an_ask(2, mem=4)))
        indexes.scorer.note(shape(ask, amounts(draw.randrange(12))))
    while indexes.scorer.mix.due or indexes.scorer.adopting:
        indexes.scorer.look()
    told = 0
    for _ in range(12):
        wanted = shape(a_simple_ask(draw), amounts(draw.randrange(12)))
        standing = ShapeScorer(wanted, indexes.scorer, seats.Seats(indexes.scorer, indexes.scorer._nodes))
        standings = [standing.of(state) for state in nodes.values()]
        told_by, standing._single = standing._single, None
        assert told_by is not None
        presents = [(indexes.scorer.node(state), state.books) for state in nodes.values()]
        told += sum(told_by.standing(at, books) is not None for at, books in presents if at and books)
        standing.forget()
        assert [standing.of(state) for state in nodes.values()] == standings
    assert told > 12, "of most nodes it is told so"


def test_a_pod_with_one_gpu_is_seated_nowhere_for_a_ranking() -> None:
    """A shape that was not asked for a while costs a glance at each node that changed."""
    nodes = {f"n{i}": a_state(f"n{i}", i, 16, 16, 1 + i) for i in range(20)}
    for state in nodes.values():
        state.books = NodeBooks(an_inventory(16, 16, node=state.name))
    indexes = Indexes(nodes)
    with patch.object(seats.Seats, "find", side_effect=AssertionError("somebody was seated")):
        for wanted in (an_ask(mem=5), an_ask(mem=17), an_ask(slices=30), whole()):
            indexes.of(shape(wanted, amounts(1)))
    standing = ShapeScorer(shape(an_ask(mem=5), amounts(1)), indexes.scorer, indexes._seats)
    assert NOWHERE not in map(standing.of, nodes.values())


def test_kinds_of_nodes_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_scorer, "KINDS", 4)
    nodes = {f"n{i}": a_state(f"n{i}", i, 16 + i) for i in range(20)}
    scorer = Scorer(nodes)
    standing = ShapeScorer(shape(an_ask(mem=5), amounts(1)), scorer, seats.Seats(scorer, ()))
    found = standing._single
    assert found is not None
    assert NOWHERE not in map(standing.of, nodes.values())
    assert len(found._demands) <= 4


@pytest.mark.parametrize("seed", range(20))
def test_what_is_lost_is_exactly_what_was_worth_more(seed: int) -> None:
    """Not about: else the order in which numbers were added would decide which of two nodes comes first."""
    draw = random.Random(seed)
    books = a_state("n", 0, *[100] * 8).books
    assert books is not None
    asks = [(draw.choice((1, 1, 2, 8)), draw.randrange(1, 101), draw.randrange(33)) for _ in range(40)]
    typical = [(Shape(an_ask(gpus, mem=mem), cpu, 0), draw.random() / 40) for gpus, mem, cpu in asks]
    usable = Usable(dict(typical), typical, takes(dict(typical), books))
    for _ in range(40):
        rates = usable.rates(draw.randrange(40))
        free = [draw.choice((0, 100, 250, 405, 610, 1000, 1000)) for _ in range(8)]
        worth, before = rates.worth(tuple(free)), free[-1]
        free[-1] = after = draw.randrange(before + 1)
        assert worth[0] - rates.loss(worth, before, after) == rates.worth(tuple(free))[0]
        assert sum(found is not None for found in usable._rates) <= RATES

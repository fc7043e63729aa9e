"""What rankings cost: what changed, not how many nodes or shapes there are; and how much memory they take."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import pytest

from extender.engine.placement import ranking, roll, score, seats, uuid_index
from extender.engine.placement.index import NOTED, TURN, ShapeIndex
from extender.engine.placement.indexes import BEHIND, BEHIND_FEW, BYTES, MOST_SHAPES, Indexes
from extender.engine.placement.ranking import ZERO, Ranking, of_room, of_score
from extender.engine.placement.shape_scorer import ShapeScorer
from extender.engine.state.node_state import NodeState
from extender.engine.types.shape import Shape, shape
from protos.contract.ask import PodAsk
from protos.contract.books import NodeBooks
from protos.contract.selection import Selection
from tests.unit.engine.fleets import a_state, amounts, an_ask, whole

SHAPES = [shape(an_ask(mem=1 + i % 16), amounts(1 + i // 16)) for i in range(64)]


def cluster(count: int) -> Indexes:
    return Indexes({f"n{i:04}": a_state(f"n{i:04}", i, 16, 16) for i in range(count)})


def looks(indexes: Indexes, wanted: Shape, few: list[str] | None = None) -> int:
    """How many nodes are looked at for an answer about all nodes, or about few."""
    found = 0
    of = ShapeScorer.of

    def counted(self: ShapeScorer, node: NodeState) -> int:
        nonlocal found
        found += 1
        return of(self, node)

    with patch.object(ShapeScorer, "of", counted):
        if few is None:
            indexes.of(wanted)
        else:
            indexes.among(wanted, few)
    return found


def test_an_answer_looks_at_what_changed_since_the_last_of_its_shape() -> None:
    indexes = cluster(50)
    assert looks(indexes, SHAPES[0]) == 50
    assert looks(indexes, SHAPES[0]) == 0
    for name in ("n0003", "n0004", "n0003"):
        indexes.stale(name)
        indexes.of(SHAPES[1])
    assert looks(indexes, SHAPES[0]) == 2
    assert looks(indexes, SHAPES[1]) == 0


def test_a_change_of_all_nodes_costs_nobody_anything_but_who_asks() -> None:
    """However many shapes there are: neither that the nodes changed nor that the mix did is told to each of them."""
    indexes = cluster(50)
    for wanted in SHAPES:
        indexes.of(wanted)
    for name in indexes.scorer._nodes:
        indexes.stale(name)
    for _ in range(20):
        indexes.scorer.note(shape(whole(2), amounts(8)))
    indexes.scorer.look()
    with patch.object(ShapeScorer, "of", side_effect=AssertionError("a node was looked at")):
        assert indexes.prepare(SHAPES[0], 0)
    kept = indexes._shapes.values()
    assert all(each.stale and each.aged and not each._listed for each in kept)
    assert looks(indexes, SHAPES[0]) == 50


def test_the_work_before_an_answer_is_cut_into_parts() -> None:
    indexes = cluster(500)
    parts = 0
    while indexes.prepare(SHAPES[0], 20):
        parts += 1
    assert parts >= 500 // 20 - 1
    assert looks(indexes, SHAPES[0]) == 0


def test_what_time_brings_up_to_date_is_done_for_one_shape_after_the_other() -> None:
    indexes = cluster(20)
    for wanted in SHAPES[:10]:
        indexes.of(wanted)
    for name in indexes.scorer._nodes:
        indexes.stale(name)
    for _ in range(10):
        indexes.work(1000)
    assert [looks(indexes, wanted) for wanted in SHAPES[:10]] == [0] * 10


def test_time_that_is_left_of_one_shape_goes_to_the_next() -> None:
    indexes = cluster(20)
    for wanted in SHAPES[:10]:
        indexes.of(wanted)
    for name in indexes.scorer._nodes:
        indexes.stale(name)
    assert indexes.work(5 * (20 + TURN + 20 // NOTED)) <= 0
    assert [looks(indexes, wanted) for wanted in SHAPES[:10]] == [0] * 5 + [20] * 5
    assert indexes.work(1000) > 0


def test_a_node_in_the_place_of_one_that_is_gone_is_itself() -> None:
    nodes = {f"n{i}": a_state(f"n{i}", i, 16) for i in range(3)}
    indexes = Indexes(nodes)
    wanted = SHAPES[0]
    indexes.of(wanted)
    del nodes["n1"]
    indexes.stale("n1")
    assert {name for name, _ in indexes.of(SHAPES[1]).ranked()} == {"n0", "n2"}
    nodes["new"] = a_state("new", 3, 4)
    indexes.stale("new")
    nodes["n1"] = a_state("n1", 4, 16)
    indexes.stale("n1")
    assert {name for name, _ in indexes.of(wanted).ranked()} == {"n0", "n1", "n2", "new"}
    assert list(indexes.among(wanted, ["gone"])) == []


def test_nodes_come_and_go_for_ever_in_a_bounded_number_of_places() -> None:
    nodes: dict[str, NodeState] = {}
    indexes = Indexes(nodes)
    for i in range(4 * roll.GONE):
        nodes[f"n{i}"] = a_state(f"n{i}", i, 16)
        indexes.stale(f"n{i}")
        if i >= 5:
            del nodes[f"n{i - 5}"]
            indexes.stale(f"n{i - 5}")
        if i % 100 == 0:
            indexes.of(SHAPES[0])
    assert indexes._roll.epoch >= 3
    assert len(indexes._roll) <= roll.GONE + 20
    assert [name for name, _ in indexes.of(SHAPES[0]).ranked()] == sorted(nodes)


@pytest.mark.parametrize("seed", range(8))
def test_equals_come_by_name_however_nodes_come(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is no number left between two, and those that come or go find indexes that are behind."""
    rng = random.Random(seed)
    monkeypatch.setattr(roll, "APART", rng.choice((2, 3, 1 << 18)))
    monkeypatch.setattr(roll, "NEAR", rng.choice((1, 1 << 10)))
    monkeypatch.setattr(roll, "GONE", rng.choice((3, 50)))
    nodes = {f"{i:04}": a_state(f"{i:04}", i, 16) for i in rng.sample(range(9999), 20)}
    indexes = Indexes(nodes)
    for number in range(300):
        name = f"{rng.randrange(9999):04}" if rng.random() < 0.5 else f"{5000 + number:04}"
        if nodes and rng.random() < 0.5:
            name = rng.choice(sorted(nodes))
            del nodes[name]
        elif name not in nodes:
            nodes[name] = a_state(name, 100 + number, rng.choice((1, 16)))
        indexes.stale(name)
        if rng.random() < 0.3:
            asked = rng.choice(SHAPES[:20])
            if rng.random() < 0.5:
                indexes.prepare(asked, 3)
            else:
                found = indexes.of(asked)
                anew = Indexes(nodes, indexes.scorer).of(asked)
                assert list(found.ranked()) == list(anew.ranked())
                assert found.nearest() == anew.nearest()
                by_name = sorted(found.ranked(), key=lambda each: (-each[1], each[0]))
                assert list(found.ranked()) == by_name
    assert indexes._roll.epoch or roll.APART > 3


@pytest.mark.parametrize("seed", range(5))
def test_few_nodes_are_ranked_as_among_all_however_far_an_index_is_behind(seed: int) -> None:
    rng = random.Random(seed)
    nodes = {f"n{i:02}": a_state(f"n{i:02}", i, rng.choice((1, 4, 16))) for i in range(60)}
    indexes = Indexes(nodes)
    for number in range(200):
        for name in rng.sample(sorted(nodes), rng.choice((0, 1, 30))):
            nodes[name] = a_state(name, 100 + number, rng.choice((1, 4, 16)))
            indexes.stale(name)
        asked, few = rng.choice(SHAPES[:20]), [*rng.sample(sorted(nodes), rng.choice((1, 8))), "unknown"]
        if rng.random() < 0.3:
            indexes.prepare(asked, 3)
        there = list(Indexes(nodes, indexes.scorer).of(asked).ranked(few))
        assert indexes.suffice(asked, few) or not there
        assert list(indexes.among(asked, few)) == there
        assert indexes.suffice(asked, sorted(nodes))
    assert all(not found._scores._known or found._listed for found in indexes._shapes.values())


def test_a_question_about_few_nodes_looks_at_no_other_node() -> None:
    indexes = cluster(1_000)
    few = [f"n{i:04}" for i in range(100)]
    assert looks(indexes, SHAPES[0], few) == 100
    assert looks(indexes, SHAPES[0], few) == 0
    for i in range(20):
        indexes.stale(f"n{i:04}")
        indexes.stale(f"n{500 + i:04}")
    assert looks(indexes, SHAPES[0], few) == 20
    for i in range(200):
        indexes.stale(f"n{i:04}")
    assert looks(indexes, SHAPES[0], few) == 100
    assert looks(indexes, SHAPES[0]) == 1_000
    assert looks(indexes, SHAPES[0], few) == looks(indexes, SHAPES[0]) == 0


def test_shapes_that_come_are_prepared_only_if_every_node_is_asked_about() -> None:
    indexes = cluster(50)
    indexes.sampled = True
    indexes.warm(SHAPES[0])
    assert not indexes.ready(1_000)
    assert looks(indexes, SHAPES[0]) == 50
    indexes.sampled = False
    indexes.warm(SHAPES[1])
    indexes.ready(1_000)
    assert looks(indexes, SHAPES[1]) == 0


@pytest.mark.parametrize("sampled", [False, True])
def test_more_changes_wait_for_a_question_if_few_nodes_are_asked_about(sampled: bool) -> None:
    indexes = cluster(300)
    indexes.of(SHAPES[0])
    indexes.sampled, changes = sampled, BEHIND_FEW if sampled else BEHIND
    for i in range(changes):
        indexes.stale(f"n{i:04}")
    assert indexes.work(1000) == 1000
    for i in range(changes):
        indexes.stale(f"n{150 + i:04}")
    assert indexes.work(1000) < 1000
    assert looks(indexes, SHAPES[0]) == 0


def test_hundreds_of_shapes_are_kept_at_thousands_of_nodes() -> None:
    at = Indexes({f"n{i}": NodeState(f"n{i}", i) for i in range(5_000)})
    assert at.most >= 512
    assert at.most * 5_000 * 17 <= BYTES
    small = Indexes({"n": NodeState("n", 0)})
    assert small.most == MOST_SHAPES


def test_a_node_takes_twenty_five_bytes_of_an_index() -> None:
    indexes = cluster(2_000)
    found = indexes.of(SHAPES[0])
    assert isinstance(found, ShapeIndex)
    arrays = found._known, found._sorted, found._ranking._kept
    assert sum(len(each) * each.itemsize for each in arrays) + len(found._marks) == 2_000 * 25
    assert not found._listed
    assert not found._scores._known


@pytest.mark.parametrize("seed", range(20))
def test_a_ranking_is_in_order_whatever_came_and_went(seed: int) -> None:
    rng = random.Random(seed)
    found, there, changed = Ranking(), dict[int, int](), set[int]()
    for _ in range(rng.choice((30, 3000))):
        place = rng.randrange(200)
        if place in changed or rng.random() < 0.01:
            found.settle()
            changed.clear()
        changed.add(place)
        old = there.pop(place, ranking.NOWHERE)
        if rng.random() < 0.7:
            short = rng.random() < 0.3
            room = (-rng.randrange(2**20), -rng.randrange(100), -rng.randrange(8))
            there[place] = of_room(room) if short else of_score(rng.randrange(-9000, 9000))
        found.change(ranking.number(old, place), ranking.number(there.get(place, ranking.NOWHERE), place))
    expected = sorted((standing, place) for place, standing in there.items())
    fitting = [(place, ZERO - standing) for standing, place in expected if standing < ranking.SHORT]
    assert [ranking.rank_and_score(each) for each in found.fitting()] == fitting
    assert list(found.short()) == [place for s, place in expected if s >= ranking.SHORT]
    assert len(found._kept) == len(there)


def test_the_room_that_comes_nearest_comes_first() -> None:
    rooms = [(1, 1, 0), (0, 1, 0), (0, 0, -1), (-5, -3, 0), (-5, -3, -1), (-5, -4, 0), (-79, -100, -8)]
    assert sorted(rooms, key=of_room, reverse=True) == rooms
    assert of_score(-(10**15)) < of_room((-(10**15), -(10**9), -(10**9)))


def test_seats_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seats, "SEATS", 8)
    monkeypatch.setattr(seats, "ALL_SEATS", 40)
    nodes = {f"n{i}": a_state(f"n{i}", i, 16, 1 + i) for i in range(30)}
    indexes = Indexes(nodes)
    for wanted in SHAPES:
        indexes.of(wanted)
        kept = [len(of_ask) for of_ask in indexes._seats._of.values()]
        assert max(kept) <= 8
        assert sum(kept) == indexes._seats._count <= 40


def test_the_fewer_nodes_there_are_the_fewer_states_of_theirs_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seats, "LEAST_SEATS", 10)
    monkeypatch.setattr(score, "LEAST_MEMO", 10)
    nodes = {f"n{i}": a_state(f"n{i}", i, 16, 1 + i) for i in range(20)}
    indexes = Indexes(nodes)
    for round_ in range(25):
        for node in nodes.values():
            node.used["cpu"] = round_
            node.version += 1
            indexes.stale(node.name)
        indexes.scorer.look()
        for wanted in SHAPES:
            indexes.of(wanted)
    assert len(indexes.scorer._presents) <= score.STATES * len(nodes)
    assert indexes._seats._count <= seats.OF_NODE * len(nodes)


def test_a_pin_by_uuid_is_weighed_on_the_nodes_that_have_such_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {f"n{i}": a_state(f"n{i}", i, 16, 16) for i in range(200)}
    indexes, weighed = Indexes(nodes), list[NodeBooks]()
    find = seats.Seats.find

    def noted(self: seats.Seats, ask: PodAsk, books: NodeBooks) -> Any:
        weighed.append(books)
        return find(self, ask, books)

    monkeypatch.setattr(seats.Seats, "find", noted)
    pinned = Shape(an_ask(mem=5, uuids=("gpu-n7-1", "GPU-n9-0")), 0, 0)
    assert [name for name, _ in indexes.of(pinned).ranked()] == ["n7", "n9"]
    assert weighed == [nodes["n7"].books, nodes["n9"].books]
    but = Shape(an_ask(mem=5, uuids=("!GPU-n7-*",)), 0, 0)
    assert {name for name, _ in indexes.of(but).ranked()} == nodes.keys() - {"n7"}
    large = Shape(an_ask(mem=50, uuids=("GPU-n7-1",)), 0, 0)
    assert indexes.of(large).nearest() == "n7", "what keeps it waiting is told of the node that it asks for"


def test_a_pod_that_names_gpus_keeps_no_index_and_costs_a_look_at_the_nodes_that_have_them() -> None:
    indexes = cluster(20)
    for i in range(20):
        assert looks(indexes, shape(an_ask(mem=1, uuids=(f"GPU-n{i:04}-0", "gpu-of-nobody")), amounts(1))) == 1
    assert len(indexes._shapes) == 0
    one = shape(an_ask(mem=1, uuids=("GPU-n0003-0",)), amounts(1))
    assert not indexes.prepare(one, 0)
    indexes.warm(one)
    assert len(indexes._shapes) == 0
    nodes = indexes.scorer._nodes
    assert isinstance(nodes, dict)
    nodes["moved"] = a_state("n0003", 30, 16, 16)
    nodes["moved"].name = "moved"
    del nodes["n0003"]
    for name in ("n0003", "moved"):
        indexes.stale(name)
    found = indexes.of(one)
    assert [name for name, _ in found.ranked()] == ["moved"]
    assert [list(found.ranked(among)) for among in (["n0001"], [])] == [[], []]
    del nodes["moved"]
    indexes.stale("moved")
    assert [list(indexes.of(one).ranked()), indexes._by_uuid._of.get("gpu-n0003-0")] == [[], None]


def test_a_shape_that_will_be_asked_soon_is_ready_by_then() -> None:
    indexes = cluster(50)
    for wanted in SHAPES[:3]:
        indexes.warm(wanted)
    slices = 1
    while indexes.ready(20):
        slices += 1
    assert slices <= 3 * (50 + TURN) // 20 + 1
    assert [looks(indexes, wanted) for wanted in SHAPES[:4]] == [0, 0, 0, 50]
    indexes.stale("n0007")
    indexes.warm(SHAPES[1])
    assert not indexes.ready(20)
    assert [looks(indexes, wanted) for wanted in SHAPES[:2]] == [1, 0]


def test_no_more_shapes_are_made_ready_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.engine.placement.indexes.MOST_SHAPES", 5)
    monkeypatch.setattr("extender.engine.placement.indexes.LEAST_SHAPES", 5)
    indexes = cluster(3)
    for wanted in SHAPES:
        indexes.warm(wanted)
    assert not indexes.ready(10_000)
    assert len(indexes._shapes) == 5


def test_of_a_pod_that_names_gpus_of_many_nodes_an_index_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uuid_index, "MOST", 3)
    indexes = cluster(20)
    for count in (3, 4):
        uuids = tuple(f"GPU-n{i:04}-0" for i in range(count))
        found = indexes.of(shape(an_ask(mem=1, uuids=uuids), amounts(1)))
        assert sorted(name for name, _ in found.ranked()) == [f"n{i:04}" for i in range(count)]
        assert len(indexes._shapes) == (count == 4)


def test_time_goes_to_no_shape_that_names_gpus_by_globs() -> None:
    indexes = cluster(20)
    wanted = Shape(PodAsk(containers=an_ask(mem=1).containers, selection=Selection(uuids=("GPU-n3-*",))), 0, 0)
    indexes.of(wanted)
    for name in indexes.scorer._nodes:
        indexes.stale(name)
    assert indexes.work(1000) == 1000
    assert looks(indexes, wanted) == 20

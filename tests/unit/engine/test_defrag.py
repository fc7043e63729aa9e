"""Plans of moves: which pods move where so that a pending pod fits, which plan is cheapest, and why none helps."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.planning.defrag_plan import DefragPlan, NoPlan
from extender.engine.policies.defrag.defrag import Defrag
from extender.engine.policies.defrag.request import DefragRequest
from extender.engine.types.effects import PodRef
from extender.engine.types.events import NodeSeen, PodGone, PodSeen
from gangfilter.group import GroupKey
from protos.contract import names
from protos.contract.objects import Taint
from tests.builders import a_node, a_pod
from tests.unit.engine.fleets import an_ask, members, whole
from tests.unit.engine.gang_story import GangStory, a_member
from tests.unit.engine.tenancy import CONTROLLER, Town

WHOLE = (1, True, 10)


def part(mem: int, gpus: int = 1) -> tuple[int, bool, int]:
    return gpus, False, mem


def test_nobody_is_moved_where_there_is_room() -> None:
    town = Town([1, 1])
    town.settle("a", part(6), node="n0")
    assert town.moves(an_ask(mem=4)) == []
    assert town.moves(whole()) == []


def test_the_pod_in_the_way_goes_where_there_is_room_for_it() -> None:
    town = Town([2, 1])
    town.settle("a", part(6), node="n0")
    town.settle("b", part(4), node="n1")
    assert town.moves(whole(2)) == ["a n0:0→n1:0"]


def test_a_pod_may_go_to_another_gpu_of_its_node() -> None:
    town = Town([2])
    town.settle("fixed", part(7), node="n0", movable=False)
    town.settle("passing", part(3), node="n0")
    town.settle("a", part(3), node="n0")
    town.engine.step(PodGone("uid-passing"), town.now)
    assert town.moves(whole()) == ["a n0:1→n0:0"]


def test_a_moved_pod_never_lands_on_the_room_that_is_freed() -> None:
    town = Town([1])
    town.settle("a", part(6), node="n0")
    assert "default/a (6 GiB on one GPU) then fits nowhere else" in town.why(an_ask(mem=5))


def test_moved_pods_fit_at_the_same_time() -> None:
    town = Town([2, 1])
    town.settle("a", part(6), node="n0")
    town.settle("b", part(6), node="n0")
    assert town.moves(whole()) == []
    assert "n0 could be freed by 2 moves, but default/" in town.why(whole(2))


def test_a_pod_in_the_way_of_a_moved_one_is_moved_in_its_turn() -> None:
    town = Town([1, 1, 1])
    town.settle("big", part(7), node="n0")
    town.settle("small", part(4), node="n1")
    town.settle("fixed", part(6), node="n2", movable=False)
    only_n0 = sum(1 << town.engine.nodes[name].number for name in ("n1", "n2"))
    assert town.moves(an_ask(mem=9), excluded=only_n0) == ["big n0:0→n1:0", "small n1:0→n2:0"]


def test_fewest_pods_are_moved() -> None:
    town = Town([1, 1, 1])
    town.settle("a", part(1), node="n0")
    town.settle("b", part(1), node="n0")
    town.settle("c", part(8), node="n1")
    town.settle("fixed", part(2), node="n2", movable=False)
    assert town.moves(whole()) == ["c n1:0→n0:0"]


def test_of_as_few_those_with_the_least_gpu_memory() -> None:
    town = Town([1, 1, 1])
    town.settle("large", part(5), node="n0")
    town.settle("small", part(3), node="n1")
    town.settle("fixed", part(5), node="n2", movable=False)
    assert town.moves(whole()) == ["small n1:0→n0:0"]


def test_of_as_cheap_ones_the_youngest_goes() -> None:
    for old, young in (("a", "b"), ("b", "a")):
        town = Town([1, 1, 1])
        town.settle("fixed", part(6), node="n2", movable=False)
        for name, node in (("a", "n0"), ("b", "n1")):
            day = "2026-01-01" if name == old else "2026-02-01"
            town.settle(name, part(4), node=node, creationTimestamp=f"{day}T00:00:00Z")
        (move,) = town.moves(whole())
        assert move.startswith(young)


@pytest.mark.parametrize(
    "pod",
    [
        {"movable": False},
        {"ownerReferences": []},
        {"annotations": {names.GROUP: "g"}},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    ],
    ids=["not restartable", "no controller", "of a gang", "going anyway"],
)
def test_a_pod_that_may_not_be_moved_is_not(pod: dict[str, Any]) -> None:
    town = Town([1, 1])
    town.settle("a", part(4), node="n0", **pod)
    town.settle("fixed", part(1), node="n1", movable=False)
    assert town.why(whole()) == "1 whole GPU: no GPU can be freed; nearest: n0, 1 pod there may not be moved"


def test_what_is_in_the_way_is_counted_on_the_nearest_node() -> None:
    town = Town([4, 4, 2])
    for number in range(5):
        town.settle(f"a{number}", part(6), node="n0", movable=number != 0)
    for number in range(3):
        town.settle(f"b{number}", part(6), node="n1", movable=False)
    said = "4 whole GPUs on one node: no 4-GPU node can be freed; nearest: n0, 1 pod there may not be moved"
    assert town.why(whole(4)) == said
    assert town.why(whole(5)) == "5 whole GPUs on one node: no node that it may go to has that, whatever is moved away"


def test_no_more_moves_than_allowed() -> None:
    town = Town([3, 3])
    for number in range(3):
        town.settle(f"a{number}", part(6), node="n0")
    town.settle("fixed", part(1), node="n1", movable=False)
    assert len(town.moves(whole(3), most=3)) == 3
    said = "3 whole GPUs on one node: n0 takes at least 3 moves, and at most 2 may be made"
    assert town.why(whole(3), most=2) == said


def test_it_does_not_matter_who_came_first() -> None:
    pods = [("a", 4, "n0"), ("b", 4, "n1"), ("c", 4, "n2"), ("d", 4, "n3")]

    def told(*, backwards: bool) -> list[str]:
        town = Town([2, 2, 2, 2], backwards=backwards)
        for name, units, node in sorted(pods, reverse=backwards):
            town.settle(name, part(units), node=node)
        return town.moves(whole(2), whole(2))

    assert told(backwards=True) == told(backwards=False) == ["a n0:0→n2:0", "b n1:0→n2:1"]


def test_a_node_that_it_may_not_go_to_is_not_freed() -> None:
    town = Town([1, 1])
    town.settle("a", part(4), node="n0")
    town.settle("b", part(4), node="n1")
    town.engine.nodes["n0"].taints = (Taint(key="k", effect="NoSchedule"),)
    assert "default/b" in town.why(whole())  # nor does b go there
    town.engine.nodes["n0"].taints = ()
    assert town.moves(whole()) == ["a n0:0→n1:0"]


def test_cpu_is_freed_too() -> None:
    town = Town([2, 1])
    busy = [{"name": "main", "resources": {"requests": {"cpu": "60"}}}]
    pod = a_pod(
        "busy",
        containers=busy,
        node="n0",
        phase="Running",
        annotations={names.RESTARTABLE: "true"},
        ownerReferences=CONTROLLER,
    )
    town.engine.step(PodSeen(pod), town.now)
    town.settle("fixed", part(1), node="n1", movable=False)
    assert town.moves(whole(), requests=(("cpu", 8000), ("pods", 1))) == ["busy n0:→n1:"]


def test_a_node_that_kube_scheduler_kept_it_off_for_want_of_cpu_may_be_freed() -> None:
    town = Town([2, 1])
    town.settle("a", part(4), node="n0", cpu=60)
    town.settle("fixed", part(1), node="n1", movable=False)
    kept_off = 1 << town.engine.nodes["n0"].number
    assert town.moves(whole(), excluded=kept_off, requests=(("cpu", 8000), ("pods", 1))) == ["a n0:0→n1:0"]
    assert town.why(whole(2), excluded=kept_off, requests=(("pods", 1),)).endswith("whatever is moved away")


def test_a_gang_gets_room_for_all_of_its_members() -> None:
    town = Town([2, 2, 2])
    for node in ("n0", "n1", "n2"):
        town.settle(f"p-{node}", part(3), node=node)
    found = town.plan([whole(2), whole(2)])
    assert isinstance(found, DefragPlan)
    assert len(found.moves) == 2
    assert {assignment.node for assignment in found.assignments.values()} == {move.pod.node for move in found.moves}
    assert found.verdict("gang default/g", town.engine.nodes) == (
        "2 moves make room for gang default/g: n0 GPU 0 and 1, n1 GPU 0 and 1"
    )


def test_of_a_large_gang_only_those_without_a_place_cost_moves() -> None:
    town = Town([4, 4, 4, 1])
    for node in ("n0", "n1", "n2"):
        town.settle(f"p-{node}", part(3), node=node)
    town.settle("fixed", part(1), node="n3", movable=False)
    found = town.plan([whole() for _ in range(10)])
    assert isinstance(found, DefragPlan)
    assert len(found.moves) == 1
    assert len(found.assignments) == 10


def test_what_is_kept_for_the_one_who_waits_is_free_for_it() -> None:
    town = Town([1])
    keeper = town.engine.ledger.pod(PodRef("default", "keeper", "uid-keeper"), 0.0)
    ask = whole()
    keeper.asked = ask
    books = town.engine.nodes["n0"].books
    assert books is not None
    found = town.plan([ask])
    assert isinstance(found, DefragPlan)
    town.engine.ledger.hold(keeper, "n0", found.assignments["w0"].charges)
    assert isinstance(town.plan([ask]), NoPlan)
    plan = Defrag(town.engine.gangs.planner.view, town.engine.movable_pods, members(1, ask), void=[keeper])
    while not plan.advance():
        pass
    assert isinstance(plan.outcome, DefragPlan)


def test_it_works_in_small_pieces_and_changes_no_books() -> None:
    town = Town([2] * 4)
    for node in range(4):
        for number in range(2):
            town.settle(f"p{node}-{number}", part(6), node=f"n{node}")
    before = {name: node.books and node.books.signature() for name, node in town.engine.nodes.items()}
    plan = Defrag(town.engine.gangs.planner.view, town.engine.movable_pods, members(1, whole(2)))
    pieces = 1
    while not plan.advance(limit=200):
        pieces += 1
    assert pieces > 5
    assert isinstance(plan.outcome, NoPlan)
    assert {name: node.books and node.books.signature() for name, node in town.engine.nodes.items()} == before


# -- requests


@pytest.mark.parametrize("name", ["g", "m1"], ids=["by its name", "by one of its pods"])
def test_a_gang_that_waits(name: str) -> None:
    world = GangStory(a_node("n1", 10, 10), a_node("n2", 10))
    mover = a_pod("a", mem=3, annotations={names.RESTARTABLE: "true"}, ownerReferences=CONTROLLER)
    world.create(mover, a_pod("c", mem=3))
    for pod, node in (("a", "n1"), ("c", "n2")):
        world.ask(pod, [node])
        assert world.bind(pod, node) == "flying"
    world.land("a", "c")
    world.create(*(a_member(f"m{i}", least=2, whole=1) for i in range(2)))
    world.run_slice()
    told = plan_for(world, name)
    assert told["verdict"] == "1 move makes room for gang default/g: n1 GPU 0 and 1"
    assert [(move["name"], move["from"], move["to"]) for move in told["moves"]] == [
        ("a", {"node": "n1", "gpus": [0]}, {"node": "n2", "gpus": [0]})
    ]
    assert [(room["name"], room["node"], room["containers"]) for room in told["rooms"]] == [
        ("m0", "n1", {"main": ["GPU-n1-0"]}),
        ("m1", "n1", {"main": ["GPU-n1-1"]}),
    ]


def test_who_does_not_wait_is_told_so() -> None:
    world = GangStory(a_node("n1", 10, 10))
    world.start(*(a_member(f"m{i}", least=2, whole=1) for i in range(2)))
    for name, said in (
        ("g", "gang default/g is not pending: it is Running"),
        ("m0", "default/m0 is not pending: it is bound to n1"),
    ):
        assert asked(world, name) == NoPlan(said)
    assert asked(world, "nobody") is None
    world.create(a_pod("odd", mem=3, annotations={names.GPU_COUNT: "2"}))
    found = asked(world, "odd")
    assert isinstance(found, NoPlan)
    assert "does not divide" in found.why


def asked(world: GangStory, name: str) -> DefragRequest | NoPlan | None:
    """A plan for a pod or gang of this name."""
    pod = next((pod for pod in world.engine.pods.values() if pod.ref.name == name), None)
    return world.engine.defrag(pod, GroupKey("default", name), 8)


def plan_for(world: GangStory, name: str) -> dict[str, Any]:
    errand = asked(world, name)
    assert isinstance(errand, DefragRequest)
    while not errand.advance():
        pass
    return {**errand.told(world.engine.nodes), "rooms": list(errand.rooms(world.engine.nodes))}


def test_room_for_equal_members_is_made_on_one_model() -> None:
    world = GangStory(a_node("a", 40, 40, models=["A100"] * 2))
    world.create(a_pod("low", mem=8, annotations={names.RESTARTABLE: "true"}, ownerReferences=CONTROLLER))
    world.come("low")
    world.land()
    world.nodes["b"] = a_node("b", 16, 16, models=["T4"] * 2)
    world.tell(NodeSeen(world.nodes["b"]))
    world.create(a_pod("fixed", mem=8, annotations={names.GPU_MODEL: "T4"}))
    world.come("fixed")
    world.land()
    world.create(*(a_member(f"m{i}", whole=1, least=2) for i in range(2)))
    assert world.why() == "GangMixedModels"
    found = plan_for(world, "g")
    assert [(move["name"], move["to"]["node"]) for move in found["moves"]] == [("low", "b")], found
    assert {room["node"] for room in found["rooms"]} == {"a"}

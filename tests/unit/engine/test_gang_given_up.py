"""Failed starts of gangs: their places are given back, and they are planned again."""

from __future__ import annotations

import pytest

from extender.engine.types.events import GroupSeen, NodeGone, NodeSeen
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.objects import Node, NodeSpec, Taint
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import KEY, VOLCANO, GangStory, a_declaration, a_member, members, two_nodes


def test_a_gang_that_does_not_fit_is_planned_anew_when_its_members_are_others() -> None:
    world = GangStory(a_node("n1", 16))
    world.create(a_member("big", least=2, mem=30), a_member("small0", least=2, mem=8))
    world.come("big", "small0")
    assert world.phase() is Phase.WAITING
    world.create(a_member("small1", least=2, mem=8))
    assert world.phase() is Phase.WAITING
    world.delete("big")
    assert world.phase() is Phase.STARTING


def test_a_large_gang_that_does_not_fit_is_not_planned_anew_with_every_pod_that_goes() -> None:
    world = GangStory(a_node("n1", 80))
    world.create(a_pod("s0", node="n1", mem=16), *members(65, mem=1))
    assert world.phase() is Phase.WAITING
    first = world.engine.counters["gang_starts", "planned"]
    told = world.why()
    world.delete("s0")
    assert (world.phase(), world.why()) == (Phase.WAITING, told)
    world.later(0.6)
    assert world.phase() is Phase.STARTING
    assert world.engine.counters["gang_starts", "planned"] == first + 1


def test_a_gang_that_does_not_fit_is_planned_anew_when_a_member_asks_something_else() -> None:
    world = two_nodes()
    world.create(*members(2, mem=8, annotations={names.GPU_MODEL: "H100"}))
    assert world.phase() is Phase.WAITING
    for name in ("m0", "m1"):
        world.change(name, annotations={**world.pods[name].metadata.annotations, names.GPU_MODEL: "T4"})
    world.run_slice()
    assert world.phase() is Phase.STARTING


def test_a_gang_that_does_not_fit_is_planned_anew_when_its_minimum_is_lowered() -> None:
    world = two_nodes()
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=5)))
    world.create(*members(5, least=None, mem=16))
    assert world.phase() is Phase.WAITING
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=4)))
    world.run_slice()
    assert world.phase() is Phase.STARTING


def test_a_start_in_which_nobody_comes_is_given_up_and_others_go_on() -> None:
    world = two_nodes()
    world.create(*members(4, mem=16))
    world.come("m0", "m1")
    world.create(a_pod("single", mem=16))
    assert world.come("single") == ["NoRoom"]
    world.later(16)
    assert world.denied() == {"m0": "GangAgain", "m1": "GangAgain"}
    assert world.phase() is Phase.WAITING
    assert [name for name in world.booked() if name != "single"] == []
    assert world.come("single") == ["flying"]


def test_it_is_planned_again_as_soon_as_all_have_asked_again() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1")
    world.later(16)
    assert world.phase() is Phase.WAITING
    assert world.come("m0", "m1") == ["GangAgain", "GangAgain"]
    world.later(1)
    assert world.phase() is Phase.WAITING
    world.come("m2")
    world.later(1)
    assert world.phase() is Phase.STARTING


def test_it_is_planned_again_after_a_while_and_who_did_not_come_is_woken() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1")
    world.later(16)
    before = len(world.done)
    world.later(10)
    assert world.phase() is Phase.STARTING
    assert [name for name, node in world.woken(before) if node] == ["m2"]


def test_a_member_that_never_comes_costs_ever_less() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    held = 0
    for _ in range(600):
        world.later(1)
        held += world.phase() is Phase.STARTING
    assert held < 100


def test_each_new_member_in_bind_gives_the_start_more_time_but_not_without_end() -> None:
    world = GangStory(a_node("n1", *[16] * 8))
    world.create(*members(8, mem=16))
    for name in ("m0", "m1", "m2", "m3"):
        world.come(name)
        world.later(14)
        assert world.phase() is Phase.STARTING
    world.come("m4")
    world.later(5)
    assert world.phase() is Phase.WAITING
    assert sorted(world.denied()) == ["m0", "m1", "m2", "m3", "m4"]


def test_a_member_that_comes_into_bind_and_leaves_again_and_again_holds_nothing_for_ever() -> None:
    world = two_nodes()
    world.create(*members(2, mem=16))
    for _ in range(4):
        world.come("m0")
        world.later(5)
        if "m0" in world.held:
            world.leave("m0")
    assert world.phase() is Phase.WAITING
    assert world.booked() == []


def test_a_held_bind_that_nobody_waits_for_is_waited_for_anew() -> None:
    world = two_nodes()
    world.create(*members(2, mem=16))
    world.come("m0")
    world.leave("m0")
    assert world.come("m1") == ["held"]
    assert world.come("m0") == ["flying"]


def test_a_member_deleted_while_it_starts_ends_the_start_of_those_that_are_too_few() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1")
    world.delete("m2")
    assert world.denied() == {"m0": "GangAgain", "m1": "GangAgain"}
    assert world.phase() is Phase.ASSEMBLING
    assert world.booked() == []


def test_a_member_deleted_in_bind_is_denied_and_the_others_go_on_if_they_are_enough() -> None:
    world = two_nodes()
    world.create(*members(4, least=3, mem=16))
    world.come("m0", "m1")
    world.delete("m1")
    assert world.denied() == {"m1": "PodGone"}
    assert world.come("m2", "m3") == ["held", "flying"]


def test_a_node_that_goes_while_a_gang_starts_is_planned_around() -> None:
    world = GangStory(*(a_node(f"n{i}", 16) for i in range(3)))
    world.create(*members(2, mem=16))
    world.come("m0")
    lost = world.gang().members["uid-m0"].node
    del world.nodes[lost]
    world.tell(NodeGone(lost))
    world.later()
    assert world.denied() == {"m0": "GangAgain"}
    assert world.come("m0", "m1") == ["held", "flying"]
    assert {place.node for place in world.flying.values()} == set(world.nodes)


@pytest.mark.parametrize("change", ["sick", "tainted", "without inventory", "cordoned"])
def test_a_place_that_is_none_any_more_is_planned_anew(change: str) -> None:
    world = GangStory(*(a_node(f"n{i}", 16) for i in range(3)))
    world.create(*members(2, mem=16))
    node = world.gang().members["uid-m0"].node
    changed = {
        "sick": a_node(node, 16, annotations={names.CORDONED_GPUS: "0"}),
        "tainted": a_node(node, 16),
        "without inventory": a_node(node),
        "cordoned": a_node(node, 16),
    }[change]
    if change in ("tainted", "cordoned"):
        spec = NodeSpec(taints=(Taint("t", "NoSchedule"),)) if change == "tainted" else NodeSpec(unschedulable=True)
        changed = Node(changed.metadata, spec, changed.status)
    world.tell(NodeSeen(changed))
    world.later()
    assert node not in [m.node for m in world.gang().holding()]
    assert world.phase() is Phase.STARTING


def test_a_planned_node_that_kube_scheduler_refuses_is_left_out_once_it_has_refused_twice() -> None:
    world = GangStory(*(a_node(f"n{i}", 16) for i in range(3)))
    world.create(*members(2, mem=16))
    node = world.gang().members["uid-m0"].node
    others = sorted(set(world.nodes) - {m.node for m in world.gang().holding()})
    assert world.ask("m0", others).reason is not None
    assert world.phase() is Phase.STARTING
    world.later(1.1)
    assert ("m0", node) in world.woken()
    assert world.phase() is Phase.STARTING
    world.ask("m0", others)
    world.later()
    assert world.gang().members["uid-m0"].node in others
    assert world.come("m1") == ["held"]
    assert world.bind("m0", *world.ask("m0", others).nodes) == "flying"


def test_a_refusal_that_passes_is_no_refusal() -> None:
    world = GangStory(*(a_node(f"n{i}", 16) for i in range(3)))
    world.create(*members(2, mem=16))
    others = sorted(set(world.nodes) - {m.node for m in world.gang().holding()})
    world.ask("m0", others)
    world.later(1.1)
    assert world.come("m0") == ["held"]
    world.ask("m1", [world.gang().members["uid-m1"].node])
    assert world.phase() is Phase.STARTING


def test_the_question_about_an_older_nomination_alone_is_no_refusal_of_the_planned_node() -> None:
    world = GangStory(*(a_node(f"n{i}", 16) for i in range(3)))
    world.create(*members(2, mem=16))
    node = world.gang().members["uid-m0"].node
    other = min(set(world.nodes) - {node})
    for _ in range(3):
        assert world.ask("m0", [other], nominated=other).nodes == ()
        world.later(2)
    assert world.gang().members["uid-m0"].node == node
    assert world.phase() is Phase.STARTING

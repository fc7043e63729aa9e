"""Gangs from their creation until they run: nobody holds anything alone, and all start together."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from extender.engine.effects import GroupGone, GroupSeen, Leading, NodeGone, NodeSeen, PodSeen
from gangfilter.group import Declaration, GroupKey
from gangfilter.table import Phase
from protos.contract import allocation, names
from protos.contract.allocation import Group
from protos.contract.objects import Condition, Node, NodeSpec, Pod, Taint
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, a_member, at_wall, members
from tests.unit.engine.story import owned_by

KEY = GroupKey("default", "g")
VOLCANO = "scheduling.volcano.sh/v1beta1"


def two_nodes(**settings: object) -> GangStory:
    """Two GPUs of 16 units on each of two nodes."""
    return GangStory(a_node("n1", 16, 16), a_node("n2", 16, 16), **settings)


def a_declaration(**fields: object) -> Declaration:
    return Declaration(source="PodGroup", **fields)  # type: ignore[arg-type]


# -- assembling and waiting


def test_a_gang_that_is_not_complete_waits_with_numbers_and_holds_nothing() -> None:
    world = two_nodes()
    world.create(*members(2, least=3))
    assert world.come("m0", "m1") == ["GangAssembling", "GangAssembling"]
    assert world.phase() is Phase.ASSEMBLING
    assert str(world.known().reason) == "gang default/g waits for its members: 2 of 3 members exist"
    assert world.booked() == []


def test_the_sentence_for_kube_scheduler_does_not_move_with_the_numbers() -> None:
    world = two_nodes()
    world.create(a_member("m0", least=3, mem=8))
    before = world.ask("m0").reason
    world.create(a_member("m1", least=3, mem=8))
    after = world.ask("m0").reason
    assert before is not None
    assert after is not None
    assert before.sentence == after.sentence
    assert before.numbers != after.numbers


def test_a_gang_of_unknown_size_waits_and_says_so() -> None:
    world = two_nodes()
    world.create(a_member("m0", least=None, mem=8))
    world.come("m0")
    world.later(60)
    assert "nobody says how many" in str(world.known().reason)
    assert world.booked() == []


def test_a_gang_that_does_not_fit_waits_with_numbers_and_holds_nothing() -> None:
    world = two_nodes()
    world.create(*members(5, mem=16))
    assert world.come("m0") == ["GangNoRoom"]
    assert world.phase() is Phase.WAITING
    assert "short by 1" in str(world.known().reason)
    assert world.booked() == []


def test_what_is_not_a_member_is_not_counted() -> None:
    world = two_nodes(schedulers=frozenset({"default-scheduler"}))
    gated = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    world.create(
        a_member("m0", mem=8),
        a_member("gated", mem=8, spec=gated),
        a_member("elsewhere", mem=8, spec={"schedulerName": "another"}),
        a_member("nonsense", mem=7, annotations={names.GPU_COUNT: "2"}),
        a_member("forged", mem=8, annotations={names.ALLOCATION: "{}"}),
        a_member("other", gang="h", mem=8),
    )
    world.terminate("other")
    assert world.gang().lacking() == "1 of 3 members exist"


def test_the_same_name_in_two_namespaces_is_two_gangs() -> None:
    world = two_nodes()
    world.create(a_member("m0", least=2, mem=8), a_member("m1", least=2, mem=8, namespace="other", uid="uid-x"))
    assert world.gang().lacking() == "1 of 2 members exist"


def test_a_gang_that_exists_before_it_is_asked_for_is_planned_at_once_and_nobody_is_refused() -> None:
    world = two_nodes()
    world.create(*members(4, mem=16))
    assert world.come("m0", "m1", "m2", "m3") == ["held", "held", "held", "flying"]
    assert world.woken() == []
    assert len(world.flying) == 4


def test_members_that_were_refused_are_woken_to_their_nodes_once_the_gang_is_complete() -> None:
    world = two_nodes()
    world.create(*members(1, least=2, mem=16))
    world.come("m0")
    world.create(a_member("m1", least=2, mem=16))
    assert [name for name, node in world.woken() if node] == ["m0"]
    assert world.phase() is Phase.STARTING


def test_members_that_wait_behind_our_gate_are_woken() -> None:
    world = two_nodes()
    world.create(*members(2, spec={"schedulingGates": [{"name": names.PLAN_GATE}]}))
    assert {name for name, _ in world.woken()} == {"m0", "m1"}


def test_on_large_clusters_members_are_nominated_before_they_are_asked_for() -> None:
    world = two_nodes(nominate_from=2)
    world.create(*members(2))
    assert {name for name, node in world.woken() if node} == {"m0", "m1"}


# -- the barrier


def test_nothing_is_bound_before_the_minimum_is_in_bind() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    assert world.come("m0", "m1") == ["held", "held"]
    assert world.flying == {}
    assert world.phase() is Phase.STARTING
    assert world.come("m2") == ["flying"]
    assert sorted(world.flying) == ["m0", "m1", "m2"]
    assert world.phase() is Phase.BINDING
    world.land()
    assert world.phase() is Phase.RUNNING


def test_a_planned_member_is_sent_to_its_node_only_and_always_to_the_same() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    first = world.ask("m0").nodes
    assert len(first) == 1
    assert world.ask("m0").nodes == first
    other = ({"n1", "n2"} - set(first)).pop()
    assert world.bind("m0", other) == "GangStarting"


def test_what_a_start_holds_stays_held_however_often_kube_scheduler_asks() -> None:
    world = two_nodes()
    world.create(*members(4, mem=16), a_pod("single", mem=16))
    world.ask("m0")
    world.later(3)
    world.ask("m0")
    world.show("m0")
    assert world.ask("single").reason is not None
    assert world.booked() == ["m0", "m1", "m2", "m3"]


def test_the_allocation_names_the_start() -> None:
    world = two_nodes()
    world.start(*members(3, mem=16))
    told = {name: allocation.decode(pod.metadata.annotations[names.ALLOCATION]) for name, pod in world.pods.items()}
    assert {found.group for found in told.values() if found} == {Group("default/g", 1, 3)}


def test_members_without_gpus_count_and_carry_an_allocation_without_gpus() -> None:
    world = two_nodes()
    world.start(*members(2, least=3, mem=16), a_member("launcher", role="launcher"))
    written = allocation.decode(world.pods["launcher"].metadata.annotations[names.ALLOCATION])
    assert written is not None
    assert (written.containers, written.group) == ({}, Group("default/g", 1, 3))
    assert world.taken_away() == []
    world.show("launcher")
    assert world.taken_away() == []


def test_an_allocation_that_a_waiting_member_brings_along_is_taken_away_before_it_counts() -> None:
    world = two_nodes()
    forged = allocation.encode(allocation.Allocation(1, 1024, 100, {}, Group("default/g", 7, 2)))
    world.create(*members(1, least=2), a_member("launcher", least=2, annotations={names.ALLOCATION: forged}))
    assert world.taken_away() == [("launcher", None)]
    assert world.gang().lacking() == "1 of 2 members exist"
    world.change("launcher", annotations={names.GROUP: "g", names.MIN_MEMBER: "2"})
    world.think()
    assert world.phase() is Phase.STARTING


def test_the_launcher_is_always_among_those_that_start() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.create(*members(4, least=2, mem=8), a_member("launcher", least=2, mem=16, role="launcher"))
    assert "launcher" in world.booked()
    workers = [name for name in world.booked() if name != "launcher"]
    assert world.come(*workers) == ["held"] * len(workers)
    assert world.come("launcher") == ["flying"]


def test_a_launcher_that_comes_while_the_others_start_is_waited_for() -> None:
    world = two_nodes()
    world.create(*members(2, mem=8))
    world.come("m0")
    world.create(a_member("launcher", least=2, mem=8, role="launcher"))
    world.later()
    assert world.denied() == {"m0": "GangAgain"}
    assert world.come("m0", "m1") == ["held", "held"]
    assert world.come("launcher") == ["flying"]


def test_a_launcher_that_comes_later_is_placed_and_nobody_misses_it_before() -> None:
    world = two_nodes()
    world.start(*members(2, mem=8, lost="restart"))
    world.create(a_member("launcher", least=2, mem=8, role="launcher", lost="restart"))
    assert world.phase() is Phase.RUNNING
    assert world.come("launcher") == ["flying"]
    world.land()
    assert world.phase() is Phase.RUNNING
    assert world.evicted() == []


def test_members_beyond_the_minimum_that_found_no_room_are_placed_singly_after_the_start() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.create(*members(3, least=2, mem=16))
    assert world.come("m2", "m0", "m1") == ["GangStarting", "held", "flying"]
    world.land("m0", "m1")
    assert world.phase() is Phase.RUNNING
    assert world.woken() == [("m2", "")]
    assert world.come("m2") == ["NoRoom"]
    world.delete("m0")
    world.later()
    assert world.come("m2") == ["flying"]


def test_a_planned_member_beyond_the_minimum_that_is_late_holds_nothing_once_the_others_run() -> None:
    world = two_nodes()
    world.create(*members(4, least=3, mem=16))
    world.come("m0", "m1", "m2")
    assert world.booked() == ["m0", "m1", "m2", "m3"]
    world.land()
    assert world.phase() is Phase.RUNNING
    assert world.booked() == ["m0", "m1", "m2"]
    assert world.come("m3") == ["flying"]


def test_a_planned_member_beyond_the_minimum_goes_through_while_the_others_are_bound() -> None:
    world = two_nodes()
    world.create(*members(4, least=3, mem=16))
    world.come("m0", "m1", "m2")
    assert world.come("m3") == ["flying"]


def test_roles_have_minimums_of_their_own() -> None:
    by_role = {names.MIN_MEMBER_BY_ROLE: '{"ps": 1, "worker": 2}'}
    world = two_nodes()
    world.create(*(a_member(f"w{i}", least=3, mem=8, role="worker", annotations=by_role) for i in range(3)))
    assert world.gang().lacking() == "0 of 1 ps exist"
    world.create(a_member("ps", least=3, role="ps", annotations=by_role))
    assert world.phase() is Phase.STARTING


def test_only_what_kube_scheduler_asked_about_is_planned_and_more_as_soon_as_it_does() -> None:
    world = two_nodes()
    world.pods["other"] = a_pod("other", whole=2, node="n2")
    world.show("other")
    world.create(*members(2, mem=16))
    world.come("m0", "m1")
    world.fail()
    world.later(60)
    for name in ("m0", "m1"):
        world.ask(name, ["n2"])
    world.later(60)
    assert world.why() == "GangNoRoom"
    for name in ("m0", "m1"):
        world.ask(name, ["n1", "n2"])
    world.later()
    assert world.phase() is Phase.STARTING


# -- room


def test_two_gangs_for_the_same_gpus_start_one_after_the_other() -> None:
    world = two_nodes()
    one, two = members(4, mem=16, prefix="a", gang="one"), members(4, mem=16, prefix="b", gang="two")
    world.create(*(pod for pair in zip(one, two, strict=True) for pod in pair))
    world.come(*(pod.metadata.name for pair in zip(one, two, strict=True) for pod in pair))
    world.land()
    assert {world.phase("one"), world.phase("two")} == {Phase.RUNNING, Phase.WAITING}
    runs = "a" if world.phase("one") is Phase.RUNNING else "b"
    assert world.booked() == [f"{runs}{i}" for i in range(4)]
    world.delete(*(f"{runs}{i}" for i in range(4)))
    world.later()
    waited = "b" if runs == "a" else "a"
    assert sorted(name for name, node in world.woken() if node) == [f"{waited}{i}" for i in range(4)]
    world.come(*(f"{waited}{i}" for i in range(4)))
    assert len(world.flying) == 4


def test_room_that_comes_while_the_plan_is_made_is_not_missed() -> None:
    world = two_nodes()
    world.create(a_pod("single", mem=16))
    world.come("single")
    world.land()
    for pod in members(4, mem=16):
        world.pods[pod.metadata.name] = pod
        world.show(pod.metadata.name)
    world.engine.think(world.now)
    world.delete("single")
    world.later()
    assert world.phase() is Phase.STARTING


def test_a_gang_that_waits_for_cpus_starts_when_a_pod_without_gpus_ends() -> None:
    world = GangStory(a_node("n1", 16, allocatable={"cpu": "2", "memory": "8Gi", "pods": "10"}))
    needs = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    busy = a_pod("busy", containers=[{"name": "main", "resources": needs}], node="n1")
    world.pods["busy"] = busy
    world.show("busy")
    limits = {"cpu": "1", names.GPU_MEM: "4"}
    box = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
    world.create(*(a_member(f"m{i}", least=2, containers=box) for i in range(2)))
    assert world.phase() is Phase.WAITING
    world.delete("busy")
    world.later()
    assert world.phase() is Phase.STARTING


def test_a_member_that_dies_while_the_plan_is_made_is_not_in_it() -> None:
    world = two_nodes()
    for pod in members(4, least=3, mem=16):
        world.pods[pod.metadata.name] = pod
        world.show(pod.metadata.name)
    while not world.engine.gangs.starts.idle and world.engine.gangs.starts._plan is None:
        world.engine.think(world.now)
    world.delete("m1")
    world.later()
    assert world.booked() == ["m0", "m2", "m3"]


def test_a_member_that_asks_something_else_is_planned_anew() -> None:
    world = two_nodes()
    world.create(*members(2, mem=16))
    world.come("m0")
    said = world.pods["m1"].metadata.annotations
    world.change("m1", annotations={**said, names.GPU_UUID: "GPU-n2-1"})
    world.later()
    world.come("m0", "m1")
    world.land()
    given = allocation.decode(world.pods["m1"].metadata.annotations[names.ALLOCATION])
    assert given is not None
    assert given.uuids() == {"GPU-n2-1"}


def test_what_kube_scheduler_sees_a_member_ask_before_the_watch_shows_it_is_planned_anew_too() -> None:
    world = two_nodes()
    world.create(*members(2, mem=16))
    pod = world.pods["m0"]
    said = {**pod.metadata.annotations, names.GPU_UUID: "GPU-n2-1"}
    world.pods["m0"] = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=said))
    assert world.ask("m0").reason is not None
    world.show("m0")
    world.later()
    world.come("m0", "m1")
    world.land()
    given = allocation.decode(world.pods["m0"].metadata.annotations[names.ALLOCATION])
    assert given is not None
    assert given.uuids() == {"GPU-n2-1"}


# -- starts that come to nothing


def test_a_gang_that_does_not_fit_is_planned_anew_when_its_members_are_others() -> None:
    world = GangStory(a_node("n1", 16))
    world.create(a_member("big", least=2, mem=30), a_member("small0", least=2, mem=8))
    world.come("big", "small0")
    assert world.phase() is Phase.WAITING
    world.create(a_member("small1", least=2, mem=8))
    assert world.phase() is Phase.WAITING
    world.delete("big")
    assert world.phase() is Phase.STARTING


def test_a_gang_that_does_not_fit_is_planned_anew_when_a_member_asks_something_else() -> None:
    world = two_nodes()
    world.create(*members(2, mem=8, annotations={names.GPU_MODEL: "H100"}))
    assert world.phase() is Phase.WAITING
    for name in ("m0", "m1"):
        world.change(name, annotations={**world.pods[name].metadata.annotations, names.GPU_MODEL: "T4"})
    world.think()
    assert world.phase() is Phase.STARTING


def test_a_gang_that_does_not_fit_is_planned_anew_when_its_minimum_is_lowered() -> None:
    world = two_nodes()
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=5)))
    world.create(*members(5, least=None, mem=16))
    assert world.phase() is Phase.WAITING
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=4)))
    world.think()
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
    others = sorted(set(world.nodes) - {node})
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
    node = world.gang().members["uid-m0"].node
    others = sorted(set(world.nodes) - {node})
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


# -- after the barrier


def test_a_binding_that_is_lost_is_tried_again_at_its_place() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16), a_pod("single", mem=16))
    world.come("m0", "m1", "m2", "single")
    node = world.flying["m1"].node
    world.fail("m1")
    world.land("m0", "m2")
    world.create(a_pod("rival", mem=16))
    assert world.come("rival") == ["NoRoom"]
    assert world.ask("m1").nodes == (node,)
    assert world.bind("m1", node) == "flying"
    world.land("m1")
    assert world.phase() is Phase.RUNNING


def test_a_lost_binding_on_a_node_that_is_gone_is_tried_anywhere() -> None:
    world = GangStory(*(a_node(f"n{i}", 16) for i in range(3)))
    world.create(*members(2, mem=16))
    world.come("m0", "m1")
    node = world.flying["m0"].node
    del world.nodes[node]
    world.tell(NodeGone(node))
    world.fail("m0")
    world.land("m1")
    assert world.come("m0") == ["flying"]
    assert world.flying["m0"].node != node


def test_a_place_that_kube_scheduler_refuses_after_the_barrier_is_given_up_for_another() -> None:
    world = GangStory(*(a_node(f"n{i}", 16) for i in range(3)))
    world.create(*members(2, mem=16))
    world.come("m0", "m1")
    node = world.flying["m0"].node
    world.fail("m0")
    world.land("m1")
    others = sorted(set(world.nodes) - {node})
    assert world.ask("m0", others).nodes == ()
    world.later(1.1)
    (free,) = world.ask("m0", others).nodes
    assert world.bind("m0", free) == "flying"


def test_a_gang_that_is_not_whole_in_time_is_undone_and_starts_anew_as_a_whole() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1", "m2")
    world.land("m0", "m1")
    world.fail("m2")
    world.later(29)
    assert world.evicted() == []
    world.later(2)
    assert world.evicted() == ["m0", "m1"]
    assert world.phase() is Phase.UNDOING
    assert world.come("m2") == ["GangUndone"]
    world.terminate("m0", "m1")
    world.again("m0")
    world.again("m1")
    assert world.phase() is Phase.WAITING
    assert world.booked() == []
    world.later(11)
    world.come("m0", "m1", "m2")
    world.land()
    assert world.phase() is Phase.RUNNING
    assert world.gang().epoch == 2


def test_evictions_are_repeated_until_the_pods_go() -> None:
    world = two_nodes()
    world.create(*members(2, mem=16))
    world.come("m0", "m1")
    world.land("m0")
    world.fail("m1")
    world.later(45)
    assert len(world.evicted()) > 2
    assert set(world.evicted()) == {"m0"}
    world.terminate("m0")
    before = len(world.done)
    world.later(20)
    assert world.evicted(before) == []


def test_a_binding_that_comes_after_the_gang_was_given_up_is_undone_too() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1", "m2")
    world.land("m0")
    world.fail("m2")
    world.later(31)
    assert world.evicted() == ["m0"]
    world.land("m1")
    world.later(6)
    assert "m1" in world.evicted()
    world.terminate("m0", "m1")
    assert world.phase() is Phase.ASSEMBLING


def test_bindings_that_were_only_unknown_for_long_are_kept() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1", "m2")
    world.later(31)
    assert world.phase() is Phase.UNDOING
    world.land()
    world.later(10)
    assert world.phase() is Phase.RUNNING
    assert world.evicted() == []


def test_pods_that_nobody_would_make_anew_are_not_evicted_but_shown_degraded() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16, owner=""))
    world.come("m0", "m1", "m2")
    world.land("m0", "m1")
    world.fail("m2")
    world.later(31)
    assert world.phase() is Phase.DEGRADED
    assert world.evicted() == []
    assert world.come("m2") == ["flying"]
    world.land()
    assert world.phase() is Phase.RUNNING


def test_a_gang_without_owners_that_shall_restart_stays_degraded_and_nobody_spins() -> None:
    world = two_nodes()
    world.start(*members(3, mem=16, owner="", lost="restart"))
    world.delete("m0")
    world.later(60)
    assert world.phase() is Phase.DEGRADED
    assert world.evicted() == []


def test_a_gang_of_both_kinds_is_not_restarted_and_no_replacement_is_evicted_again_and_again() -> None:
    world = two_nodes()
    bare = a_member("bare", least=3, mem=16, owner="", lost="restart")
    world.start(*members(2, least=3, mem=16, lost="restart"), bare)
    world.terminate("m0")
    world.again("m0")
    world.later(60)
    assert world.evicted() == []
    assert world.come("m0") == ["flying"]


def test_a_member_that_its_kubelet_refuses_right_after_the_bind_is_replaced_in_time() -> None:
    world = two_nodes()
    world.start(*members(3, mem=16))
    world.later(5)
    world.refuse("m1")
    assert world.phase() is Phase.BINDING
    world.again("m1")
    assert world.come("m1") == ["flying"]
    world.land()
    assert world.phase() is Phase.RUNNING


def test_or_else_the_gang_is_undone() -> None:
    world = two_nodes()
    world.start(*members(3, mem=16))
    world.later(20)
    world.refuse("m1")
    world.later(29)
    assert world.evicted() == []
    world.later(2)
    assert world.evicted() == ["m0", "m2"]


def test_a_gang_that_is_undone_again_and_again_starts_ever_less_often() -> None:
    world = two_nodes()
    world.create(*members(2, mem=16))
    undone = []
    for serial in range(2, 400):
        if world.phase() is Phase.STARTING:
            world.come("m0", "m1")
            world.land()
            world.refuse("m1")
            world.again("m1", serial)
        elif world.phase() is Phase.UNDOING:
            world.again("m0", serial)
            undone.append(world.now)
        world.later(5)
    pauses = [later - earlier for earlier, later in itertools.pairwise(undone)]
    assert pauses == sorted(pauses)
    assert pauses[-1] > 300


def test_a_gang_whose_members_die_before_it_is_whole_begins_anew() -> None:
    world = two_nodes()
    world.create(*members(2, mem=16))
    world.come("m0", "m1")
    world.land("m0")
    world.terminate("m0")
    world.delete("m1")
    assert world.phase() is Phase.ASSEMBLING


# -- life after the start


def test_a_lost_member_is_waited_for_and_its_replacement_placed_singly() -> None:
    world = two_nodes()
    world.start(*members(3, mem=16))
    world.later(60)
    world.terminate("m1")
    assert world.phase() is Phase.DEGRADED
    world.again("m1")
    world.later(60)
    assert world.phase() is Phase.DEGRADED
    assert world.come("m1") == ["flying"]
    world.land()
    assert world.phase() is Phase.RUNNING
    assert world.evicted() == []


def test_the_rest_is_evicted_and_the_gang_starts_anew_as_a_whole() -> None:
    world = two_nodes()
    world.start(*members(3, mem=16, lost="restart"))
    world.later(60)
    world.delete("m1")
    assert world.evicted() == ["m0", "m2"]
    world.terminate("m0", "m2")
    for name in ("m0", "m2"):
        world.again(name)
    assert world.phase() is Phase.ASSEMBLING
    world.create(a_member("m3", mem=16, lost="restart"))
    world.come("m0", "m2", "m3")
    world.land()
    assert world.phase() is Phase.RUNNING


def test_a_minimum_that_is_raised_restarts_nobody() -> None:
    world = two_nodes()
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=2, on_member_lost="restart")))
    world.start(*members(2, least=None, mem=16))
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=3, on_member_lost="restart")))
    world.later(10)
    assert world.phase() is Phase.DEGRADED
    assert world.evicted() == []


def test_members_that_succeed_count() -> None:
    world = two_nodes()
    world.start(*members(3, mem=16, lost="restart"))
    world.change("m0", phase="Succeeded")
    world.delete("m0")
    assert world.phase() is Phase.RUNNING
    for name in ("m1", "m2"):
        world.change(name, phase="Succeeded")
    assert world.phase() is Phase.COMPLETED
    assert world.evicted() == []


def test_a_pod_that_ends_well_since_it_was_evicted_has_not_done_its_work() -> None:
    world = two_nodes()
    world.create(*members(2, mem=16))
    world.come("m0", "m1")
    world.land("m0")
    world.fail("m1")
    world.later(31)
    world.terminate("m0")
    world.change("m0", phase="Succeeded")
    world.later(1)
    assert world.phase() is Phase.ASSEMBLING
    world.restart()
    assert world.phase() is Phase.ASSEMBLING


def test_when_the_role_that_ends_it_has_succeeded_the_others_are_removed() -> None:
    world = two_nodes()
    launcher = a_member("launcher", role="launcher", ends="launcher")
    world.start(*members(2, least=3, mem=16, role="worker", ends="launcher"), launcher)
    world.change("launcher", phase="Succeeded")
    assert world.phase() is Phase.COMPLETED
    assert world.evicted() == ["m0", "m1"]
    world.later(6)
    assert world.evicted() == ["m0", "m1"] * 2
    world.terminate("m0", "m1")
    world.delete("m0", "m1")
    before = len(world.done)
    world.later(20)
    assert world.evicted(before) == []


def test_a_member_that_failed_after_the_others_had_succeeded_is_tried_again() -> None:
    """A Job makes such a pod anew: with those that have succeeded it is the whole gang."""
    world = two_nodes()
    world.start(*members(3, mem=16))
    for name in ("m0", "m1"):
        world.change(name, phase="Succeeded")
    world.change("m2", phase="Failed", container_statuses=a_pod().status.container_statuses)
    assert world.phase() is Phase.ASSEMBLING
    world.again("m2")
    assert world.come("m2") == ["flying"]
    world.land()
    world.change("m2", phase="Succeeded")
    assert world.phase() is Phase.COMPLETED


@pytest.mark.parametrize("restarted", [False, True])
def test_those_that_succeeded_for_another_owner_do_not_count_for_the_next_job_of_that_name(restarted: bool) -> None:
    world = two_nodes()
    world.start(*members(2, mem=16))
    for name in ("m0", "m1"):
        world.change(name, phase="Succeeded")
    if restarted:
        world.restart()
    assert world.phase() is Phase.COMPLETED
    world.create(a_member("x0", least=2, mem=16, owner="next"))
    if restarted:
        world.restart()
    assert world.phase() is Phase.ASSEMBLING
    assert world.gang().lacking() == "1 of 2 members exist"
    world.show("m0")
    assert world.phase() is Phase.ASSEMBLING
    world.create(a_member("x1", least=2, mem=16, owner="next"))
    world.come("x0", "x1")
    world.land()
    assert world.phase() is Phase.RUNNING
    world.show("m0", "m1")
    world.delete("x0")
    assert world.phase() is Phase.DEGRADED


def test_those_that_succeeded_and_were_deleted_do_not_count_for_a_gang_made_anew() -> None:
    world = two_nodes()
    world.start(*members(3, mem=16))
    for name in ("m0", "m1"):
        world.change(name, phase="Succeeded")
    world.delete("m0", "m1")
    assert world.phase() is Phase.RUNNING
    world.terminate("m2")
    world.create(a_member("m0", mem=16, uid="uid-m0-2"))
    assert world.gang().lacking() == "1 of 3 members exist"


def test_a_completed_gang_is_left_alone_by_a_restart() -> None:
    world = two_nodes()
    world.start(*members(3, mem=16))
    for name in ("m0", "m1", "m2"):
        world.change(name, phase="Succeeded")
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=3)))
    world.groups = [GroupSeen(VOLCANO, KEY, a_declaration(min_member=3))]
    before = len(world.done)
    world.restart()
    assert world.phase() is Phase.COMPLETED
    assert {status.phase for status in world.done[before:] if hasattr(status, "phase")} == {Phase.COMPLETED}


def test_a_gang_is_forgotten_with_its_last_pod() -> None:
    world = two_nodes()
    world.start(*members(2, mem=16))
    world.delete("m0", "m1")
    assert world.engine.gangs.known == {}
    assert world.engine.gangs.starts.wishes == {}


def test_a_replacement_that_found_no_room_waits_with_the_others_once_the_gang_is_gone() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.start(*members(2, mem=16, lost="ignore"))
    world.create(a_pod("single", mem=16))
    world.terminate("m1")
    world.again("m1")
    assert world.come("single", "m1") == ["flying", "NoRoom"]
    world.land()
    world.delete("m0")
    assert world.phase() is Phase.ASSEMBLING
    world.delete("single")
    before = len(world.done)
    world.later(2)
    assert world.booked() == []
    assert world.woken(before) == []
    world.create(a_member("m2", least=2, mem=16))
    assert [name for name, node in world.woken(before) if node] == ["m1"]


def test_what_a_member_was_promised_alone_ends_with_the_start_of_its_gang_and_not_in_it() -> None:
    world = two_nodes()
    world.start(*members(2, mem=16))
    world.terminate("m1")
    world.again("m1")
    assert len(world.ask("m1").nodes) > 0
    world.delete("m0")
    world.create(a_member("m2", least=2, mem=16))
    assert world.phase() is Phase.STARTING
    world.later(3)
    assert world.booked() == ["m1", "m2"]


# -- what is declared


def test_a_podgroup_says_the_minimum_and_is_told_how_the_gang_stands() -> None:
    world = two_nodes()
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=2)))
    assert world.status().phase is Phase.ASSEMBLING
    world.create(*members(2, least=None, mem=16))
    assert (world.status().phase, world.status().min_member, world.status().present) == (Phase.STARTING, 2, 2)
    world.come("m0", "m1")
    world.land()
    assert (world.status().phase, world.status().bound) == (Phase.RUNNING, 2)


def test_a_minimum_that_is_raised_while_the_gang_starts_ends_that_start() -> None:
    world = two_nodes()
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=2)))
    world.create(*members(2, least=None, mem=16))
    world.come("m0")
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=3)))
    assert world.denied() == {"m0": "GangAgain"}
    assert str(world.known().reason).endswith("2 of 3 members exist")


def test_a_podgroup_that_vanishes_before_the_start_leaves_a_gang_of_unknown_size() -> None:
    world = two_nodes()
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=2)))
    world.create(*members(2, least=None, mem=16))
    world.come("m0")
    world.tell(GroupGone(VOLCANO, KEY))
    assert world.denied() == {"m0": "GangAgain"}
    assert world.booked() == []
    assert world.phase() is Phase.ASSEMBLING


def test_a_podgroup_that_vanishes_later_ends_nothing() -> None:
    world = two_nodes()
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=2, on_member_lost="restart")))
    world.start(*members(2, least=None, mem=16))
    world.tell(GroupGone(VOLCANO, KEY))
    world.later(60)
    assert world.phase() is Phase.RUNNING
    assert world.evicted() == []


def test_a_minimum_that_members_change_themselves_holds() -> None:
    world = two_nodes()
    world.create(*members(2, least=3, mem=16))
    for name in ("m0", "m1"):
        said = world.pods[name].metadata.annotations
        world.change(name, annotations={**said, names.MIN_MEMBER: "2"})
    world.think()
    assert world.phase() is Phase.STARTING


def test_members_that_differ_are_told_once_and_the_stricter_holds() -> None:
    world = two_nodes()
    world.create(a_member("m0", least=2, mem=8), a_member("m1", least=3, mem=8))
    assert world.gang().terms.min_member == 3
    assert [code for _, code in world.told()] == ["GangConflict"]


def test_a_gang_that_waits_longer_than_it_may_has_failed_until_new_members_come() -> None:
    world = two_nodes()
    world.create(*members(2, least=3, mem=8, annotations={names.SCHEDULE_TIMEOUT_SECONDS: "60"}))
    world.later(59)
    assert world.phase() is Phase.ASSEMBLING
    world.later(2)
    assert world.phase() is Phase.FAILED
    assert world.come("m0") == ["GangTimedOut"]
    world.create(*members(1, least=3, mem=8, prefix="x", annotations={names.SCHEDULE_TIMEOUT_SECONDS: "60"}))
    assert world.phase() is Phase.STARTING


def test_the_limit_counts_from_the_first_member_and_goes_on_over_a_restart() -> None:
    world = two_nodes()
    world.groups = [GroupSeen(VOLCANO, KEY, a_declaration(min_member=3, schedule_timeout_s=60.0))]
    world.tell(*world.groups)
    world.later(100)
    world.create(*members(2, least=None, mem=8))
    assert world.phase() is Phase.ASSEMBLING
    world.later(40)
    world.restart()
    assert world.phase() is Phase.ASSEMBLING
    world.later(25)
    assert world.phase() is Phase.FAILED


# -- who leads


def test_a_process_that_may_not_write_holds_nothing_and_denies_held_binds() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1")
    world.tell(Leading(False))
    assert sorted(world.denied()) == ["m0", "m1"]
    assert world.booked() == []
    world.later(60)
    assert world.phase() is Phase.WAITING
    world.tell(Leading(True))
    world.later(11)
    assert world.phase() is Phase.STARTING


def test_a_process_that_may_not_write_evicts_nobody_and_follows_those_who_lead() -> None:
    world = two_nodes()
    world.create(*members(2, mem=16))
    world.come("m0", "m1")
    world.land("m0")
    world.fail("m1")
    world.tell(Leading(False))
    assert world.booked() == ["m0"]
    world.later(60)
    assert world.evicted() == []
    world.pods["m1"] = a_pod_bound_by_another(world, "m1", "m0")
    world.show("m1")
    assert world.phase() is Phase.RUNNING
    world.tell(Leading(True))
    world.later(10)
    assert world.evicted() == []


def test_evictions_that_another_leader_did_not_want_are_forgotten() -> None:
    world = two_nodes()
    world.create(*members(2, mem=16))
    world.come("m0", "m1")
    world.land("m0")
    world.fail("m1")
    world.later(31)
    assert world.phase() is Phase.UNDOING
    world.tell(Leading(False))
    world.pods["m1"] = a_pod_bound_by_another(world, "m1", "m0")
    world.show("m1")
    before = len(world.done)
    world.tell(Leading(True))
    world.later(20)
    assert world.phase() is Phase.RUNNING
    assert world.evicted(before) == []


def a_pod_bound_by_another(world: GangStory, name: str, like: str, node: str = "", ago: float = 0.0) -> Pod:
    """The pod as another process bound it, in the same start as `like`, on the first GPU that is free."""
    taken = {
        uuid
        for pod in world.pods.values()
        if pod.spec.node_name and (found := allocation.decode(pod.metadata.annotations.get(names.ALLOCATION)))
        for uuid in found.uuids()
    }
    start = allocation.decode(world.pods[like].metadata.annotations[names.ALLOCATION])
    assert start is not None
    nodes = [node] if node else sorted(world.nodes)
    uuid, there = next((f"GPU-{n}-{i}", n) for n in nodes for i in range(2) if f"GPU-{n}-{i}" not in taken)
    share = allocation.Share(uuid, int(uuid[-1]), 16)
    text = allocation.encode(msgspec.structs.replace(start, containers={"main": (share,)}))
    pod = world.pods[name]
    scheduled = Condition("PodScheduled", "True", last_transition_time=at_wall(world.now - ago))
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(
            pod.metadata, annotations={**pod.metadata.annotations, names.ALLOCATION: text}
        ),
        spec=msgspec.structs.replace(pod.spec, node_name=there),
        status=msgspec.structs.replace(pod.status, conditions=(scheduled,)),
    )


# -- restarts


def test_a_restart_while_a_gang_assembles_or_waits_changes_nothing() -> None:
    world = two_nodes()
    world.create(*members(2, least=3, mem=16))
    world.come("m0", "m1")
    world.restart()
    assert world.phase() is Phase.ASSEMBLING
    world.create(a_member("m2", least=3, mem=16))
    assert world.phase() is Phase.STARTING


def test_nothing_starts_before_everything_was_read() -> None:
    world = two_nodes()
    world.create(*members(4, least=2, mem=16))
    world.restart(wait=True)
    world.think()
    assert world.booked() == []
    assert world.come("m0") == ["GangNoRoom"]


def test_after_a_restart_members_that_kube_scheduler_had_refused_are_woken() -> None:
    world = two_nodes()
    world.create(*members(2, mem=16))
    for name in ("m0", "m1"):
        world.change(name, conditions=(Condition("PodScheduled", "False", "Unschedulable"),))
    before = len(world.done)
    world.restart()
    assert [name for name, _ in world.woken(before)] == ["m0", "m1"]


def test_a_restart_while_a_gang_starts_begins_that_start_anew() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1")
    world.restart()
    assert world.phase() is Phase.STARTING
    assert world.come("m0", "m1", "m2") == ["held", "held", "flying"]


def test_a_running_gang_is_left_alone_by_a_restart() -> None:
    world = two_nodes()
    world.start(*members(3, mem=16, lost="restart"))
    world.later(600)
    before = len(world.done)
    world.restart()
    world.later(60)
    assert world.phase() is Phase.RUNNING
    assert world.done[before:] == []
    assert world.booked() == ["m0", "m1", "m2"]
    assert world.gang().epoch == 1


def test_a_degraded_gang_is_left_alone_by_a_restart_also_if_a_replacement_was_just_bound() -> None:
    world = two_nodes()
    world.start(*members(4, mem=16))
    world.later(600)
    world.terminate("m1", "m2")
    world.again("m1")
    world.again("m2")
    world.come("m1")
    world.land("m1")
    world.restart()
    assert world.phase() is Phase.DEGRADED
    world.later(60)
    assert world.evicted() == []
    assert world.come("m2") == ["flying"]
    world.land()
    assert world.phase() is Phase.RUNNING


def test_a_half_bound_gang_is_finished_after_a_restart() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1", "m2")
    world.land("m0", "m1")
    world.later(5)
    for name in ("m2",):
        world.change(name, conditions=(Condition("PodScheduled", "False", "SchedulerError"),))
    before = len(world.done)
    world.restart()
    assert world.phase() is Phase.BINDING
    assert [name for name, _ in world.woken(before)] == ["m2"]
    assert world.come("m2") == ["flying"]
    world.land()
    assert world.phase() is Phase.RUNNING


def test_or_undone_within_the_time_that_it_had() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1", "m2")
    world.land("m0", "m1")
    world.later(20)
    world.restart()
    world.later(8)
    assert world.evicted() == []
    world.later(4)
    assert world.evicted() == ["m0", "m1"]


def test_a_half_gang_that_nobody_looked_after_for_long_is_finished_or_undone_all_the_same() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1", "m2")
    world.land("m0", "m1")
    world.now += 300
    world.restart()
    assert world.phase() is Phase.BINDING
    world.later(31)
    assert world.evicted() == ["m0", "m1"]


def test_a_restart_while_a_gang_is_undone_goes_on_undoing() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1", "m2")
    world.land("m0", "m1")
    world.fail("m2")
    world.later(31)
    world.terminate("m0")
    before = len(world.done)
    world.restart()
    world.later(32)
    assert world.evicted(before)[:1] == ["m1"]


def test_epochs_go_on_after_a_restart() -> None:
    world = two_nodes()
    world.start(*members(2, mem=16, lost="restart"))
    world.later(60)
    world.restart()
    world.delete("m0")
    world.create(a_member("m3", least=2, mem=16, lost="restart"))
    world.again("m1")
    world.come("m1", "m3")
    assert world.gang().epoch == 2


def test_a_member_bound_by_another_process_while_a_gang_starts_takes_the_others_along() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1")
    told = allocation.encode(
        allocation.Allocation(1, 1024, 100, {"main": (allocation.Share("GPU-n2-1", 1, 16),)}, Group("default/g", 9, 3))
    )
    pod = world.pods["m0"]
    world.pods["m0"] = a_pod(
        "m0", mem=16, node="n2", annotations={**pod.metadata.annotations, names.ALLOCATION: told},
        ownerReferences=[{"kind": "Job", "name": "job", "uid": "uid-job", "controller": True}],
    )  # fmt: skip
    world.tell(PodSeen(world.pods["m0"]))
    assert world.denied() == {"m0": "BindElsewhere"}
    assert sorted(world.flying) == ["m1"]
    assert world.phase() is Phase.BINDING
    world.land("m1")
    assert world.come("m2") == ["flying"]
    world.land()
    assert world.phase() is Phase.RUNNING


def test_pods_that_another_scheduler_placed_are_counted_but_never_evicted() -> None:
    world = two_nodes()
    for name in ("m0", "m1"):
        world.pods[name] = a_member(name, least=3, mem=16, node="n1", lost="restart")
        world.show(name)
    world.later(60)
    assert world.phase() is Phase.ASSEMBLING
    world.create(a_member("m2", least=3, mem=16, lost="restart"))
    assert world.come("m2") == ["flying"]
    world.land()
    assert world.phase() is Phase.RUNNING
    world.delete("m2")
    world.later(60)
    assert world.evicted() == []


def an_edited(pod: Pod, text: str, *, owned: bool) -> Pod:
    """The pod after a user has written this allocation onto it, and maybe covered that up."""
    managed = msgspec.Raw(msgspec.json.encode(owned_by("kubectl"))) if owned else msgspec.Raw()
    said = pod.metadata.annotations | {names.ALLOCATION: text}
    metadata = msgspec.structs.replace(pod.metadata, annotations=said, managed_fields=managed)
    return msgspec.structs.replace(pod, metadata=metadata)


def a_claim(epoch: int) -> str:
    """That a pod without GPUs belongs to a start."""
    return allocation.encode(allocation.Allocation(1, 1024, 100, {}, Group("default/g", epoch, 2)))


@pytest.mark.parametrize("seen_before", [False, True])
def test_a_pod_without_gpus_whose_user_claims_that_its_gang_has_started_starts_nobody(seen_before: bool) -> None:
    world = two_nodes()
    world.create(a_member("ps", least=3, node="n1"), a_member("m0", least=3, mem=8))
    world.pods["ps"] = an_edited(world.pods["ps"], a_claim(7), owned=True)
    if seen_before:
        world.show("ps")
    else:
        world.restart()
    assert world.taken_away() == [("ps", None)]
    assert world.phase() is Phase.ASSEMBLING
    assert world.come("m0") == ["GangAssembling"]


def test_what_a_pod_without_gpus_was_given_is_put_back() -> None:
    world = two_nodes()
    world.start(*members(1, least=2, mem=8), a_member("ps", least=2))
    ours = world.pods["ps"].metadata.annotations[names.ALLOCATION]
    world.pods["ps"] = an_edited(world.pods["ps"], a_claim(7), owned=True)
    world.show("ps")
    assert world.taken_away() == [("ps", ours)]
    assert world.gang().epoch == 1


def test_an_epoch_that_nobody_could_write_is_none() -> None:
    world = two_nodes()
    world.create(a_member("ps", least=2, node="n1"))
    world.pods["ps"] = an_edited(world.pods["ps"], a_claim(2**64 - 1), owned=False)
    world.restart()
    world.create(a_member("m0", least=2, mem=8))
    assert world.come("m0") == ["flying"]
    assert world.gang().epoch == 1


# -- size


def test_a_gang_of_five_hundred_starts_with_work_that_grows_with_its_size() -> None:
    world = GangStory(*(a_node(f"n{i}", *[16] * 8) for i in range(63)))
    world.create(*members(500, mem=16))
    before = world.engine.counters.total()
    found = world.come(*(f"m{i}" for i in range(500)))
    assert found.count("held") == 499
    assert len(world.flying) == 500
    world.land()
    assert world.phase() is Phase.RUNNING
    assert len(world.done) < 1100
    assert world.engine.counters.total() - before < 2000

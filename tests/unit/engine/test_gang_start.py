"""Gangs from their creation until all are in bind: no member holds anything alone, and all start together."""

from __future__ import annotations

import msgspec
import pytest

from extender.engine.types import look
from gangfilter.minimum import lacking
from gangfilter.table import Phase
from protos.contract import allocation, names
from protos.contract.allocation import Group
from tests.builders import a_node, a_pod, newer
from tests.unit.engine.gang_story import GangStory, a_member, members, two_nodes

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
    assert "members is unknown" in str(world.known().reason)
    assert world.booked() == []


def test_a_gang_that_does_not_fit_waits_with_numbers_and_holds_nothing() -> None:
    world = two_nodes()
    world.create(*members(5, mem=16))
    assert world.come("m0") == ["GangNoRoom"]
    assert world.phase() is Phase.WAITING
    assert "short by 1" in str(world.known().reason)
    assert world.booked() == []


def test_what_is_not_a_member_is_not_counted() -> None:
    world = two_nodes(scheduler_names=("default-scheduler",))
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
    assert lacking(world.gang()) == "1 of 3 members exist"


def test_the_same_name_in_two_namespaces_is_two_gangs() -> None:
    world = two_nodes()
    world.create(a_member("m0", least=2, mem=8), a_member("m1", least=2, mem=8, namespace="other", uid="uid-x"))
    assert lacking(world.gang()) == "1 of 2 members exist"


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


def test_on_large_clusters_members_are_nominated_before_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "LEAST", 1)
    world = two_nodes()
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
    assert lacking(world.gang()) == "1 of 2 members exist"
    world.change("launcher", annotations={names.GROUP: "g", names.MIN_MEMBER: "2"})
    world.run_slice()
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
    assert lacking(world.gang()) == "0 of 1 ps exist"
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
    world.engine.run_slice(world.now)
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
    while world.engine.gangs.planner.turns and world.engine.gangs.planner._plan is None:
        world.engine.run_slice(world.now)
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
    world.pods["m0"] = msgspec.structs.replace(pod, metadata=newer(pod.metadata, annotations=said))
    assert world.ask("m0").reason is not None
    world.show("m0")
    world.later()
    world.come("m0", "m1")
    world.land()
    given = allocation.decode(world.pods["m0"].metadata.annotations[names.ALLOCATION])
    assert given is not None
    assert given.uuids() == {"GPU-n2-1"}


# -- size


def test_a_large_gang_starts_with_work_that_grows_with_its_size() -> None:
    size = 200
    world = GangStory(*(a_node(f"n{i}", *[16] * 8) for i in range(size // 8)))
    world.create(*members(size, mem=16))
    before = world.engine.counters.total()
    found = world.come(*(f"m{i}" for i in range(size)))
    assert found.count("held") == size - 1
    assert len(world.flying) == size
    world.land()
    assert world.phase() is Phase.RUNNING
    assert len(world.done) < 2.2 * size
    assert world.engine.counters.total() - before < 4 * size

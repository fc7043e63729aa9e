"""Running gangs: members are lost, replaced, or succeed, and the gang ends."""

from __future__ import annotations

import pytest

from extender.engine.types.events import GroupSeen
from gangfilter.members import Stage
from gangfilter.minimum import lacking
from gangfilter.table import Phase
from protos.contract.bounds import ROLES
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import KEY, VOLCANO, GangStory, a_declaration, a_member, members, two_nodes


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
    """A Job replaces such a pod: with the succeeded members it is the whole gang."""
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
    assert lacking(world.gang()) == "1 of 2 members exist"
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
    assert lacking(world.gang()) == "1 of 3 members exist"


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
    assert world.engine.gangs.roster.known == {}
    assert world.engine.gangs.assignments.demands == {}


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


def test_members_that_succeeded_are_counted_and_no_longer_kept_once_they_are_deleted() -> None:
    world = two_nodes()
    world.start(*members(2, least=1))
    for number in range(300):
        name = f"r{number}"
        world.create(a_member(name, least=1, mem=1, role=f"role-{number}"))
        assert world.come(name) == ["flying"]
        world.land()
        world.change(name, phase="Succeeded")
        world.delete(name)
    gang = world.gang()
    assert sorted(gang.members) == ["uid-m0", "uid-m1"]
    assert gang.count(Stage.SUCCEEDED) == 300
    assert len(gang.roles(Stage.SUCCEEDED)) <= ROLES.most + 1
    assert gang.roles(Stage.SUCCEEDED)["role-0"] == 1
    world.delete("m0", "m1")
    assert "default/g" not in {str(key) for key in world.engine.gangs.roster.known}


def test_a_pod_that_was_said_to_have_failed_and_runs_after_all_is_forgotten_like_any_other() -> None:
    world = two_nodes()
    world.create(*members(1))
    world.change("m0", phase="Failed")
    world.later(10)
    world.change("m0", phase="Pending")
    world.delete("m0")
    assert world.engine.gangs.roster.of("uid-m0") is None
    assert not world.engine.gangs.roster.known


def test_a_pod_that_was_said_to_have_succeeded_and_runs_after_all_may_succeed_again() -> None:
    world = two_nodes()
    world.start(*members(1))
    for phase, stage in (("Succeeded", Stage.SUCCEEDED), ("Running", Stage.BOUND), ("Succeeded", Stage.SUCCEEDED)):
        world.change("m0", phase=phase)
        assert world.stage("m0") is stage

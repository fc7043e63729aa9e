"""Declarations about gangs, and reports on them."""

from __future__ import annotations

from extender.engine.types.effects import Report, ReportOwner
from extender.engine.types.events import GroupGone, GroupSeen, Leading
from gangfilter.group import Declaration
from gangfilter.table import Phase
from protos.contract import names
from tests.builders import a_pod
from tests.unit.engine.gang_story import KEY, VOLCANO, a_declaration, a_member, members, two_nodes


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
    world.run_slice()
    assert world.phase() is Phase.STARTING


def test_members_that_differ_are_told_once_and_the_stricter_holds() -> None:
    world = two_nodes()
    world.create(a_member("m0", least=2, mem=8), a_member("m1", least=3, mem=8))
    assert world.gang().terms.min_member == 3
    assert world.told() == [("m0", "GangConflict"), ("m1", "GangConflict")]


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


def test_members_that_name_two_groups_are_told_so_once() -> None:
    """The other dialect's operator may count on it."""
    world = two_nodes()
    world.create(*members(2, mem=8, annotations={"scheduling.k8s.io/group-name": "other"}))
    (told,) = [effect.reason for effect in world.done if isinstance(effect, Report)]
    assert told.code == "GangConflict"
    assert told.numbers == (
        "annotation gangshare.io/group names group g, annotation scheduling.k8s.io/group-name names other: g is taken"
    )


def test_a_minimum_that_cannot_be_read_is_told_with_what_was_expected() -> None:
    world = two_nodes()
    world.create(*members(2, least=None, mem=8, annotations={names.MIN_MEMBER: "four"}))
    assert ("m0", "GangConflict") in world.told()
    (told,) = world.gang().terms.conflicts
    assert told == "annotation gangshare.io/min-member is 'four': expected a whole number from 1 to 150000"
    assert world.why() == "GangAssembling"
    for name in ("m0", "m1"):
        world.change(name, annotations={names.GROUP: "g", names.MIN_MEMBER: "2"})
    assert world.gang().terms.conflicts == ()
    assert world.phase() is Phase.WAITING


def test_who_says_how_large_its_group_is_but_not_which_is_told_what_is_missing() -> None:
    world = two_nodes()
    world.create(a_pod("m0", annotations={names.MIN_MEMBER: "2"}, mem=8))
    sentence = "annotation gangshare.io/min-member is set, but no group is named: expected gangshare.io/group too"
    (event,) = [e.reason for e in world.done if isinstance(e, Report)]
    assert (event.code, event.numbers) == ("GangUnnamed", sentence)
    assert world.come("m0") == ["GangUnnamed"]
    world.create(a_pod("m1", annotations={names.GROUP: "a b"}, mem=8))
    assert ("m1", "GangUnnamed") in world.told(), "each for itself"
    conflicts = world.engine.gangs.roster.conflicts
    assert conflicts("uid-m0") == (sentence,), "and not what others say who name none"
    assert len(world.gang("").terms.conflicts) == 2


def test_a_pod_is_told_the_conflicts_of_its_gang() -> None:
    world = two_nodes()
    world.create(a_member("m0", least=2, mem=8), a_member("m1", least=3, mem=8))
    (conflict,) = world.engine.gangs.roster.conflicts("uid-m0")
    assert conflict.startswith("the minimum differs")
    assert world.engine.gangs.roster.conflicts("nobody") == ()


def test_podgroups_that_differ_before_there_are_members_are_told_with_the_first() -> None:
    world = two_nodes()
    other = "scheduling.x-k8s.io/v1alpha1"
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=2)))
    world.tell(GroupSeen(other, KEY, Declaration(source="another", min_member=3)))
    assert world.told() == []
    world.create(*members(3, least=None, mem=8))
    assert world.told() == [("m0", "GangConflict")]
    assert world.gang().terms.conflicts == ("the minimum differs: 2 by PodGroup, 3 by another; 3 holds",)


def test_conflicts_are_told_anew_by_who_takes_over() -> None:
    """What a process says that may not write is not heard."""
    world = two_nodes()
    world.tell(Leading(False))
    world.create(a_member("m0", least=2, mem=8), a_member("m1", least=3, mem=8))
    before = len(world.told())
    world.tell(Leading(True))
    assert world.told()[before:] == [("m0", "GangConflict"), ("m1", "GangConflict")]


def test_a_minimum_that_grows_is_told_as_that_and_a_loss_as_a_loss() -> None:
    world = two_nodes()
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=2)))
    world.start(*members(2, least=None, mem=16))
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=4)))
    assert (world.status().phase, world.why()) == (Phase.DEGRADED, "GangBelowMinimum")
    assert str(world.known().reason).endswith("2 of 4 members are bound")
    world.delete("m0")
    assert (world.status().phase, world.why()) == (Phase.DEGRADED, "GangMemberLost")
    assert str(world.known().reason).endswith("1 of 4 members are bound")


def test_pods_that_failed_are_counted_while_they_are_there() -> None:
    world = two_nodes()
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=2)))
    world.start(*members(2, least=None, mem=16))
    world.change("m0", phase="Failed")
    assert world.status().failed == 1
    world.change("m0", phase="Failed")
    assert world.status().failed == 1
    world.delete("m0")
    assert world.status().failed == 0


def test_a_gang_that_is_done_stays_so_when_its_podgroup_is_deleted_before_its_pods() -> None:
    """MPI Operator deletes the PodGroup and the workers of a finished job, and leaves the launcher."""
    world = two_nodes()
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=2)))
    world.start(*members(2, least=None, mem=16))
    world.change("m0", phase="Succeeded")
    world.tell(GroupGone(VOLCANO, KEY))
    world.delete("m1")
    assert world.phase() is Phase.COMPLETED
    world.groups = []
    world.restart()
    assert world.phase() is Phase.COMPLETED
    world.create(*members(1, least=None, mem=16, prefix="x"))
    assert world.phase() is Phase.ASSEMBLING


def test_why_a_gang_waits_is_told_on_a_member_and_on_its_controller() -> None:
    world = two_nodes()
    world.create(*members(2, least=3, mem=16))
    world.later(5)
    (told,) = [effect for effect in world.done if isinstance(effect, ReportOwner)]
    assert (told.owner.kind, told.owner.name, told.reason.code) == ("Job", "job", "GangAssembling")

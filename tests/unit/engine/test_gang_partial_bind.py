"""Gangs of which some Bindings took and others did not: finished in time, or undone."""

from __future__ import annotations

import itertools

from extender.engine.types.events import NodeGone
from gangfilter.table import Phase
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, a_member, members, two_nodes


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

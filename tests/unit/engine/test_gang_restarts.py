"""Gangs and extender processes: which one leads, what a restart finds, and what it believes."""

from __future__ import annotations

import msgspec
import pytest

from extender.engine.types.events import GroupSeen, Leading, PodSeen
from gangfilter.table import Phase
from protos.contract import allocation, names
from protos.contract.allocation import Group
from protos.contract.objects import Condition, Pod
from tests.builders import a_pod
from tests.unit.engine.gang_story import (
    KEY,
    VOLCANO,
    GangStory,
    a_declaration,
    a_member,
    at_wall,
    members,
    two_nodes,
)
from tests.unit.engine.story import owned_by

# -- leadership


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
    world.run_slice()
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


def test_a_start_that_is_finished_after_a_restart_has_the_size_that_it_had() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16))
    world.come("m0", "m1", "m2")
    world.land("m0", "m1")
    world.restart()
    world.come("m2")
    world.land()
    assert {start_of(world, name) for name in ("m0", "m1", "m2")} == {Group("default/g", 1, 3)}


def start_of(world: GangStory, name: str) -> Group | None:
    """What the pod says of its start."""
    found = allocation.decode(world.pods[name].metadata.annotations[names.ALLOCATION])
    assert found is not None
    return found.group


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


# -- whose minimum is not known any more


@pytest.mark.parametrize("before", [5, 100])
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_gang_whose_podgroup_is_gone_or_not_shown_is_left_alone_by_a_new_process(before: float, beyond: int) -> None:
    world = two_nodes()
    declared = GroupSeen(VOLCANO, KEY, a_declaration(min_member=2))
    world.create(*members(2, prefix="single", annotations={names.GROUP: "other"}, mem=16))
    world.start(*(world.pods[name] for name in ("single0", "single1")))
    world.tell(declared)
    world.create(*members(2 + beyond, least=None, mem=16))
    world.come("m0", "m1", *["m2"] * beyond)
    world.land()
    world.later(before)
    world.restart()
    world.later(90)
    assert world.evicted() == []
    world.tell(declared)
    assert world.phase() is Phase.RUNNING


def test_a_half_gang_whose_minimum_is_told_late_is_taken_back_then() -> None:
    world = two_nodes()
    declared = GroupSeen(VOLCANO, KEY, a_declaration(min_member=2))
    world.tell(declared)
    world.create(*members(2, least=None, mem=16))
    world.come("m0", "m1")
    world.land("m0")
    world.restart()
    world.later(60)
    assert (world.phase(), world.evicted()) == (Phase.BINDING, [])
    world.tell(declared)
    world.later(1)
    assert (world.phase(), world.evicted()) == (Phase.UNDOING, ["m0"])

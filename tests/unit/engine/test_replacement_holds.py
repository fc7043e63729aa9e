"""Stories of gangs that lost a member: its room is kept for the one that comes in its place, for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from extender.engine.cycle.engine import Engine
from extender.engine.gangs.replacement_holds import ReplacementHolds
from extender.engine.types.events import GpusUnhealthy, Leading, NodeGone, NodeSeen, PodGone, PodSeen, PodsListed
from gangfilter.members import Stage
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.objects import Condition, ContainerStatus, Pod
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import WALL, GangStory, a_member, members


def a_gang_that_lost_one(**fields: Any) -> tuple[GangStory, str, str]:
    """Three members on two nodes of two GPUs each, all whole; the world, and where the lost m1 had been."""
    world = GangStory(a_node("n1", 16, 16), a_node("n2", 16, 16))
    world.start(*members(3, mem=16, **fields))
    world.later(60)
    place = world.engine.pods[world.pods["m1"].metadata.uid]
    assert place.allocation is not None
    lost = place.node, place.allocation.containers["main"][0].uuid
    world.create(a_pod("filler", mem=16))
    assert world.come("filler") == ["flying"]
    world.land()
    world.terminate("m1")
    world.delete("m1")
    return world, *lost


def the_next(name: str = "m9", **fields: Any) -> Pod:
    return a_member(name, **({"mem": 16} | fields))


def kept(world: GangStory) -> list[tuple[str, str]]:
    """Whose rooms are kept, and where."""
    return [(slot.keeper.ref.name, slot.assignment.node) for slot in world.known().replacements]


@pytest.mark.parametrize("said", [{names.GROUP: "other"}, {}])
def test_a_running_member_that_names_another_gang_or_none_keeps_its_gpu(said: dict[str, str]) -> None:
    """Its old gang waits for another member, which gets none of what the pod holds."""
    world = GangStory(a_node("n1", 16, 16), a_node("n2", 16))
    world.start(*members(3, mem=16))
    world.later(60)
    pod, before = world.pods["m1"], world.engine.pods["uid-m1"].node
    rest = {key: value for key, value in pod.metadata.annotations.items() if key not in (names.GROUP, names.MIN_MEMBER)}
    world.change("m1", annotations=rest | said)
    assert (world.engine.pods["uid-m1"].state, world.engine.pods["uid-m1"].node) == ("bound", before)
    assert kept(world) == []
    world.create(the_next())
    assert world.ask("m9").nodes == ()


def test_a_lost_members_gpu_is_kept_from_others_and_given_to_the_one_that_comes_in_its_place() -> None:
    world, node, uuid = a_gang_that_lost_one()
    assert kept(world) == [("m1", node)]
    world.create(a_pod("other", mem=4))
    assert world.come("other") == ["NoRoom"]
    world.create(the_next())
    assert world.ask("m9").nodes == (node,)
    assert world.bind("m9", node) == "flying"
    given = world.flying["m9"].allocation
    assert given is not None
    assert [share.uuid for share in given.containers["main"]] == [uuid]
    world.land()
    assert (world.phase(), kept(world), world.engine.ledger.keepers) == (Phase.RUNNING, [], {})


def test_another_gang_does_not_get_it_either() -> None:
    world, *_ = a_gang_that_lost_one()
    world.create(*members(1, gang="h", prefix="h", mem=4))
    world.later(5)
    assert world.phase("h") is Phase.WAITING
    assert kept(world)


def test_one_that_waited_already_is_woken_to_it() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.start(*members(2, mem=16))
    world.terminate("m1")
    world.create(the_next(least=2))
    assert world.come("m9") == ["NoRoom"]
    before = len(world.done)
    world.delete("m1")
    assert world.woken(before) == [("m9", "n1")]
    assert world.stage("m9") is Stage.PLANNED
    assert world.come("m9") == ["flying"]


def test_one_that_was_offered_another_place_and_comes_again_gets_it() -> None:
    world = GangStory(a_node("n1", 16), a_node("n2", 16), a_node("n3", 16))
    world.start(*members(2, mem=16))
    node = world.engine.pods[world.pods["m1"].metadata.uid].node
    world.terminate("m1")
    world.create(the_next(least=2))
    assert world.ask("m9").nodes == ("n3",)
    world.delete("m1")
    assert (kept(world), world.stage("m9")) == ([("m1", node)], Stage.IDLE)
    assert world.ask("m9").nodes == (node,)


def test_after_a_while_everybody_may_have_it_and_who_waited_is_woken() -> None:
    world, *_ = a_gang_that_lost_one()
    world.create(a_pod("other", mem=4))
    assert world.come("other") == ["NoRoom"]
    world.later(295)
    assert kept(world)
    before = len(world.done)
    world.later(10)
    assert kept(world) == []
    assert [name for name, _ in world.woken(before)] == ["other"]
    assert world.come("other") == ["flying"]


def test_how_long_is_a_setting_and_nothing_is_kept_for_no_time() -> None:
    for seconds, long in ((0.0, False), (30.0, True)):
        world = GangStory(a_node("n1", 16, 16), replacement_hold_s=seconds)
        world.start(*members(2, mem=16))
        world.delete("m1")
        assert bool(kept(world)) is long
        world.later(31)
        assert kept(world) == []


def test_a_place_that_its_member_does_not_come_for_ends_too() -> None:
    world, *_ = a_gang_that_lost_one()
    world.later(299)
    world.create(the_next())
    assert world.stage("m9") is Stage.PLANNED
    world.later(10)
    assert world.stage("m9") is Stage.PLANNED
    world.later(10)
    assert world.stage("m9") is Stage.IDLE
    assert "m9" not in world.booked()


@pytest.mark.parametrize("lost", ["restart", "ignore"])
def test_gangs_that_do_not_wait_for_a_member_keep_nothing(lost: str) -> None:
    world, *_ = a_gang_that_lost_one(lost=lost)
    assert kept(world) == []
    world.create(a_pod("other", mem=4))
    assert world.come("other") == ["flying"]


def test_nothing_is_kept_for_members_beyond_the_minimum() -> None:
    world = GangStory(a_node("n1", 16, 16, 16))
    world.start(*members(3, mem=16, least=2))
    world.delete("m2")
    assert (world.phase(), kept(world)) == (Phase.RUNNING, [])
    world.delete("m1")
    assert (world.phase(), kept(world)) == (Phase.DEGRADED, [("m1", "n1")])


def test_no_more_is_kept_than_the_gang_is_short_of() -> None:
    world = GangStory(a_node("n1", 16, 16, 16, 16))
    world.start(*members(4, mem=16, least=2))
    world.terminate("m1", "m2", "m3")
    world.delete("m1")
    world.delete("m2")
    world.delete("m3")
    assert kept(world) == [("m1", "n1")]


def test_what_is_kept_ends_with_the_gang() -> None:
    world, *_ = a_gang_that_lost_one()
    world.delete("m0", "m2")
    assert (world.phase() if world.engine.gangs.roster.known else None, world.engine.ledger.keepers) == (None, {})
    assert world.booked() == ["filler"]


def test_what_is_kept_ends_with_the_minimum_that_needed_it() -> None:
    world, *_ = a_gang_that_lost_one()
    for name in ("m0", "m2"):
        said = {**world.pods[name].metadata.annotations, names.MIN_MEMBER: "2"}
        world.change(name, annotations=said)
    assert (world.phase(), kept(world)) == (Phase.RUNNING, [])


@pytest.mark.parametrize("how", ["gone", "ill", "cordoned GPU", "cordoned node"])
def test_what_is_kept_ends_where_it_is_no_good_any_more(how: str) -> None:
    world, node, uuid = a_gang_that_lost_one()
    there = world.nodes[node]
    match how:
        case "gone":
            world.tell(NodeGone(node))
        case "ill":
            world.tell(GpusUnhealthy(node, frozenset({int(uuid[-1])})))
        case "cordoned GPU":
            said = {**there.metadata.annotations, names.CORDONED_GPUS: uuid}
            metadata = msgspec.structs.replace(there.metadata, annotations=said)
            world.tell(NodeSeen(msgspec.structs.replace(there, metadata=metadata)))
        case "cordoned node":
            spec = msgspec.structs.replace(there.spec, unschedulable=True)
            world.tell(NodeSeen(msgspec.structs.replace(there, spec=spec)))
    assert kept(world) == []
    world.nodes["n3"] = a_node("n3", 16)
    world.tell(NodeSeen(world.nodes["n3"]))
    world.create(the_next())
    assert "n3" in world.ask("m9", [name for name in world.nodes if name != node]).nodes


def test_a_node_that_is_gone_when_the_pod_is_leaves_nothing() -> None:
    world = GangStory(a_node("n1", 16), a_node("n2", 16))
    world.start(*members(2, mem=16))
    world.tell(NodeGone("n2"))
    world.delete(*[name for name in ("m0", "m1") if world.engine.pods[world.pods[name].metadata.uid].node == "n2"])
    assert kept(world) == []


def test_a_member_of_another_role_or_ask_does_not_take_it() -> None:
    world, node, _ = a_gang_that_lost_one(role="worker")
    world.create(the_next("smaller", mem=8, role="worker"), the_next("other", role="ps"))
    assert world.come("smaller", "other") == ["NoRoom", "NoRoom"]
    assert kept(world) == [("m1", node)]


def test_a_member_that_kube_scheduler_keeps_off_that_node_goes_elsewhere() -> None:
    world, node, _ = a_gang_that_lost_one()
    world.create(the_next())
    assert world.stage("m9") is Stage.PLANNED
    elsewhere = [name for name in world.nodes if name != node]
    assert world.ask("m9", elsewhere).nodes == ()
    world.later(1.5)
    assert world.ask("m9", elsewhere).nodes == ()
    assert (world.stage("m9"), kept(world)) == (Stage.IDLE, [])
    world.nodes["n3"] = a_node("n3", 16)
    world.tell(NodeSeen(world.nodes["n3"]))
    assert world.ask("m9", ["n3"]).nodes == ("n3",)


def test_members_without_gpus_leave_a_room_too() -> None:
    world = GangStory(a_node("n1", allocatable={"cpu": "2", "memory": "8Gi", "pods": "10"}))
    cpu = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    world.start(*members(2, mem=0, containers=cpu))
    world.delete("m1")
    world.create(*members(1, gang="h", prefix="h", mem=0, containers=cpu))
    world.later(2)
    assert world.phase("h") is Phase.WAITING
    world.create(a_member("m9", least=2, containers=cpu))
    assert world.come("m9") == ["flying"]


def test_a_member_that_failed_leaves_its_room_and_one_that_its_kubelet_refused_does_not() -> None:
    for ran, expected in ((True, [("m1", "n1")]), (False, [])):
        world = GangStory(a_node("n1", 16, 16))
        world.start(*members(2, mem=16))
        world.change("m1", phase="Failed", container_statuses=(ContainerStatus("main"),) if ran else ())
        assert kept(world) == expected
        world.delete("m1")
        assert kept(world) == expected


def test_a_member_that_was_preempted_leaves_its_room_to_those_for_whom_it_went() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.start(*members(2, mem=16))
    preempted = Condition("DisruptionTarget", "True", "PreemptionByScheduler")
    world.change("m1", conditions=(*world.pods["m1"].status.conditions, preempted))
    world.terminate("m1")
    world.delete("m1")
    assert (world.phase(), kept(world)) == (Phase.DEGRADED, [])


def test_a_process_that_only_looks_on_keeps_the_same_and_gives_it_nobody_until_it_leads() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.start(*members(2, mem=16))
    first, world.engine = world.engine, Engine(world.settings, started=world.now, wall=WALL)
    world.tell(Leading(False), *world.listed(), PodsListed())
    gone = world.pods["m1"].metadata.uid
    world.delete("m1")
    assert kept(world) == [("m1", "n1")]
    assert gone not in world.engine.pods
    world.create(the_next(least=2))
    assert world.stage("m9") is Stage.IDLE
    world.tell(Leading(True))
    assert world.stage("m9") is Stage.PLANNED
    assert first is not world.engine


def test_a_process_that_looks_on_sees_that_somebody_came_and_counts_nothing_twice() -> None:
    world = GangStory(a_node("n1", 16, 16, 16), replacement_hold_s=300.0)
    world.start(*members(3, mem=16))
    onlooker = Engine(world.settings, started=world.now, wall=WALL)
    for event in (Leading(False), *world.listed(), PodsListed()):
        onlooker.step(event, world.now)
    first = world.engine
    for name in ("m1", "m2"):
        uid = world.pods[name].metadata.uid
        world.delete(name)
        onlooker.step(PodGone(uid), world.now)
    assert len(onlooker.ledger.keepers) == 2
    world.create(the_next())
    world.come("m9")
    world.land()
    onlooker.step(PodSeen(world.pods["m9"]), world.now)
    for engine in (first, onlooker):
        assert len(engine.ledger.keepers) == 1
        books = engine.nodes["n1"].books
        assert books is not None
        assert [book.overused or book.mem_used for book in books.gpus.values()] == [16, 16, 16]


def test_a_member_that_was_going_when_the_extender_restarted_leaves_its_room_and_one_that_was_gone_does_not() -> None:
    for gone_before in (False, True):
        world = GangStory(a_node("n1", 16, 16))
        world.start(*members(2, mem=16))
        world.later(60)
        world.terminate("m1")
        if gone_before:
            world.delete("m1")
        world.restart()
        if not gone_before:
            world.delete("m1")
        assert (world.phase(), kept(world)) == (Phase.DEGRADED, [] if gone_before else [("m1", "n1")])


def test_what_a_large_gang_leaves_costs_a_look_for_each_that_goes_or_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GangStory(*(a_node(f"n{i}", *[16] * 8) for i in range(13)))
    world.start(*members(100, mem=16))
    looks: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., bool]:
        look = getattr(ReplacementHolds, name)

        def counting(*given: Any) -> bool:
            looks[name] += 1
            return bool(look(*given))

        return counting

    for name in ("_is_usable", "_suits"):
        monkeypatch.setattr(ReplacementHolds, name, counted(name))
    for i in range(99):
        world.delete(f"m{i}")
    assert len(world.engine.ledger.keepers) == 99
    world.create(*(the_next(f"other{i}", least=100, mem=8) for i in range(50)))
    world.create(*(the_next(f"next{i}", least=100) for i in range(50)))
    assert len(world.engine.ledger.keepers) == 49
    assert 0 < looks.total() < 200

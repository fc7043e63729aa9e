"""Members leave drained nodes in time: surplus members, and gangs that restart in any case."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.types.events import EvictionRefused, Leading, NodeGone, NodeSeen
from extender.engine.types.settings import DRAIN_TAINTS
from gangfilter.table import Phase
from protos.contract.objects import Node, Taint
from tests.builders import a_node, a_pod
from tests.unit.engine.elastic_story import KEY, ElasticStory, a_worker
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.preemption_story import PreemptionStory, a_single

SPOT = "aws-node-termination-handler/spot-itn"


def tainted(world: GangStory, name: str, key: str = SPOT, value: str = "") -> None:
    """The node gets a taint; none any more for an empty key."""
    node = world.nodes[name]
    taints = (Taint(key, "NoSchedule", value),) if key else ()
    shown(world, msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints)))


def labelled(world: GangStory, name: str, labels: dict[str, str]) -> None:
    node = world.nodes[name]
    shown(world, msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels)))


def shown(world: GangStory, node: Node) -> None:
    world.nodes[node.metadata.name] = node
    world.tell(NodeSeen(node))


def of_job(count: int, node: str, world: GangStory) -> list[str]:
    """Workers on this node, at least so many."""
    found = sorted(name for name, pod in world.pods.items() if pod.spec.node_name == node and "worker" in name)
    assert len(found) >= count
    return found


def a_job(**fields: Any) -> ElasticStory:
    """A job of four workers on two nodes of two GPUs; two more nodes are free."""
    world = ElasticStory(*(a_node(f"n{i}", 16, 16) for i in range(4)), **fields)
    world.run_job()
    return world


def spread(**fields: Any) -> PreemptionStory:
    """A plain gang of four on two nodes of two GPUs, two of which are enough."""
    world = PreemptionStory(a_node("n1", 16, 16), a_node("n2", 16, 16))
    world.start(*members(4, least=2, mem=0, whole=1, **fields))
    return world


def nodes_of(world: GangStory, *names: str) -> set[str | None]:
    return {world.pods[name].spec.node_name for name in names}


@pytest.mark.parametrize("sign", DRAIN_TAINTS)
def test_every_usual_taint_says_so_and_nobody_is_placed_there(sign: str) -> None:
    key, _, value = sign.partition("=")
    world = PreemptionStory(a_node("n1", 16))
    tainted(world, "n1", key, value)
    assert world.engine.nodes["n1"].problem == f"it is about to be removed: it has {sign}"
    world.create(a_single("p", 8))
    assert world.come("p") == ["NoRoom"]
    tainted(world, "n1", "")
    world.later(1)
    assert world.woken() == [("p", "n1")]
    assert world.come("p") == ["flying"]


@pytest.mark.parametrize(("labels", "leaving"), [({"going": "soon"}, True), ({"going": "no"}, False), ({}, False)])
def test_a_label_says_so_where_it_is_set(labels: dict[str, str], leaving: bool) -> None:
    world = PreemptionStory(a_node("n1", 16), drain_taints=("going=soon",))
    labelled(world, "n1", labels)
    assert bool(world.engine.nodes["n1"].leaving) == leaving


def test_other_taints_and_cordons_drive_nobody_away() -> None:
    world = a_job()
    for name in world.nodes:
        tainted(world, name, "node.kubernetes.io/unschedulable")
    world.later(300)
    assert world.asked() == []
    assert world.evicted() == []


def test_a_job_is_asked_to_take_its_workers_off_the_node_and_grows_back_elsewhere() -> None:
    world = a_job(most=4)
    leaves = of_job(2, "n0", world)
    tainted(world, "n0")
    world.later(3)
    (asked,) = world.asked()
    assert (asked.kind, list(asked.pods)) == ("ScaleIn", leaves)
    assert sorted(pod for pod, code in world.told() if code == "NodeLeaving") == leaves
    world.terminate(*leaves)
    world.delete(*leaves)
    world.finish(asked)
    world.later(150)
    (grown,) = world.asked()
    assert (grown.kind, grown.count) == ("ScaleOut", 2)
    assert {slot.assignment.node for slot in world.known("job").replacements} <= {"n1", "n2", "n3"}
    assert world.evicted() == []
    assert world.phase("job") is Phase.RUNNING


def test_what_its_operator_does_not_let_go_in_time_is_evicted_once() -> None:
    world = a_job(scale_in_timeout_s=60)
    leaves = of_job(2, "n0", world)
    tainted(world, "n0")
    world.later(50)
    assert len(world.asked()) == 1
    assert world.evicted() == []
    world.later(20)
    assert sorted(set(world.evicted())) == leaves
    counts = world.engine.counters
    assert (counts["scale_ins", "overdue"], counts["drain_evictions", "overdue"]) == (1, 2)


def test_whoever_starts_anew_in_between_goes_on_with_the_scaler_that_exists() -> None:
    world = a_job(scale_in_timeout_s=60)
    leaves = of_job(2, "n0", world)
    tainted(world, "n0")
    world.later(3)
    assert len(world.asked()) == 1
    world.restart()
    world.later(45)
    assert (world.asked(), world.evicted()) == ([], [])
    world.later(20)
    assert sorted(set(world.evicted())) == leaves


def test_one_that_stays_after_all_is_left_by_nobody_else() -> None:
    world = a_job(scale_in_timeout_s=60)
    tainted(world, "n0")
    world.later(3)
    assert len(world.asked()) == 1
    tainted(world, "n0", "")
    world.later(100)
    assert world.evicted() == []


def test_a_node_that_is_gone_before_the_scalein_ends_is_left_by_nobody_else() -> None:
    world = a_job(scale_in_timeout_s=60)
    tainted(world, "n0")
    world.later(3)
    assert len(world.asked()) == 1
    del world.nodes["n0"]
    world.tell(NodeGone("n0"))
    world.later(100)
    assert world.evicted() == []


def test_a_job_at_its_minimum_stays_and_leaves_once_it_could_grow_elsewhere() -> None:
    world = a_job(least=4, most=6)
    tainted(world, "n0")
    world.later(30)
    assert world.asked() == []
    world.later(60)
    (grown,) = world.asked()
    made = [a_worker(4 + i) for i in range(grown.count)]
    world.create(*made)
    world.come(*(pod.metadata.name for pod in made))
    world.land()
    world.finish(grown)
    world.later(3)
    (asked,) = world.asked()
    assert (asked.kind, list(asked.pods)) == ("ScaleIn", of_job(2, "n0", world))


def test_while_another_scaler_is_unfinished_none_is_made() -> None:
    world = a_job()
    tainted(world, "n0")
    world.later(3)
    assert len(world.asked()) == 1
    tainted(world, "n1")
    world.later(30)
    assert world.asked() == []


def test_where_all_nodes_go_a_job_keeps_its_minimum() -> None:
    world = a_job(scale_in_timeout_s=0)
    for name in world.nodes:
        tainted(world, name)
    world.later(3)
    assert len(set(world.evicted())) == 2
    world.terminate(*set(world.evicted()))
    before = len(world.evicted())
    world.later(100)
    assert world.evicted()[before:] == []
    assert world.phase("job") is Phase.RUNNING


def test_surplus_of_a_plain_gang_is_evicted_and_the_rest_stays() -> None:
    world = spread()
    tainted(world, "n1")
    world.later(2)
    gone = world.evicted()
    assert len(gone) == 2
    assert nodes_of(world, *gone) == {"n1"}
    assert world.engine.counters["drain_evictions", "spare"] == 2
    world.terminate(*gone)
    world.later(60)
    assert world.evicted() == gone


def test_members_within_the_minimum_and_single_pods_stay() -> None:
    world = PreemptionStory(a_node("n1", 16, 16, 16))
    world.start(*members(2, mem=0, whole=1))
    world.runs(a_pod("single", whole=1))
    tainted(world, "n1")
    world.later(60)
    assert world.evicted() == []


def test_a_gang_that_starts_anew_when_it_loses_one_does_so_at_once_elsewhere() -> None:
    world = PreemptionStory(*(a_node(f"n{i}", 16, 16) for i in (1, 2, 3)))
    world.start(*members(4, mem=0, whole=1, lost="restart"))
    assert "n1" in nodes_of(world, *world.pods)
    tainted(world, "n1")
    world.later(2)
    first = world.evicted()
    assert nodes_of(world, *first) == {"n1"}
    world.terminate(first[0])
    world.later(1)
    assert sorted(set(world.evicted())) == sorted(world.pods)
    for name in sorted(world.pods):
        world.again(name)
    world.later(1)
    world.schedule()
    world.later(1)
    assert nodes_of(world, *world.pods) == {"n2", "n3"}


def test_a_gang_whose_members_nobody_makes_anew_stays() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    world.start(*members(2, mem=0, whole=1, lost="restart", owner=""))
    tainted(world, "n1")
    world.later(60)
    assert world.evicted() == []


def test_where_a_budget_forbids_it_the_rest_stays_for_a_while() -> None:
    world = spread()
    tainted(world, "n1")
    world.later(2)
    gone = world.evicted()
    world.tell(EvictionRefused(world.pods[gone[0]].metadata.uid, "a budget"))
    world.later(25)
    assert world.evicted() == gone
    world.later(10)
    assert set(world.evicted()[2:]) == set(gone)


def test_who_does_not_lead_evicts_nobody() -> None:
    world = spread()
    world.tell(Leading(yes=False))
    tainted(world, "n1")
    world.later(30)
    assert world.evicted() == []


def test_rooms_kept_on_such_a_node_are_given_up() -> None:
    world = PreemptionStory(a_node("n1", 16, 16), a_node("n2", 16))
    world.start(*members(3, mem=0, whole=1))
    lost = next(name for name, pod in world.pods.items() if pod.spec.node_name == "n1")
    world.terminate(lost)
    world.delete(lost)
    assert [slot.assignment.node for slot in world.known().replacements] == ["n1"]
    tainted(world, "n1")
    assert world.known().replacements == []


def test_a_start_that_has_places_there_is_planned_anew_elsewhere() -> None:
    world = PreemptionStory(a_node("n1", 16, 16), a_node("n2", 16, 16))
    world.create(*members(2, mem=0, whole=1))
    assert world.come("m0", "m1") == ["held", "flying"]
    world.fail()
    (node,) = {pod.node for pod in world.engine.pods.values() if pod.node}
    tainted(world, node)
    world.later(15)
    world.schedule()
    world.later(1)
    assert nodes_of(world, "m0", "m1") == {"n1", "n2"} - {node}


def test_members_without_gpus_are_not_planned_there_either() -> None:
    world = PreemptionStory(a_node("n1", 16), drain_taints=("going",))
    labelled(world, "n1", {"going": ""})
    world.create(*members(2, mem=0))
    world.later(1)
    assert world.phase() is Phase.WAITING


def test_others_are_not_evicted_for_room_on_a_node_that_goes() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    for i in range(2):
        world.runs(a_single(f"low{i}", 16))
    world.later(11)
    world.waits(a_single("urgent", 16, 1000))
    tainted(world, "n1")
    assert world.preempt(20) == []


def test_a_preemption_is_given_up_when_the_node_of_its_room_is_to_go() -> None:
    world = PreemptionStory(a_node("n1", *[16] * 2))
    for i in range(2):
        world.runs(a_single(f"low{i}", 16))
    world.later(11)
    world.waits(a_single("urgent", 16, 1000))
    (victim,) = world.preempt(3)
    assert victim.startswith("low")
    tainted(world, "n1")
    world.later(2)
    assert world.engine.counters["preemptions", "changed"] == 1
    assert ("urgent", None) in world.taken_away()


def test_the_worst_placed_is_who_is_on_a_node_that_goes() -> None:
    world = PreemptionStory(a_node("n1", 16, 16, 16), a_node("n2", 16, 16))
    world.start(*members(5, least=4, mem=0, whole=1))
    tainted(world, "n1")
    (first,) = world.engine.elastic.spared(world.gang())
    assert first.node == "n1"


def test_what_leaves_does_not_count_as_asked_when_another_process_leads() -> None:
    world = a_job()
    tainted(world, "n0")
    world.later(3)
    world.tell(Leading(yes=False))
    assert world.engine.elastic.scalers.unfinished(KEY) == []

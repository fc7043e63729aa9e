"""Pods behind our scheduling gate: when the gate is removed, and that a lost removal is repeated."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.types import look
from extender.engine.types.effects import Requeue
from extender.engine.types.events import Leading
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.objects import Pod, SchedulingGate
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, a_member, members

OURS = {"name": names.PLAN_GATE}
KUEUES = {"name": "kueue.x-k8s.io/admission"}
GATED: Any = {"schedulingGates": [OURS]}


def two_nodes(**settings: Any) -> GangStory:
    """Two nodes of two GPUs with 16 units each."""
    return GangStory(*(a_node(name, 16, 16) for name in ("n1", "n2")), **settings)


def ungated(world: GangStory, since: int = 0) -> list[tuple[str, str]]:
    """Whose gate was to be removed, and the node nominated before, in this order."""
    return [(e.pod.name, e.node) for e in world.done[since:] if isinstance(e, Requeue) and e.gated]


def leave_gates(world: GangStory, name: str, *left: str) -> None:
    """The pod has these gates only, from now on."""
    pod = world.pods[name]
    gates = tuple(SchedulingGate(gate) for gate in left)
    world.pods[name] = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=gates))
    world.show(name)
    world.run_slice()


def carried_out(world: GangStory) -> None:
    """The removals asked for took."""
    for name in dict(ungated(world)):
        leave_gates(world, name)


def running(world: GangStory, **fields: Any) -> None:
    """A gang of two that was gated and runs."""
    world.create(*members(2, mem=16, spec=GATED, **fields))
    carried_out(world)
    world.come("m0", "m1")
    world.land()
    assert world.phase() is Phase.RUNNING


@pytest.mark.parametrize(("least", "nominated"), [(1, {"m0", "m1", "m2"}), (2, set())], ids=["large", "small"])
def test_a_gated_gang_that_fits_is_let_through_on_large_clusters_with_a_nomination(
    least: int, nominated: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "LEAST", least)
    world = two_nodes()
    world.create(*members(3, mem=16, spec=GATED))
    assert [name for name, _ in ungated(world)] == ["m0", "m1", "m2"]
    assert {name for name, node in ungated(world) if node} == nominated
    carried_out(world)
    assert world.come("m0", "m1", "m2") == ["held", "held", "flying"]
    world.land()
    assert world.phase() is Phase.RUNNING


def test_while_it_does_not_fit_nobody_is_let_through_and_room_changes_that() -> None:
    world = two_nodes()
    world.create(a_pod("other", mem=16))
    world.come("other")
    world.land()
    world.create(*members(4, mem=16, spec=GATED))
    world.later(120)
    assert (world.phase(), world.why(), ungated(world), world.booked()) == (
        Phase.WAITING,
        "GangNoRoom",
        [],
        ["other"],
    )
    assert [code for name, code in world.told() if name == "m0"] == ["GangNoRoom"]
    world.delete("other")
    world.later()
    assert len(ungated(world)) == 4


def test_while_the_minimum_does_not_exist_nobody_is_let_through() -> None:
    world = two_nodes()
    world.create(*members(2, least=3, mem=16, spec=GATED))
    world.later(60)
    assert ungated(world) == []
    assert world.why() == "GangAssembling"


def test_members_with_and_without_the_gate_start_together() -> None:
    world = two_nodes()
    world.create(a_member("free", mem=16), *members(2, least=3, mem=16, spec=GATED))
    assert [name for name, _ in ungated(world)] == ["m0", "m1"]
    carried_out(world)
    assert world.come("free", "m0", "m1") == ["held", "held", "flying"]


def test_a_removal_that_got_lost_is_said_again_and_more_rarely() -> None:
    world = two_nodes()
    world.create(*members(2, spec=GATED))
    first = ungated(world)
    leave_gates(world, "m0")
    before = len(world.done)
    world.later(9)
    assert ungated(world, before) == []
    world.later(2)
    assert ungated(world, before) == first[1:]
    world.later(30)
    assert [name for name, _ in ungated(world, before)] == ["m1"] * 3
    leave_gates(world, "m1")
    before = len(world.done)
    world.later(600)
    assert ungated(world, before) == []


def test_members_of_a_start_that_fails_are_refused_like_any_others() -> None:
    world = two_nodes()
    world.create(*members(3, mem=16, spec=GATED))
    carried_out(world)
    world.come("m0")
    world.later(20)
    assert world.denied() == {"m0": "GangAgain"}
    assert world.come("m0") == ["GangAgain"]
    before = len(world.done)
    world.later(30)
    woken = {e.pod.name: e.gated for e in world.done[before:] if isinstance(e, Requeue)}
    assert woken == {"m0": False, "m1": False, "m2": False}


def test_what_waits_for_no_gang_is_let_through() -> None:
    world = two_nodes(scheduler_names=("default-scheduler",))
    world.create(
        a_pod("single", mem=8, spec=GATED),
        a_pod("plain", spec=GATED),
        a_member("nonsense", mem=7, annotations={names.GPU_COUNT: "2"}, spec=GATED),
        a_member("elsewhere", mem=8, spec={**GATED, "schedulerName": "another"}),
        a_member("member", mem=8, spec=GATED),
    )
    assert ungated(world) == [("single", ""), ("plain", ""), ("nonsense", ""), ("elsewhere", "")]


def test_a_member_that_names_its_gang_no_more_is_let_through() -> None:
    world = two_nodes()
    world.create(*members(2, least=3, spec=GATED))
    world.change("m0", annotations={})
    assert ungated(world) == [("m0", "")]


def test_the_gates_of_others_stay_theirs() -> None:
    world = two_nodes()
    world.create(*members(2, spec={"schedulingGates": [KUEUES, OURS]}))
    world.later(60)
    assert ungated(world) == []
    leave_gates(world, "m0", names.PLAN_GATE)
    leave_gates(world, "m1", names.PLAN_GATE)
    assert [name for name, _ in ungated(world)] == ["m0", "m1"]


def test_a_further_member_of_a_running_gang_is_let_through_when_there_is_room() -> None:
    world = two_nodes()
    running(world)
    world.create(*(a_member(f"extra{i}", least=2, mem=16, spec=GATED) for i in range(3)))
    before = len(world.done)
    world.later()
    assert [name for name, _ in ungated(world, before)] == ["extra0", "extra1"]
    carried_out(world)
    assert world.come("extra0", "extra1") == ["flying", "flying"]
    world.land()
    world.later(60)
    assert "extra2" not in dict(ungated(world))
    assert str(world.engine.explain(world.engine.pods["uid-extra2"])).startswith("no GPU with 16 GiB free")
    world.delete("extra0")
    world.later()
    assert ungated(world)[-1] == ("extra2", "")


def test_a_further_member_without_gpus_is_let_through_at_once() -> None:
    world = two_nodes()
    running(world)
    world.create(a_member("launcher", least=2, spec=GATED))
    assert ungated(world)[-1] == ("launcher", "")


def test_what_waits_singly_behind_the_gate_starts_with_its_gang_when_that_starts_anew() -> None:
    world = two_nodes()
    running(world, lost="restart")
    world.create(*(a_member(f"extra{i}", least=2, mem=16, lost="restart", spec=GATED) for i in range(3)))
    world.later()
    waiting = {"extra0", "extra1", "extra2"} - set(dict(ungated(world)))
    assert len(waiting) == 1
    before = len(world.done)
    world.delete("m0")
    world.later(1)
    world.delete("m1")
    world.later(1)
    assert waiting <= set(dict(ungated(world, before)))


def test_a_new_process_lets_through_whom_the_last_one_did_not() -> None:
    world = two_nodes()
    world.create(*members(4, mem=16, spec=GATED))
    world.restart()
    assert len(ungated(world)) == 8
    carried_out(world)
    assert world.come("m0", "m1", "m2", "m3")[-1] == "flying"
    world.land()
    world.create(a_member("launcher", least=4, spec=GATED))
    before = len(world.done)
    world.restart()
    assert ungated(world, before) == [("launcher", "")]


def test_who_may_not_write_does_not_repeat_itself_and_says_all_of_it_when_it_may() -> None:
    world = two_nodes()
    world.create(a_pod("single", mem=8, spec=GATED))
    world.tell(Leading(False))
    before = len(world.done)
    world.later(60)
    assert ungated(world, before) == []
    world.tell(Leading(True))
    world.later(1)
    assert ungated(world, before) == [("single", "")]


def test_what_is_gone_or_bound_is_not_let_through_any_more() -> None:
    world = two_nodes()
    world.create(a_pod("single", mem=8, spec=GATED), a_pod("bound", mem=8, spec=GATED))
    world.delete("single")
    pod = world.pods["bound"]
    world.pods["bound"] = Pod(
        pod.metadata, msgspec.structs.replace(pod.spec, node_name="n1", scheduling_gates=()), pod.status
    )
    world.show("bound")
    before = len(world.done)
    world.later(60)
    assert ungated(world, before) == []

"""Externally bound members: they are released last, and no other member is bound before them."""

from __future__ import annotations

import msgspec
import pytest

from extender.engine.types.effects import SetAnnotation, Verdict
from extender.engine.types.events import Leading
from gangfilter.members import Stage
from gangfilter.table import Phase
from protos.contract import allocation, names
from protos.contract.allocation import Group
from protos.contract.objects import Condition
from tests.builders import a_container, a_node, a_pod
from tests.unit.engine.gang_story import GangStory, a_member, members


class Shared(GangStory):
    """A kube-scheduler that asks us to bind only pods with GPUs, and shows us the others."""

    def observe(self, name: str, nodes: list[str] | None = None) -> Verdict:
        self.now += 0.001
        pod = self.pods[name]
        while self.engine.prepare(pod, [], self.now):
            pass
        verdict = self.engine.filter(pod, sorted(self.nodes) if nodes is None else nodes, self.now, unheld=True)
        self.carry(self.engine.effects())
        return verdict

    def bound_alone(self, name: str, node: str) -> None:
        """kube-scheduler binds the pod, without any annotation of ours."""
        pod = self.pods[name]
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        self.pods[name] = msgspec.structs.replace(pod, spec=spec)
        self.show(name)

    def marks(self) -> dict[str, str | None]:
        return {e.pod.name: e.value for e in self.done if isinstance(e, SetAnnotation)}


def a_world() -> Shared:
    """One node with two GPUs of 16 units."""
    return Shared(a_node("n1", 16, 16), a_node("plain"))


def a_launcher(name: str = "boss", least: int = 3) -> list:  # type: ignore[type-arg]
    return [a_member(name, least=least, role="launcher")]


def crew() -> list:  # type: ignore[type-arg]
    return [*a_launcher(), *members(2, least=3, mem=16)]


def test_it_is_refused_until_all_others_are_in_bind_and_woken_then_to_its_node() -> None:
    world = a_world()
    world.create(*crew())
    assert world.observe("boss").nodes == ()
    assert world.come("m0", "m1") == ["held", "held"]
    ((name, node),) = world.woken()
    assert name == "boss"
    assert world.observe("boss", [node]).nodes == (node,)
    assert world.held == {"m0", "m1"}


def test_it_may_go_at_once_when_it_is_asked_for_last() -> None:
    world = a_world()
    world.create(*crew())
    world.come("m0", "m1")
    assert world.woken() == []
    assert len(world.observe("boss").nodes) == 1


def test_the_others_are_bound_only_after_it() -> None:
    world = a_world()
    world.create(*crew())
    world.come("m0", "m1")
    (node,) = world.observe("boss").nodes
    assert world.phase() is Phase.STARTING
    world.bound_alone("boss", node)
    assert world.phase() is Phase.BINDING
    world.land()
    assert world.phase() is Phase.RUNNING


def test_it_gets_what_a_binding_of_ours_would_say_and_is_taken_back_with_the_others() -> None:
    world = a_world()
    world.create(*crew())
    world.come("m0", "m1")
    world.bound_alone("boss", world.observe("boss").nodes[0])
    told = allocation.decode(world.marks()["boss"])
    assert told is not None
    assert (told.containers, told.group) == ({}, Group("default/g", 1, 3))
    world.land("m0")
    world.fail("m1")
    world.later(31)
    assert world.phase() is Phase.UNDOING
    assert sorted(world.evicted()) == ["boss", "m0"]


def test_it_is_not_let_go_while_one_of_the_others_has_left() -> None:
    world = a_world()
    world.create(*crew())
    world.observe("boss")
    world.come("m0", "m1")
    world.leave("m1")
    assert world.observe("boss").nodes == ()
    before = len(world.done)
    assert world.come("m1") == ["held"]
    assert [name for name, _ in world.woken(before)] == ["boss"]


def test_several_go_together_and_all_are_waited_for() -> None:
    world = a_world()
    world.create(*a_launcher("boss", 4), *a_launcher("helper", 4), *members(2, least=4, mem=16))
    world.come("m0", "m1")
    assert world.observe("boss").nodes == ()
    (node,) = world.observe("helper").nodes
    assert [name for name, _ in world.woken()] == ["boss"]
    world.bound_alone("helper", node)
    assert world.phase() is Phase.STARTING
    world.bound_alone("boss", world.observe("boss").nodes[0])
    assert world.phase() is Phase.BINDING


def test_of_a_start_that_came_to_nothing_it_is_taken_back() -> None:
    world = a_world()
    world.create(*a_launcher("boss", 4), *a_launcher("helper", 4), *members(2, least=4, mem=16))
    world.come("m0", "m1")
    world.observe("helper")
    world.bound_alone("boss", world.observe("boss").nodes[0])
    world.later(16)
    assert world.phase() is not Phase.STARTING
    assert set(world.denied()) == {"m0", "m1"}
    assert world.evicted() == ["boss"]
    before = len(world.done)
    world.later(6)
    assert world.evicted(before) == ["boss"], "it is said again"
    world.delete("boss")
    assert world.booked() == []


def test_of_such_a_start_nobody_is_taken_back_who_has_no_controller() -> None:
    world = a_world()
    alone = a_member("boss", least=4, role="launcher", owner="")
    world.create(alone, *a_launcher("helper", 4), *members(2, least=4, mem=16))
    world.come("m0", "m1")
    world.observe("helper")
    world.bound_alone("boss", world.observe("boss").nodes[0])
    world.later(16)
    assert world.evicted() == []
    assert world.stage("boss") is Stage.BOUND


def test_who_does_not_lead_takes_nobody_back() -> None:
    world = a_world()
    world.create(*a_launcher("boss", 4), *a_launcher("helper", 4), *members(2, least=4, mem=16))
    world.come("m0", "m1")
    world.observe("helper")
    world.bound_alone("boss", world.observe("boss").nodes[0])
    world.tell(Leading(False))
    assert world.evicted() == []


def test_its_replacement_in_a_gang_that_runs_goes_anywhere_and_belongs_to_the_start() -> None:
    world = a_world()
    world.create(*crew())
    world.come("m0", "m1")
    world.bound_alone("boss", world.observe("boss").nodes[0])
    world.land()
    world.delete("boss")
    assert world.phase() is Phase.DEGRADED
    world.create(msgspec.structs.replace(a_launcher()[0], metadata=a_second("boss")))
    nodes = world.observe("boss").nodes
    assert nodes
    world.bound_alone("boss", nodes[0])
    assert world.phase() is Phase.RUNNING
    told = allocation.decode(world.marks()["boss"])
    assert told is not None
    assert told.group == Group("default/g", 1, 3)


def a_second(name: str) -> object:
    return msgspec.structs.replace(a_launcher(name)[0].metadata, uid=f"uid-{name}-2")


def test_bound_while_we_were_away_it_counts_and_the_others_start_without_it() -> None:
    world = a_world()
    world.create(*crew())
    world.bound_alone("boss", "plain")
    assert world.phase() is Phase.WAITING or world.phase() is Phase.STARTING
    assert world.come("m0", "m1")[-1] == "flying"
    world.land()
    assert world.phase() is Phase.RUNNING


def test_refused_before_we_knew_anything_it_is_woken_when_its_turn_comes() -> None:
    world = a_world()
    world.create(*crew())
    world.engine.hold_back(world.pods["boss"])
    world.come("m0", "m1")
    assert [name for name, _ in world.woken()] == ["boss"]


def test_kept_off_its_node_it_is_planned_elsewhere() -> None:
    world = a_world()
    world.create(*crew())
    world.come("m0", "m1")
    (node,) = world.observe("boss").nodes
    (other,) = {"n1", "plain"} - {node}
    world.observe("boss", [other])
    world.now += 1.1
    world.observe("boss", [other])
    assert set(world.denied()) == {"m0", "m1"}
    world.later(1)
    assert world.gang().members["uid-boss"].node == other


@pytest.mark.parametrize(
    ("pod", "concerns"),
    [
        (a_pod("p"), False),
        (a_pod("p", mem=4), False),
        (a_member("p"), True),
        (a_member("p", mem=4), False),
        (a_member("p", containers=[a_container("c", limits={names.GPU_COUNT: "1"})]), True),
    ],
    ids=["stranger", "single-with-gpu", "member-without", "member-with", "member-of-other-resources"],
)
def test_only_members_without_our_resources_concern_us(pod: object, concerns: bool) -> None:
    assert a_world().engine.concerns(pod) is concerns  # type: ignore[arg-type]


def test_its_condition_of_being_refused_is_no_news() -> None:
    world = a_world()
    world.create(*crew())
    world.observe("boss")
    world.change("boss", conditions=(Condition(type="PodScheduled", status="False"),))
    world.come("m0", "m1")
    assert [name for name, _ in world.woken()] == ["boss"]

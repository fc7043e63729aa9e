"""Pods of another workload do not join a gang that has started, unless a PodGroup declares it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.types.effects import Report
from extender.engine.types.events import GroupGone, GroupSeen
from gangfilter.members import Stage
from gangfilter.table import Phase
from protos.contract.objects import Pod
from tests.builders import a_node
from tests.unit.engine.gang_story import KEY, VOLCANO, GangStory, a_declaration, a_member, members, two_nodes

TAKEN = "GangTaken"


def running(**fields: Any) -> GangStory:
    """A gang of two pods of one Job on two of four GPUs."""
    world = two_nodes()
    world.start(*members(2, whole=1, mem=0, **fields))
    assert world.phase() is Phase.RUNNING
    return world


def another(name: str = "x0", owner: str = "other", least: int = 2, **fields: Any) -> Pod:
    return a_member(name, owner=owner, least=least, whole=1, **fields)


def of_kind(pod: Pod, kind: str, name: str) -> Pod:
    """The pod with this controller."""
    (owner,) = pod.metadata.owner_references
    owners = (msgspec.structs.replace(owner, kind=kind, name=name, uid=f"uid-{name}"),)
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=owners))


@pytest.mark.parametrize(("first", "second"), [("job", "other"), ("job", ""), ("", "job")])
def test_pods_of_another_owner_wait_outside_and_are_told_so(first: str, second: str) -> None:
    world = running(owner=first)
    world.create(another(owner=second))
    assert world.come("x0") == [TAKEN]
    assert world.stage("x0") is Stage.ABSENT
    (event,) = [e.reason for e in world.done if isinstance(e, Report) and e.pod.name == "x0"]
    named = {"job": "Job job", "other": "Job other", "": "no controller"}
    assert event.numbers == f"the gang has pods of {named[first]}; this pod is of {named[second]}"
    assert world.engine.explain(world.engine.pods["uid-x0"]) == event
    assert world.bind("x0", "n2") == TAKEN


def test_a_further_pod_of_the_same_job_joins() -> None:
    world = running()
    world.create(another(owner="job"))
    assert world.come("x0") == ["flying"]


def test_what_outsiders_declare_does_not_count() -> None:
    world = running()
    world.create(another(least=5))
    world.later(1)
    assert world.phase() is Phase.RUNNING
    assert world.gang().terms.min_member == 2
    world.change("x0", phase="Pending")
    assert world.gang().terms.min_member == 2


def test_outsiders_start_once_the_gang_is_gone() -> None:
    world = running()
    world.create(another("x0"), another("x1"))
    assert world.come("x0", "x1") == [TAKEN, TAKEN]
    world.delete("m0")
    assert world.come("x0") == [TAKEN]
    world.delete("m1")
    assert world.come("x0") == [TAKEN], "its controller may create the pod again"
    world.later(31)
    assert world.phase() is Phase.STARTING
    assert {name for name, _ in world.woken()} >= {"x0", "x1"}
    assert world.come("x0", "x1") == ["held", "flying"]
    world.land()
    assert world.phase() is Phase.RUNNING


def test_outsiders_start_once_the_gang_is_completed_though_its_pods_are_still_there() -> None:
    world = running()
    world.create(another("x0", least=3), another("x1", least=3), another("x2", least=3))
    assert world.come("x0") == [TAKEN]
    for name in ("m0", "m1"):
        world.change(name, phase="Succeeded")
    world.later(1)
    assert world.phase() is Phase.STARTING
    assert world.gang().terms.min_member == 3
    world.come("x0", "x1", "x2")
    world.land()
    assert world.phase() is Phase.RUNNING
    world.create(another("late", owner="job"))
    assert world.come("late") == [TAKEN], "the group is of the other job now"


def test_a_pod_group_is_consent() -> None:
    world = running()
    world.create(another())
    assert world.come("x0") == [TAKEN]
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=2)))
    assert ("x0", "") in world.woken()
    assert world.come("x0") == ["flying"]
    world.land()
    world.tell(GroupGone(VOLCANO, KEY))
    world.create(another("x1"))
    assert world.come("x1") == [TAKEN]
    assert world.phase() is Phase.RUNNING


def test_who_waits_inside_waits_outside_when_the_pod_group_is_deleted() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=2)))
    world.start(*members(2, whole=1, mem=0))
    world.create(another(least=7))
    assert world.come("x0") == ["NoRoom"]
    world.tell(GroupGone(VOLCANO, KEY))
    assert world.stage("x0") is Stage.ABSENT
    assert world.come("x0") == [TAKEN]
    assert world.gang().terms.min_member == 2


@pytest.mark.parametrize(
    ("labels", "first", "later"),
    [
        ({"jobset.sigs.k8s.io/jobset-name": "set"}, ("Job", "set-a-0"), ("Job", "set-b-0")),
        ({"training.kubeflow.org/job-name": "mpi"}, ("MPIJob", "mpi"), ("Job", "mpi-launcher")),
        ({"pod-template-hash": "aaa"}, ("ReplicaSet", "web-aaa"), ("ReplicaSet", "web-bbb")),
        ({"applicationId": "app"}, ("Job", "a"), ("Job", "b")),
        ({}, ("StatefulSet", "db"), ("StatefulSet", "db")),
    ],
)
def test_pods_of_one_workload_with_several_controllers_share_a_gang(
    labels: dict[str, str], first: tuple[str, str], later: tuple[str, str]
) -> None:
    world = two_nodes()
    world.start(*(of_kind(pod, *first) for pod in members(2, whole=1, mem=0, labels=labels)))
    turned = {key: "bbb" if key == "pod-template-hash" else value for key, value in labels.items()}
    world.create(of_kind(another(labels=turned), *later))
    assert world.come("x0") == ["flying"]


def test_two_jobs_whose_pods_are_there_before_the_start_share_the_gang_and_a_third_does_not() -> None:
    world = two_nodes()
    world.start(a_member("a", owner="one", least=2), a_member("b", owner="two", least=2))
    world.create(another("c", owner="two"), another("d", owner="three"))
    assert world.come("c", "d") == ["flying", TAKEN]


def test_outsiders_stay_outside_when_the_extender_restarts() -> None:
    world = running()
    world.later(60)
    world.create(another())
    assert world.come("x0") == [TAKEN]
    world.restart()
    assert world.stage("x0") is Stage.ABSENT
    assert world.come("x0") == [TAKEN]
    assert world.phase() is Phase.RUNNING
    world.create(another("own", owner="job"))
    assert world.come("own") == ["flying"]


def test_outsiders_stay_outside_while_the_gang_restarts() -> None:
    world = two_nodes()
    world.start(*members(2, whole=1, mem=0, lost="restart"))
    world.create(another("x0", lost="restart"), another("x1", lost="restart"))
    world.delete("m0")
    assert world.phase() is Phase.UNDOING
    world.terminate("m1")
    assert world.phase() is Phase.ASSEMBLING
    assert world.come("x0", "x1") == [TAKEN, TAKEN]
    world.again("m1")
    world.create(another("m2", owner="job", lost="restart"))
    world.come("m1", "m2")
    world.land()
    assert world.phase() is Phase.RUNNING
    assert world.come("x0") == [TAKEN]


def test_after_a_first_start_that_fails_everybody_may_join() -> None:
    world = two_nodes()
    world.create(*members(2, whole=1, mem=0))
    world.come("m0")
    world.create(another())
    assert world.come("x0") == [TAKEN]
    world.later(20)
    assert world.stage("x0") is not Stage.ABSENT

"""Why a pod waits for which kube-scheduler has not asked: what the pod's own object tells."""

from __future__ import annotations

from typing import Any

import msgspec

from extender.engine.types.events import PodSeen
from protos.contract import names
from protos.contract.objects import Condition, Pod
from tests.builders import a_node, a_pod
from tests.unit.engine.story import Story
from tests.unit.engine.test_queues import a_queue

MESSAGE = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."


def told(pod: Pod, **settings: Any) -> tuple[str, str, str]:
    story = Story(a_node("n", 16), **settings)
    story.tell(PodSeen(pod))
    reason = story.engine.explain(story.engine.pods[pod.metadata.uid])
    return reason.code, reason.sentence, reason.numbers


def refused(pod: Pod, message: str = MESSAGE) -> Pod:
    """The pod as kube-scheduler marks it when its own filters leave no node."""
    condition = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=(condition,)))


def test_a_pod_of_another_scheduler_is_told_which_one_it_names() -> None:
    spec = {"schedulerName": "default-scheduler"}
    code, sentence, _ = told(a_pod(mem=1, spec=spec), scheduler_names=("gangshare",))
    assert code == "OtherScheduler"
    assert "schedulerName is default-scheduler" in sentence
    assert told(a_pod(mem=1, spec=spec))[0] == "Unasked"


def test_the_scheduling_gates_of_others_are_named_and_ours_is_not() -> None:
    gates = [{"name": name} for name in (names.PLAN_GATE, "kueue.x-k8s.io/admission")]
    pod = a_pod(mem=1, spec={"schedulingGates": gates})
    assert told(pod)[:2] == ("SchedulingGated", "the pod waits for its scheduling gate kueue.x-k8s.io/admission")
    many = a_pod(mem=1, spec={"schedulingGates": [{"name": f"g{number}"} for number in range(99)]})
    assert told(many)[1].endswith("g0, g1, g2, and 5 more")


def test_a_queue_that_does_not_exist_is_told_before_kube_scheduler_asks() -> None:
    story, pod = Story(a_node("n", 16)), a_pod(mem=1, annotations={names.QUEUE: "nowhere"})
    for seen in (a_queue("other"), PodSeen(pod)):
        story.tell(seen)
    assert story.engine.explain(story.engine.pods[pod.metadata.uid]).code == "QueueMissing"


def test_what_kube_scheduler_itself_says_is_told() -> None:
    assert told(refused(a_pod(mem=1))) == ("Unschedulable", "kube-scheduler finds no node for the pod", MESSAGE)
    assert len(told(refused(a_pod(mem=1), "x" * 99_999))[2]) < 2000


def test_a_pod_about_which_nothing_is_known_waits_for_kube_scheduler() -> None:
    assert told(a_pod(mem=1))[0] == "Unasked"


def test_a_refusal_of_ours_is_told_before_what_kube_scheduler_made_of_it() -> None:
    story, pod = Story(a_node("n", 16)), refused(a_pod(mem=17))
    story.tell(PodSeen(pod))
    assert story.filter(pod) == []
    assert story.engine.explain(story.engine.pods[pod.metadata.uid]).code == "CannotFit"

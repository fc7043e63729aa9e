"""Why a pod waits whose GPUs and queue do not matter: its own state, and the schedulers around us."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.types.effects import Refuse
from extender.engine.types.events import PodGone, PodSeen
from protos.contract import names
from protos.contract.objects import Condition, Pod
from protos.contract.reason import Reason
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.story import Story
from tests.unit.refusals.case import Case, on_one_node, refusal


def _explained(pod: Pod, **settings: Any) -> Reason:
    """Why the pod waits, which kube-scheduler has not asked about."""
    story = Story(a_node("n", 16), **settings)
    story.tell(PodSeen(pod))
    return story.engine.explain(story.engine.pods[pod.metadata.uid])


def _bound(story: Story, pod: Pod, node: str) -> Reason:
    """Why bind refuses the pod."""
    answer = story.bind(pod, node)
    assert isinstance(answer, Refuse)
    return answer.reason


def forged() -> Reason:
    return on_one_node(a_pod(mem=4, annotations={names.ALLOCATION: "{}"}))


def taken_after_filter() -> Reason:
    story, pod = Story(a_node("a", 16), a_node("b", 16)), a_pod(mem=16)
    story.filter(pod)
    story.tell(PodSeen(a_pod("stranger", mem=1, node="b")))
    return _bound(story, pod, "b")


def bound_elsewhere() -> Reason:
    story, pod = Story(a_node("a", 16), a_node("b", 16)), a_pod(mem=16)
    node = story.filter(pod)[0]
    story.bind(pod, node)
    return _bound(story, pod, "b" if node == "a" else "a")


def gone() -> Reason:
    story, pod = Story(a_node("n", 16)), a_pod(mem=4)
    story.tell(PodSeen(pod))
    story.tell(PodGone(pod.metadata.uid))
    return refusal(story, pod)


def set_aside() -> Reason:
    story, pod = Story(a_node("n", 16)), a_pod(mem=4)
    story.tell(PodSeen(pod))

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(story.engine._components.offers, "of", fails)
        refused = refusal(story, pod)
    told = story.engine.explain(story.engine.pods[pod.metadata.uid])
    assert told.sentence == refused.sentence
    return told


def held_back() -> Reason:
    world = GangStory(a_node("n", 16))
    world.create(*members(1, mem=0))
    return world.engine.hold_back(world.pods["m0"])


def _marked() -> Pod:
    """A pod for which kube-scheduler's own filters leave no node."""
    pod = a_pod(mem=4)
    condition = Condition("PodScheduled", "False", reason="Unschedulable", message="0/1 nodes are available")
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=(condition,)))


BOUND = "never there: it has a node"
STATES = [
    Case(
        "AllocationForged",
        "the pod has an allocation that Gangshare did not write; the pod waits until it is removed",
        forged,
    ),
    Case(
        "BindConflict",
        "the GPUs on the chosen node are no longer free; the pod is scheduled again",
        taken_after_filter,
        "nothing",
    ),
    Case(
        "BindUnseen",
        "this extender has not placed the pod; it is scheduled again",
        lambda: _bound(Story(a_node("n", 16)), a_pod(mem=4), "n"),
        "nothing",
    ),
    Case("BindElsewhere", "the pod is bound to another node already", bound_elsewhere, "nothing", BOUND),
    Case("PodGone", "the pod has ended", gone, "nothing", "never: it is over"),
    Case(
        "SetAside",
        "Gangshare had an internal error on this object; it is quarantined until it changes or is retried",
        set_aside,
    ),
    Case("NotReady", "the pod's gang waits until the extender has read the cluster", held_back, "nothing"),
    Case(
        "OtherScheduler",
        "schedulerName is <scheduler>: that scheduler does not ask Gangshare",
        lambda: _explained(a_pod(mem=4, spec={"schedulerName": "default-scheduler"}), scheduler_names=(names.PROFILE,)),
    ),
    Case(
        "SchedulingGated",
        "the pod waits for its scheduling gate <gate>",
        lambda: _explained(a_pod(mem=4, spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})),
    ),
    Case("Unschedulable", "kube-scheduler finds no node for the pod", lambda: _explained(_marked())),
    Case("Unasked", "kube-scheduler has not asked Gangshare for the pod yet", lambda: _explained(a_pod(mem=4))),
]

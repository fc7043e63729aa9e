"""What is read of a pod stands on its record, and nowhere once the pod is over or set aside."""

from __future__ import annotations

import math

import msgspec
import pytest

from extender.engine.queueing.tenancy import Tenancy
from extender.engine.state.pod_info import UNREAD
from extender.engine.state.running_pods import RunningPods
from extender.engine.types.events import PodGone, PodSeen, Tick
from protos.contract import names
from protos.contract.objects import Pod
from tests.builders import a_node, a_pod
from tests.unit.engine.story import Story
from tests.unit.engine.test_quarantine import poison

RUNS = {names.EXPECTED_RUNTIME: "5400"}


def runs_on(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


def test_the_record_has_what_the_pod_says() -> None:
    story = Story(a_node("n1", 16), scheduler_names=("gangshare",))
    story.tell(PodSeen(a_pod("one", mem=1, annotations=RUNS, spec={"schedulerName": "gangshare", "priority": 7})))
    story.tell(PodSeen(a_pod("other", mem=1)))
    one, other = story.engine.pods["uid-one"], story.engine.pods["uid-other"]
    assert (one.info.ours, one.info.on_node, one.info.expected_s, one.priority) == (True, False, 5400, 7)
    assert (other.info.ours, other.info.expected_s) == (False, math.inf)
    assert list(story.engine._components.running_pods.pending) == ["uid-one"]


def test_a_run_time_counts_as_it_was_said_at_first() -> None:
    story = Story(a_node("n1", 16))
    for said in ("5400", "1"):
        story.tell(PodSeen(a_pod("one", mem=1, annotations={names.EXPECTED_RUNTIME: said})))
    assert story.engine.runtimes.of_pod(story.engine.pods["uid-one"]) == 5400


@pytest.mark.faults
def test_of_a_pod_that_is_set_aside_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(a_node("n1", 16))
    pod = runs_on(a_pod("one", annotations=RUNS), "n1")
    story.tell(PodSeen(pod))
    running = story.engine._components.running_pods
    assert list(running.priorities) == [0]
    with monkeypatch.context() as faulty:
        poison(Tenancy, "see", faulty)
        story.tell(PodSeen(pod))
    state = story.engine.pods["uid-one"]
    assert (state.node, state.info) == ("n1", UNREAD)
    assert list(running.priorities) == []


@pytest.mark.faults
def test_a_pod_that_could_not_be_forgotten_leaves_no_priority_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(a_node("n1", 16))
    story.tell(PodSeen(runs_on(a_pod("one"), "n1")))
    with monkeypatch.context() as faulty:
        poison(RunningPods, "forget", faulty)
        story.tell(PodGone("uid-one"))
    for _ in range(10):
        story.now += 1.0
        story.tell(Tick())
    assert list(story.engine._components.running_pods.priorities) == []

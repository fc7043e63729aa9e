"""Pods with keys that we do not read stay pending, with the key in the reason and in an Event."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.cycle import pending_reasons
from extender.engine.types.effects import Effect, PostBinding, Report
from extender.engine.types.events import Leading, PodGone, PodSeen
from extender.engine.types.settings import UnknownKeys
from protos.contract import mistakes, names
from protos.contract.objects import Pod
from protos.contract.reason import Reason
from tests.builders import a_container, a_node, a_pod
from tests.unit.engine.story import Story, changed

MISSPELT = {"gangshare.io/gpu-modle": "H200"}
SENTENCE = "annotation gangshare.io/gpu-modle is not known to Gangshare: did you mean gangshare.io/gpu-model?"


def seen(story: Story, pod: Pod) -> list[str]:
    """The Events that the first sight of the pod brings."""
    return events(story.tell(PodSeen(pod)))


def events(effects: list[Effect]) -> list[str]:
    return [str(effect.reason) for effect in effects if isinstance(effect, Report)]


def refusal(story: Story, pod: Pod) -> str:
    """Why filter refuses the pod, "" if it does not."""
    story.now += 0.01
    found = story.engine.filter(pod, sorted(story.engine.nodes), story.now)
    return found.reason.sentence if found.reason is not None else ""


def test_a_pod_with_a_misspelt_key_is_refused_and_told_at_once() -> None:
    story = Story(a_node("a", 16))
    pod = a_pod("p", mem=4, annotations=MISSPELT)
    assert seen(story, pod) == [SENTENCE]
    assert refusal(story, pod) == SENTENCE
    assert events(story.engine.effects()) == [], "one Event is enough"
    assert str(story.engine.explain(story.engine.pods["uid-p"])) == SENTENCE


def test_pods_that_came_while_nobody_led_are_told_by_the_new_leader_and_those_that_are_gone_are_not() -> None:
    story = Story(a_node("a", 16))
    story.tell(Leading(False))
    for name in ("p", "q"):
        assert seen(story, a_pod(name, mem=4, annotations=MISSPELT)) == []
    story.tell(PodGone("uid-q"))
    told = [effect for effect in story.tell(Leading(True)) if isinstance(effect, Report)]
    assert [(effect.pod.name, str(effect.reason)) for effect in told] == [("p", SENTENCE)]
    assert events(story.tell(Leading(True))) == [], "once"


def test_a_standby_keeps_no_more_pods_to_tell_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_reasons, "UNREPORTED", 2)
    story = Story(a_node("a", 16))
    story.tell(Leading(False))
    for number in range(4):
        seen(story, a_pod(f"p{number}", mem=4, annotations=MISSPELT))
    assert len(events(story.tell(Leading(True)))) == 2


def test_a_corrected_pod_runs() -> None:
    story = Story(a_node("a", 16))
    pod = a_pod("p", mem=4, annotations=MISSPELT)
    seen(story, pod)
    assert refusal(story, pod)
    assert story.run(changed(pod, {}, None, "")) == "a:0"


def test_a_pod_that_asks_for_an_unknown_resource_is_told_although_nobody_asks_about_it() -> None:
    pod = a_pod("p", containers=[{**a_container("main"), "resources": {"limits": {"gangshare.io/gpu-memory": "4"}}}])
    story = Story(a_node("a", 16))
    assert seen(story, pod) == [
        "resource gangshare.io/gpu-memory is not known to Gangshare: did you mean gangshare.io/gpu-mem?"
    ]
    assert refusal(story, pod)


def test_keys_of_another_product_are_told_to_pods_that_its_scheduler_does_not_serve() -> None:
    foreign: dict[str, Any] = {"annotations": {"gpu-fraction": "0.5"}}
    ours = a_pod("p", **foreign, spec={"schedulerName": names.PROFILE})
    theirs = a_pod("q", **foreign, spec={"schedulerName": "kai-scheduler"})
    story = Story(a_node("a", 16), scheduler_names=(names.PROFILE,))
    assert [event[:33] for event in seen(story, ours)] == ["annotation gpu-fraction is of KAI"]
    assert seen(story, theirs) == []
    assert "write limit gangshare.io/gpu-slice: 50" in refusal(story, ours)


def test_a_pod_of_another_scheduler_with_our_keys_is_told_the_schedulers_name() -> None:
    story = Story(a_node("a", 16), scheduler_names=(names.PROFILE,))
    expected = "schedulerName is gangshre: that scheduler does not ask Gangshare: write schedulerName: gangshare"
    lost: dict[str, Any] = {"spec": {"schedulerName": "gangshre"}}
    assert seen(story, a_pod("p", mem=4, **lost)) == [expected]
    assert seen(story, a_pod("q", annotations={names.GROUP: "g", names.MIN_MEMBER: "2"}, **lost)) == [expected]
    assert seen(story, a_pod("r", whole=1, **lost)) == [expected]
    others: dict[str, Any] = {"spec": {"schedulerName": "default-scheduler"}}
    assert seen(story, a_pod("t", whole=1, **others)) == [], "others serve whole GPUs too"
    assert seen(story, a_pod("s", mem=4, node="a", **lost)) == [], "it has a node"


def test_a_pod_that_selects_gpus_and_asks_for_none_is_refused_unless_its_gang_has_gpus() -> None:
    story = Story(a_node("a", 16), scheduler_names=(names.PROFILE,))
    ours: dict[str, Any] = {"spec": {"schedulerName": names.PROFILE}}
    pod = a_pod("p", annotations={names.GPU_MODEL: "H200"}, **ours)
    assert [event[:44] for event in seen(story, pod)] == ["annotation gangshare.io/gpu-model selects GPU"[:44]]
    assert "no container asks for any" in refusal(story, pod)
    launcher = a_pod("q", annotations={names.GPU_MODEL: "H200", names.GROUP: "g", names.MIN_MEMBER: "1"}, **ours)
    assert "no container asks for any" not in str(seen(story, launcher)) + refusal(story, launcher)


def test_where_unknown_keys_only_warn_the_pod_runs_and_is_told() -> None:
    story = Story(a_node("a", 16), unknown_keys="warn")
    pod = a_pod("p", mem=4, annotations=MISSPELT)
    assert seen(story, pod) == [SENTENCE]
    assert story.run(pod) == "a:0"


@pytest.mark.parametrize("unknown_keys", ["refuse", "warn"])
def test_the_keys_of_a_pod_are_looked_through_once_when_it_is_seen_first(
    monkeypatch: pytest.MonkeyPatch, unknown_keys: UnknownKeys
) -> None:
    seen_keys, first = [], mistakes.first

    def counted(pod: Pod, resources: names.Resources, slices_per_gpu: int) -> Reason | None:
        seen_keys.append(pod.metadata.annotations)
        return first(pod, resources, slices_per_gpu)

    monkeypatch.setattr(mistakes, "first", counted)
    story = Story(a_node("a", 16), unknown_keys=unknown_keys)
    assert seen(story, a_pod("p", mem=4, annotations=MISSPELT)) == [SENTENCE]
    assert seen_keys == [MISSPELT]


def test_a_pod_that_runs_is_left_alone() -> None:
    story = Story(a_node("a", 16), unknown_keys="warn")
    pod = a_pod("p", mem=4, annotations=MISSPELT)
    place = story.filter(pod) and story.bind(pod, "a")
    assert isinstance(place, PostBinding)
    bound = changed(pod, {**MISSPELT, **place.annotations}, None, "a")
    again = Story(a_node("a", 16))
    assert seen(again, bound) == []
    assert again.engine.pods["uid-p"].ask is not None
    assert mistakes.UNKNOWN not in str(again.engine.explain(again.engine.pods["uid-p"]))

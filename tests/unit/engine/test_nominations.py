"""Pending single pods get their nodes before kube-scheduler asks about them, and hold nothing for long."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.policies.nomination import nominations
from extender.engine.policies.nomination.nominations import AHEAD, NOMINATED_S, REMOVED_S, SKIPPED
from extender.engine.types.effects import Nominate
from extender.engine.types.events import QueueSeen
from extender.engine.types.refusals import NO_ROOM
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.queue import GPU, GPUS, Queue
from tests.builders import MAKER, a_node, a_pod
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.preemption_story import urgent

BY_US = [
    MAKER,
    {
        "manager": names.EXTENDER,
        "operation": "Update",
        "subresource": "status",
        "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}},
    },
]


def large(nodes: int = 6, gpus: int = 4, **settings: Any) -> GangStory:
    """A cluster in which nominations are worth their write."""
    return GangStory(*(a_node(f"n{i}", *[16] * gpus) for i in range(nodes)), **{"nominate_from": 2, **settings})


def singles(count: int, prefix: str = "p", **fields: Any) -> list[Pod]:
    return [a_pod(f"{prefix}{i:03}", **{"whole": 1, **fields}) for i in range(count)]


def nominated(story: GangStory, since: int = 0) -> dict[str, str]:
    """The last nomination of each pod, "" if it was removed."""
    return {effect.pod.name: effect.node for effect in story.done[since:] if isinstance(effect, Nominate)}


def written(story: GangStory, *which: str) -> None:
    """The API server shows the nominations."""
    for name in which:
        story.change(name, managed=BY_US, annotations={}, nominated_node_name=nominated(story)[name])


def burst(story: GangStory, pods: list[Pod]) -> dict[str, str]:
    """All pods come at once, before kube-scheduler asks."""
    for pod in pods:
        story.pods[pod.metadata.name] = pod
    story.show(*(pod.metadata.name for pod in pods))
    story.run_slice()
    return nominated(story)


def test_pods_that_wait_for_kube_scheduler_get_nodes_with_room_for_all_of_them() -> None:
    story = large()
    found = burst(story, singles(24))
    assert list(found) == [f"p{i:03}" for i in range(SKIPPED, 24)]
    assert {node: list(found.values()).count(node) for node in found.values()} == {
        f"n{i}": 4 if i < 5 else 2 for i in range(6)
    }
    for name, node in found.items():
        assert story.ask(name, [node], nominated=node).nodes == (node,)
        assert story.bind(name, node) == "flying"
    assert story.come("p000", "p001") == ["flying", "flying"]


@pytest.mark.parametrize(
    ("settings", "count", "fields"),
    [
        ({"nominate_from": 7}, 12, {}),
        ({"nominate_from": 0}, 12, {}),
        ({"in_tree_preferences": True}, 12, {}),
        ({"scheduler_names": ("ours",)}, 12, {}),
        ({}, nominations.BACKLOG - 1, {}),
        ({}, 12, {"spec": {"schedulingGates": [{"name": "example.com/theirs"}]}}),
        ({}, 12, {"spec": {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}}),
        ({}, 12, {"whole": 0}),
        ({}, 12, {"spec": {"nodeSelector": {"zone": "nowhere"}}}),
        ({}, 12, {"whole": 5}),
    ],
    ids=["small", "off", "all-nodes", "others", "few", "gated", "prefers", "no-gpu", "selects", "too-large"],
)
def test_pods_are_not_nominated(settings: dict[str, Any], count: int, fields: dict[str, Any]) -> None:
    story = large(**settings)
    assert burst(story, singles(count, **fields)) == {}
    assert story.booked() == []


def test_members_of_gangs_are_left_to_their_plans() -> None:
    story = large()
    story.create(*members(8, least=9))
    assert nominated(story) == {}


def test_kube_scheduler_takes_the_higher_priority_first_then_the_older() -> None:
    story = large()
    pods = [*singles(3, "low"), *(urgent(pod, 5) for pod in singles(3, "high"))]
    assert list(burst(story, pods)) == ["high002", "low000", "low001", "low002"]


def test_a_queue_without_quota_gets_no_more() -> None:
    story = large()
    story.tell(QueueSeen(Queue(name="q", capability={GPUS: 5 * GPU})))
    burst(story, singles(12, annotations={names.QUEUE: "q"}))
    assert len(nominated(story)) == 5
    assert len(story.booked()) == 5


def test_while_kube_scheduler_stands_still_a_stated_number_hold_gpus_and_not_for_long() -> None:
    story = large(nodes=40)
    found = burst(story, singles(150))
    assert len(found) == len(story.booked()) == AHEAD
    written(story, *found)
    story.later(NOMINATED_S + 1)
    assert story.booked() == []
    story.later(60)
    assert story.booked() == []
    assert set(nominated(story).values()) == {""}, "removed from pods that are still pending"
    assert story.come("p000") == ["flying"]
    story.run_slice()
    assert len(story.booked()) == 1 + AHEAD, "kube-scheduler asks again"


def test_a_nomination_of_a_bound_pod_is_not_removed() -> None:
    story = large()
    found = burst(story, singles(8))
    written(story, *found)
    for name, node in found.items():
        story.ask(name, [node], nominated=node)
        story.bind(name, node)
    story.land()
    before = len(story.done)
    story.later(REMOVED_S + 5)
    assert nominated(story, before) == {}


def test_a_node_that_kube_scheduler_refuses_is_given_up() -> None:
    story = large()
    found = burst(story, singles(8))
    name, node = next(iter(found.items()))
    others = [other for other in story.nodes if other != node]
    offered = story.ask(name, others, nominated=node).nodes
    assert offered
    assert node not in offered
    assert story.bind(name, offered[0]) == "flying"


def test_a_pod_taken_before_its_nomination_was_seen_gets_the_charged_node() -> None:
    story = large()
    name, node = list(burst(story, singles(8)).items())[-1]
    assert story.ask(name).nodes == (node,)


def test_a_pod_whose_nominated_node_has_no_room_any_more_is_refused_silently_and_then_gets_another() -> None:
    story = large()
    name, node = next(iter(burst(story, singles(8)).items()))
    story.later(NOMINATED_S + 1)
    for i in range(4):
        story.create(a_pod(f"here{i}", whole=1))
        assert story.ask(f"here{i}", [node]).nodes == (node,)
        assert story.bind(f"here{i}", node) == "flying"
    before = len(story.told())
    assert story.ask(name, [node], nominated=node).nodes == ()
    assert (name, NO_ROOM) not in story.told()[before:]
    offered = story.ask(name, nominated=node).nodes
    assert offered
    assert node not in offered


def test_a_pod_before_them_gets_the_room_of_nominations() -> None:
    story = large(nodes=2, gpus=4)
    assert len(burst(story, singles(10))) == 8
    story.create(urgent(a_pod("late", whole=4), 10))
    assert story.come("late") == ["flying"]


def test_a_pod_behind_them_does_not() -> None:
    story = large(nodes=2, gpus=4)
    assert len(burst(story, singles(10))) == 8
    story.create(urgent(a_pod("late", whole=4), -10))
    assert story.ask("late").nodes == ()
    assert len(story.booked()) == 8


def test_a_gang_before_them_gets_the_room_of_nominations() -> None:
    story = large(nodes=2, gpus=4)
    assert len(burst(story, singles(10))) == 8
    story.create(*(urgent(pod, 10) for pod in members(8, mem=0, whole=1)))
    assert story.come(*(f"m{i}" for i in range(8)))[-1] == "flying"


def test_another_process_charges_what_it_finds_nominated_by_an_extender() -> None:
    story = large()
    found = burst(story, singles(8))
    written(story, *found)
    story.restart()
    assert {pod.ref.name: pod.node for pod in story.engine.pods.values() if pod.node} == found


def test_a_nomination_by_somebody_else_is_not_believed_nor_overwritten() -> None:
    story = large()
    pods = [
        msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name="n1"))
        for pod in singles(8)
    ]
    assert burst(story, pods) == {}
    assert story.booked() == []
    story.later(REMOVED_S + 5)
    assert nominated(story) == {}


def test_a_nominated_pod_that_goes_or_changes_leaves_nothing() -> None:
    story = large()
    found = list(burst(story, singles(8)))
    story.delete(found[0])
    story.terminate(found[1])
    assert len(story.booked()) == len(found) - 2
    story.later(NOMINATED_S + 1)
    assert story.booked() == []


@pytest.mark.faults
def test_an_error_over_one_pod_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    story = large()
    nominate = nominations.Nominations._nominate

    def failing(self: nominations.Nominations, place: Any, pod: Any, now: float) -> None:
        if pod.ref.name == "p003":
            raise RuntimeError("an error")
        nominate(self, place, pod, now)

    monkeypatch.setattr(nominations.Nominations, "_nominate", failing)
    found = burst(story, singles(8))
    assert list(found) == ["p002", "p004", "p005", "p006", "p007"]


def test_a_pod_that_may_go_to_its_nominated_node_only_is_told_why_it_waits_and_requeued() -> None:
    """kube-scheduler asks twice about that one node: as the nominated one, and as all that passed its filters."""
    story = large()
    name, node = next(iter(burst(story, singles(8)).items()))
    story.later(NOMINATED_S + 1)
    for i in range(4):
        story.create(a_pod(f"here{i}", whole=1))
        assert story.ask(f"here{i}", [node]).nodes == (node,)
        assert story.bind(f"here{i}", node) == "flying"
    story.land()
    for _ in range(2):
        assert story.ask(name, [node], nominated=node).nodes == ()
    assert (name, NO_ROOM) in story.told()
    before = len(story.done)
    story.delete("here0")
    story.later(1)
    assert (name, node) in story.woken(before)

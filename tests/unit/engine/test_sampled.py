"""kube-scheduler checks a part of a large cluster: what it did not check counts as neither refused nor full."""

from __future__ import annotations

import msgspec
import pytest

from extender.engine.policies.nomination import nominations
from extender.engine.policies.nomination.nominations import NOMINATED_S, PAUSE_S, REFUSED, REMOVED_S
from extender.engine.state.intree import Constraints
from extender.engine.state.node_state import NodeState
from extender.engine.types import refusals
from extender.engine.types.effects import RemoveNomination, Requeue
from extender.engine.types.events import NodeSeen
from extender.engine.types.look import LEAST, look
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.objects import Node
from tests.builders import MAKER, a_node, a_pod
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.preemption_story import urgent

NODES = 3 * LEAST
SAMPLE = [f"n{i:03}" for i in range(LEAST)]
"""The nodes that kube-scheduler checks in these stories."""


def large(*roomy: str) -> GangStory:
    """A cluster in which only the nodes `roomy` have a GPU. The label `zone` is the first digit of a node's name."""
    made = (a_node(f"n{i:03}", *([16] if f"n{i:03}" in roomy else [])) for i in range(NODES))
    return GangStory(*(_in_zone(node) for node in made))


def _in_zone(node: Node) -> Node:
    metadata = msgspec.structs.replace(node.metadata, labels={"zone": node.metadata.name[1]})
    return msgspec.structs.replace(node, metadata=metadata)


def nominated(story: GangStory, since: int = 0) -> list[tuple[str, str]]:
    """The pods that are requeued and nominated, and their nodes."""
    return [(e.pod.name, e.node) for e in story.done[since:] if isinstance(e, Requeue) and e.nominate]


@pytest.mark.parametrize(
    ("asked", "nominated_to", "known", "refused", "not_refused"),
    [
        (["a", "b"], "", 3, ["c"], ["a"]),  # all that passed
        (["a"], "a", 3, [], ["a", "b"]),  # the nominated one alone
        (["a", "b"], "c", 3, ["c", "d"], ["a"]),
        (SAMPLE, "", NODES, [], ["n000", "n200"]),  # a sample
        (SAMPLE, "n200", NODES, ["n200"], ["n201"]),
        (SAMPLE, "", LEAST, ["n200"], ["n000"]),  # every node of a cluster of that size
    ],
)
def test_what_a_question_says_of_other_nodes(
    asked: list[str], nominated_to: str, known: int, refused: list[str], not_refused: list[str]
) -> None:
    seen = look(asked, nominated_to, known)
    assert [node for node in refused + not_refused if seen.refuses(node)] == refused


def test_a_pod_that_fits_in_the_sample_is_offered_a_node_of_it() -> None:
    story = large("n050", "n250")
    story.create(a_pod("p", whole=1))
    assert story.ask("p", SAMPLE).nodes == ("n050",)


def test_a_pod_that_fits_elsewhere_is_nominated_there_with_a_soft_charge() -> None:
    story = large("n250")
    story.create(a_pod("p", whole=1), a_pod("q", whole=1))
    verdict = story.ask("p", SAMPLE)
    assert (verdict.nodes, verdict.reason) == ((), refusals.NOT_LOOKED_AT)
    assert nominated(story) == [("p", "n250")]
    assert story.booked() == ["p"]
    assert story.ask("q", SAMPLE).reason != refusals.NOT_LOOKED_AT, "the only GPU is charged"
    assert story.ask("p", ["n250"], nominated="n250").nodes == ("n250",)
    assert story.bind("p", "n250") == "flying"


def test_a_soft_charge_elsewhere_ends_and_the_pod_is_requeued_again() -> None:
    story = large("n250")
    story.create(a_pod("p", whole=1))
    story.ask("p", SAMPLE)
    before = len(story.done)
    story.later(NOMINATED_S + 3)
    assert nominated(story, before) == [("p", "n250")]


def test_nodes_that_kube_scheduler_refuses_one_by_one_are_not_nominated_again() -> None:
    story = large(*(f"n2{i:02}" for i in range(10)))
    story.create(a_pod("p", whole=1))
    story.ask("p", SAMPLE)
    tried = [node for _, node in nominated(story)]
    while story.ask("p", SAMPLE, nominated=tried[-1]).reason == refusals.NOT_LOOKED_AT:
        tried.append(nominated(story)[-1][1])
    assert len(tried) == len(set(tried)) == REFUSED
    assert story.booked() == []
    assert story.ask("p", SAMPLE).reason != refusals.NOT_LOOKED_AT
    story.later(PAUSE_S)
    assert story.ask("p", SAMPLE).reason == refusals.NOT_LOOKED_AT


def test_a_node_that_the_extender_refused_alone_is_not_one_that_kube_scheduler_refuses() -> None:
    story = large("n250")
    story.create(a_pod("p", whole=1), urgent(a_pod("q", whole=1), 10))
    story.ask("p", SAMPLE)
    assert story.come("q") == ["flying"]
    story.land()
    assert story.ask("p", ["n250"], nominated="n250").nodes == ()
    assert story.ask("p", SAMPLE, nominated="n250").nodes == ()
    before = len(story.done)
    story.delete("q")
    story.later(3)
    assert nominated(story, before) == [("p", "n250")]


def test_a_pod_whose_nominated_node_was_taken_is_nominated_elsewhere_even_a_second_later() -> None:
    story = large("n250", "n260")
    story.create(a_pod("p", whole=1), urgent(a_pod("q", whole=1), 10))
    story.ask("p", SAMPLE)
    assert story.ask("q", ["n250"]).nodes == ("n250",)
    story.bind("q", "n250")
    story.land()
    assert story.ask("p", ["n250"], nominated="n250").nodes == ()
    story.now += 1
    assert story.ask("p", SAMPLE, nominated="n250").reason == refusals.NOT_LOOKED_AT
    assert nominated(story) == [("p", "n250"), ("p", "n260")]


def test_a_pod_whose_nominated_node_has_lost_its_gpu_is_offered_another_of_the_same_question() -> None:
    story = large("n150", "n250")
    story.create(a_pod("p", whole=1))
    story.ask("p", SAMPLE)
    assert nominated(story) == [("p", "n150")]
    story.tell(NodeSeen(a_node("n150")))
    assert story.ask("p", [f"n{i}" for i in range(100, 300)], nominated="n150").nodes == ("n250",)


def test_a_pod_that_selects_nodes_is_nominated_to_one_of_them() -> None:
    story = large("n201", "n101")
    story.create(a_pod("p", whole=1, spec={"nodeSelector": {"zone": "1"}}))
    story.ask("p", SAMPLE)
    assert nominated(story) == [("p", "n101")]


def test_a_refused_pod_is_nominated_to_the_node_that_gets_capacity_if_it_may_go_there() -> None:
    story = large("n101", "n201")
    for name, node in (("one", "n101"), ("two", "n201")):
        story.create(a_pod(name, whole=1, node=node))
    story.create(a_pod("p", whole=1, spec={"nodeSelector": {"zone": "1"}}))
    assert story.ask("p", SAMPLE).nodes == ()
    story.delete("two")
    story.later(3)
    assert nominated(story) == []
    story.delete("one")
    story.later(3)
    assert nominated(story) == [("p", "n101")]


def test_a_booked_pod_whose_node_was_not_checked_is_nominated_there() -> None:
    story = large("n250")
    story.create(a_pod("p", whole=1))
    story.ask("p", ["n250"])
    story.bind("p", "n250")
    assert story.ask("p", SAMPLE).reason == refusals.ELSEWHERE
    assert nominated(story) == [("p", "n250")]


def test_members_asked_about_other_nodes_than_theirs_are_nominated_and_their_plan_stands() -> None:
    story = large("n150", "n250")
    story.create(*members(2, mem=0, whole=1))
    assert [story.ask(name, SAMPLE).nodes for name in ("m0", "m1")] == [(), ()]
    places = {name: story.engine.pods[f"uid-{name}"].node for name in ("m0", "m1")}
    assert sorted(places.values()) == ["n150", "n250"]
    story.later(1)
    assert story.ask("m0", SAMPLE).nodes == (), "taken before kube-scheduler saw the nomination"
    assert ("m0", places["m0"]) in nominated(story)
    for name, node in places.items():
        assert story.ask(name, [node], nominated=node).nodes == (node,)
        story.bind(name, node)
    assert story.phase() is Phase.BINDING


def test_a_place_that_kube_scheduler_refuses_is_planned_anew() -> None:
    story = large("n150", "n250", "n260")
    story.create(*members(2, mem=0, whole=1))
    place = story.engine.pods["uid-m0"].node
    for _ in range(4):
        story.ask("m0", SAMPLE, nominated=place)
        story.later(1.5)
    assert story.engine.pods["uid-m0"].node not in ("", place)


def test_members_that_fit_nowhere_wait_and_are_planned_when_a_node_that_was_not_checked_has_room() -> None:
    story = large("n150", "n250")
    story.create(a_pod("one", whole=1, node="n150"), *members(2, mem=0, whole=1))
    assert [story.ask(name, SAMPLE).nodes for name in ("m0", "m1")] == [(), ()]
    before = len(story.done)
    story.delete("one")
    story.later(1)
    assert sorted(node for _, node in nominated(story, before)) == ["n150", "n250"]


# -- how long a nomination lasts

BY_US = [
    MAKER,
    {
        "manager": names.EXTENDER,
        "operation": "Update",
        "subresource": "status",
        "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}},
    },
]


def a_nominated_pod() -> GangStory:
    """The pod `p` was refused, and the API server shows its nomination to n250."""
    story = large("n250")
    story.create(a_pod("p", whole=1))
    story.ask("p", SAMPLE)
    story.change("p", managed=BY_US, annotations={}, nominated_node_name="n250")
    return story


def removed(story: GangStory) -> list[str]:
    return [effect.pod.name for effect in story.done if isinstance(effect, RemoveNomination)]


def test_a_nomination_is_removed_from_a_pod_that_is_still_pending() -> None:
    story = a_nominated_pod()
    story.create(urgent(a_pod("q", whole=1), 10))
    assert story.come("q") == ["flying"]
    story.later(REMOVED_S + 1)
    assert removed(story) == ["p"]


def test_a_nomination_of_a_bound_pod_is_not_removed() -> None:
    story = a_nominated_pod()
    story.ask("p", ["n250"], nominated="n250")
    story.bind("p", "n250")
    story.land()
    story.later(REMOVED_S + 5)
    assert removed(story) == []


def test_a_pod_before_it_gets_the_room() -> None:
    story = a_nominated_pod()
    story.create(urgent(a_pod("late", whole=1), 10))
    assert story.come("late") == ["flying"]


def test_a_pod_behind_it_does_not() -> None:
    story = a_nominated_pod()
    story.create(urgent(a_pod("late", whole=1), -10))
    assert story.ask("late").nodes == ()
    assert story.booked() == ["p"]


def test_a_gang_before_it_gets_the_room() -> None:
    story = a_nominated_pod()
    story.create(*(urgent(pod, 10) for pod in members(1, mem=0, whole=1)))
    assert story.come("m0") == ["flying"]


def test_another_process_charges_what_it_finds_nominated_by_an_extender() -> None:
    story = a_nominated_pod()
    story.restart()
    assert {pod.ref.name: pod.node for pod in story.engine.pods.values() if pod.node} == {"p": "n250"}


def test_another_process_charges_the_nodes_of_members_whose_bindings_were_lost() -> None:
    story = large("n150", "n250")
    story.create(*members(2, mem=0, whole=1))
    story.ask("m0", SAMPLE)
    for name in ("m0", "m1"):
        node = story.engine.pods[f"uid-{name}"].node
        story.change(name, managed=BY_US, annotations=story.pods[name].metadata.annotations, nominated_node_name=node)
        assert story.ask(name, [node], nominated=node).nodes == (node,)
        story.bind(name, node)
    story.land("m0")
    story.restart()
    story.later(2)
    story.create(a_pod("late", whole=1))
    assert story.ask("late").nodes == ()
    assert story.booked() == ["m0", "m1"]
    node = story.pods["m1"].status.nominated_node_name or ""
    assert story.ask("m1", [node], nominated=node).nodes == (node,)
    assert story.bind("m1", node) == "flying"
    story.land("m1")
    assert story.phase() is Phase.RUNNING


def test_a_nomination_by_somebody_else_is_not_believed_nor_removed() -> None:
    story = large("n250")
    pod = a_pod("p", whole=1)
    story.create(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name="n250")))
    story.restart()
    assert story.booked() == []
    story.later(REMOVED_S + 5)
    assert removed(story) == []


def test_a_nominated_pod_that_goes_leaves_nothing() -> None:
    story = a_nominated_pod()
    story.delete("p")
    assert story.booked() == []
    story.later(REMOVED_S + 5)
    assert removed(story) == []


@pytest.mark.parametrize(("terms", "tried"), [(1, 40), (38, 2)])
def test_a_pod_whose_check_takes_long_is_tried_on_fewer_nodes(
    terms: int, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within its 32 KiB an affinity could make one filter take half a second."""
    monkeypatch.setattr(nominations, "TRIED", 40)
    checked: list[str] = []
    admits = Constraints.admits

    def counted(self: Constraints, node: NodeState) -> bool:
        checked.append(node.name)
        return admits(self, node)

    monkeypatch.setattr(Constraints, "admits", counted)
    story = large(*(f"n{number:03}" for number in range(LEAST, NODES)))
    wanted = [{"matchExpressions": [{"key": f"k{n}", "operator": "Exists"}]} for n in range(terms)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}}
    story.create(a_pod("p", whole=1, spec={"affinity": {"nodeAffinity": required}}))
    assert story.ask("p", SAMPLE).nodes == ()
    assert len(checked) == tried

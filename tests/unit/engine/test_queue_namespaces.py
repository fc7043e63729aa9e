"""A queue may say which namespaces' pods may use it; what is bound without us counts and is told as too much."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.queueing.queues import Queues
from extender.engine.types.effects import QueueStatus
from extender.engine.types.events import Event, GroupSeen, NamespaceGone, NamespaceSeen, PodSeen, QueueGone
from gangfilter.group import GroupKey
from protos.contract import bounds, names
from protos.contract.namespace import Namespace
from protos.contract.objects import Pod
from protos.contract.queue import GPUS, NOBODY, Queue
from protos.contract.selector import Requirement, Selector
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import VOLCANO, GangStory, a_declaration
from tests.unit.engine.test_queues import a_queue, gang, gpus, in_queue, run

OF_A = Selector({"team": "a"})
OWN, ELASTIC = "gangshare.io/v1alpha1", "scheduling.sigs.k8s.io/v1alpha1"


def a_namespace(name: str, **labels: str) -> NamespaceSeen:
    return NamespaceSeen(Namespace(name, labels))


def closed_to_others(name: str, **fields: Any) -> Event:
    return a_queue(name, namespace_selector=OF_A, **fields)


def a_single(name: str, queue: str, **fields: Any) -> Pod:
    return a_pod(name, whole=1, annotations=in_queue(queue), **fields)


def a_story() -> GangStory:
    """Two nodes of four GPUs."""
    return GangStory(a_node("n1", *[16] * 4), a_node("n2", *[16] * 4))


@pytest.fixture
def story() -> GangStory:
    return a_story()


def relabel(story: GangStory, name: str, queue: str) -> None:
    """A pod names another queue now."""
    pod = story.pods[name]
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.metadata.annotations, **in_queue(queue)})
    story.pods[name] = msgspec.structs.replace(pod, metadata=metadata)
    story.show(name)


def replayed(story: GangStory, *world: Event) -> GangStory:
    """Another process that reads the same cluster."""
    other = a_story()
    other.tell(*world, *(PodSeen(pod) for pod in story.pods.values()))
    return other


@pytest.mark.parametrize(
    ("labels", "selector", "admitted"),
    [
        ({"team": "a"}, OF_A, True),
        ({"team": "b"}, OF_A, False),
        ({}, OF_A, False),
        ({"team": "b"}, None, True),
        ({}, Selector(), True),
        ({"team": "b"}, Selector(match_expressions=(Requirement("team", "In", ("a", "b")),)), True),
        ({}, Selector(match_expressions=(Requirement("team", "DoesNotExist"),)), True),
        ({"team": "a"}, NOBODY, False),
        ({"": ""}, Selector({"": ""}), True),
    ],
)
def test_a_single_pod_uses_a_queue_only_if_its_namespace_is_selected(
    story: GangStory, labels: dict[str, str], selector: Selector | None, admitted: bool
) -> None:
    story.tell(a_namespace("default", **labels), a_queue("team-a", namespace_selector=selector))
    story.create(a_single("p", "team-a"))
    assert story.come("p") == (["flying"] if admitted else ["QueueForbidden"])


def test_the_sentence_is_constant_and_names_the_queue(story: GangStory) -> None:
    story.tell(a_namespace("default"), closed_to_others("team-a"))
    story.create(a_single("p", "team-a"))
    told = {str(story.ask("p").reason) for _ in range(3)}
    assert told == {"queue team-a does not admit pods of this namespace; workloads that name it wait until it does"}


def test_a_namespace_that_is_not_known_is_selected_by_no_selector_that_says_anything(story: GangStory) -> None:
    absent = Selector(match_expressions=(Requirement("team", "DoesNotExist"),))
    story.tell(a_queue("team-a", namespace_selector=absent), a_queue("all", namespace_selector=Selector()))
    story.create(a_single("p", "team-a"), a_single("q", "all"))
    assert story.come("p", "q") == ["QueueForbidden", "flying"]


@pytest.mark.parametrize("change", [a_namespace("default", team="a"), a_queue("team-a"), QueueGone(OWN, "team-a")])
def test_pods_and_gangs_that_wait_come_back_when_labels_or_selectors_change(change: Event) -> None:
    story = a_story()
    story.tell(a_namespace("default"), closed_to_others("team-a"), a_queue("other"))
    story.create(a_single("p", "team-a"), *gang("g", 2, "team-a"))
    assert story.come("p") == ["QueueForbidden"]
    story.later(3)
    assert story.why("g") == "QueueForbidden"
    assert story.known("g").parked
    story.tell(change)
    story.later()
    if isinstance(change, QueueGone):
        assert story.why("g") == "QueueMissing"
        return
    assert [name for name, _ in story.woken()] == ["p"]
    assert run(story, "g", 2) == ["held", "flying"]


def test_a_pod_is_woken_once_to_be_told_that_it_waits_for_something_else_now(story: GangStory) -> None:
    story.tell(a_namespace("default"), a_queue("other"))
    story.create(a_single("p", "team-a"))
    assert story.come("p") == ["QueueMissing"]
    story.tell(closed_to_others("team-a"))
    story.later()
    assert [name for name, _ in story.woken()] == ["p"]
    assert story.come("p") == ["QueueForbidden"]
    before = len(story.woken())
    story.tell(a_queue("another"))
    story.later(20)
    assert len(story.woken()) == before


def test_a_gang_by_its_podgroups_queue_is_refused_too(story: GangStory) -> None:
    story.tell(a_namespace("default"), closed_to_others("team-a"))
    story.tell(GroupSeen(VOLCANO, GroupKey("default", "g"), a_declaration(min_member=1, queue="team-a")))
    story.create(a_pod("g-0", whole=1, annotations={names.GROUP: "g"}))
    assert story.why("g") == "QueueForbidden"


def test_what_waits_without_being_admitted_is_no_demand_of_that_queue(story: GangStory) -> None:
    story.tell(a_namespace("default"), closed_to_others("team-a"), a_queue("team-b"))
    story.create(a_single("b", "team-b"), *(a_single(f"p{i}", "team-a") for i in range(30)))
    story.later()
    queues = story.engine.tenancy.queues
    assert queues.queue_nodes["team-a"].requested.get(GPUS, 0) == 0
    assert queues.queue_nodes["team-a"].due[GPUS] == 0


def test_a_running_pod_does_not_move_its_usage_into_a_queue_that_does_not_admit_it(story: GangStory) -> None:
    mine = a_queue("mine", gpus=1, namespaces=("default",))
    world = [a_namespace("default"), closed_to_others("victim", gpus=2), mine]
    story.tell(*world)
    story.create(a_single("p", "mine"))
    assert story.come("p") == ["flying"]
    story.land()
    relabel(story, "p", "victim")
    assert (gpus(story, "victim"), gpus(story, "mine")) == (0, 1), "it still counts with its namespace"
    story.create(a_single("q", "mine"))
    assert story.come("q") == ["QueueFull"]
    again = replayed(story, *world)
    assert (gpus(again, "victim"), gpus(again, "mine")) == (0, 1)


def test_pods_that_run_go_on_and_count_with_their_namespace_when_it_is_not_admitted_any_more(story: GangStory) -> None:
    story.tell(a_namespace("default", team="a"), closed_to_others("team-a", gpus=4))
    story.start(*gang("g", 2, "team-a"))
    assert gpus(story, "team-a") == 2
    story.tell(a_namespace("default", team="b"))
    assert (gpus(story, "team-a"), gpus(story, "default")) == (0, 2)
    assert story.phase("g") == "Running"
    assert strangers(story, "team-a") == (0, 2)
    story.tell(a_namespace("default", team="a"))
    assert (gpus(story, "team-a"), gpus(story, "default")) == (2, 0)
    assert strangers(story, "team-a") == (0, 0)


def strangers(story: GangStory, queue: str) -> tuple[int, int]:
    """Pods that name a queue and are not admitted: those that wait and those that run."""
    found = story.engine.tenancy.queues.queue_nodes[queue].strangers
    return sum(account.waiting for account in found), sum(account.running for account in found)


def test_a_namespace_that_is_gone_is_not_known_any_more(story: GangStory) -> None:
    story.tell(a_namespace("default", team="a"), closed_to_others("team-a"))
    story.tell(NamespaceGone("default"))
    story.create(a_single("p", "team-a"))
    assert story.come("p") == ["QueueForbidden"]


def test_the_queue_that_lists_a_namespace_and_does_not_select_it_refuses_its_pods(story: GangStory) -> None:
    story.tell(a_namespace("default"), closed_to_others("team-a", namespaces=("default",)))
    story.create(a_pod("p", whole=1))
    assert story.come("p") == ["QueueForbidden"]
    story.tell(a_namespace("default", team="a"))
    story.later()
    assert story.come("p") == ["flying"]


def test_an_elastic_quota_hangs_below_a_queue_only_if_that_admits_its_namespace(story: GangStory) -> None:
    quota = a_queue("default/q", source=ELASTIC, parent="team-a", namespaces=("default",))
    story.tell(a_namespace("default"), closed_to_others("team-a", gpus=4), quota)
    queues = story.engine.tenancy.queues
    assert queues.queue_nodes["default/q"].above is queues.root
    assert "team-a does not admit namespace default" in queues.queue_nodes["default/q"].misplaced
    story.tell(a_namespace("default", team="a"))
    above = queues.queue_nodes["default/q"].above
    assert above is not None
    assert above.name == "team-a"


def test_an_unreadable_selector_admits_nobody_and_whatever_else_is_unreadable_leaves_it(story: GangStory) -> None:
    story.tell(a_namespace("default"), a_queue("team-a"))
    story.tell(a_queue("team-a", problem="spec cannot be read: namespaceSelector", namespace_selector=NOBODY))
    story.create(a_single("p", "team-a"))
    assert story.come("p") == ["QueueForbidden"]
    story.tell(a_queue("team-a"), a_queue("team-a", problem="spec cannot be read: weight"))
    story.later()
    assert story.come("p") == ["flying"]


# -- bound without us


def test_pods_bound_without_us_count_and_the_queue_says_that_it_has_too_much(story: GangStory) -> None:
    story.tell(a_queue("team-a", gpus=1))
    for number in range(4):
        pod = a_single(f"own-{number}", "team-a", node="n1")
        story.create(pod)
    assert gpus(story, "team-a") == 4
    (told,) = [e for e in story.later() if isinstance(e, QueueStatus)]
    assert told.exceeded == "4 GPUs are in use, it may have 1 GPUs: nothing new starts in it until it is within that"
    story.create(a_single("p", "team-a"))
    assert story.come("p") == ["QueueFull"]
    story.delete("own-0", "own-1", "own-2", "own-3")
    told = [e for e in story.later() if isinstance(e, QueueStatus)][-1]
    assert told.exceeded == ""
    assert story.come("p") == ["flying"]


# -- bounds


def test_names_of_queues_that_come_and_go_leave_nothing_behind() -> None:
    queues = Queues()
    for number in range(10_000):
        queues.see("uid", f"queue-{number}", f"ns-{number % 7}", ((GPUS, 1),), placed=False)
        assert queues.home("uid").name == "default"
    assert len(queues._local_queues) < 2_000


def test_the_resources_that_are_divided_are_bounded_and_gpus_are_always_among_them() -> None:
    queues = Queues()
    for number in range(100):
        queues.put(Queue(name=f"q{number}", deserved={f"aaa.example.com/{number:03}": 1}))
    assert len(queues.fair) == bounds.QUEUE_DIVIDED.most
    assert GPUS in queues.fair

"""Pods that demand isolation run only where it is proved; the default comes from the namespace, else the cluster."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.placement.misfit import Misfit
from extender.engine.types.effects import PostBinding, Refuse
from extender.engine.types.events import BindDone, NamespaceGone, NamespaceSeen, NodeSeen, PodSeen
from gangfilter.table import Phase
from protos.contract import allocation, names
from protos.contract.isolation import Isolation
from protos.contract.namespace import decode
from protos.contract.objects import Node, Pod
from protos.contract.served import ONE_GPU
from tests.builders import a_container, a_node, a_pod
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.selections import a_class, named, refusal, woken
from tests.unit.engine.story import Story, bound, changed
from tests.unit.engine.test_misfit import why

DRIVER = Isolation(memory="driver", why="no MPS")
OLD = Isolation(why="driver 580 is older than 615")
MEMORY = {names.ISOLATION: "memory"}
MPS = Isolation(memory="mps", compute="mps")
NOTHING = (
    "no node that could fit the pod enforces the memory of containers, which gangshare.io/isolation: memory demands"
)


def a_host(name: str, isolation: Isolation | None = None, *mems: int, **fields: Any) -> Node:
    return a_node(name, *(mems or (16, 16)), isolation=isolation, **fields)


def demanding(name: str = "p", isolation: str = "memory", **fields: Any) -> Pod:
    return a_pod(name, annotations={names.ISOLATION: isolation}, **{"mem": 4, **fields})


def possible(story: Story, pod: Pod) -> set[str]:
    """The nodes that the pod may go to."""
    return {name for name in story.engine.nodes if story.filter(pod, [name])}


def a_namespace(isolation: str | None, name: str = "default") -> NamespaceSeen:
    labels = {} if isolation is None else {names.ISOLATION: isolation}
    return NamespaceSeen(decode(msgspec.json.encode({"metadata": {"name": name, "labels": labels}})))


# -- placement


def test_parts_go_only_to_nodes_that_isolate_as_demanded() -> None:
    story = Story(a_host("a"), a_host("b", OLD), a_host("c", DRIVER), a_host("d", MPS))
    assert possible(story, demanding()) == {"c", "d"}
    assert story.filter(demanding("q", "compute")) == ["d"]
    assert possible(story, a_pod("r", mem=4)) == {"a", "b", "c", "d"}


def test_a_whole_gpu_goes_anywhere_but_a_replica_does_not() -> None:
    replicas = a_host("b", None, replicas={names.WHOLE_GPU: 2})
    story = Story(a_host("a"), replicas, a_host("c", DRIVER, replicas={names.WHOLE_GPU: 2}))
    assert possible(story, demanding(mem=0, whole=1)) == {"a", "c"}


def test_the_allocation_tells_the_plugin_what_to_enforce() -> None:
    story = Story(a_host("c", DRIVER))
    for pod, demanded in ((demanding(), "memory"), (a_pod("q", mem=4), None), (demanding("r", mem=0, whole=1), None)):
        told = allocation.decode(story.bind(pod, story.filter(pod)[0]).annotations[names.ALLOCATION])
        assert told is not None
        assert told.isolation == demanded


@pytest.mark.parametrize("by", ["namespace", "class"])
def test_a_demand_that_came_while_the_binding_was_written_holds_once_it_has_failed(by: str) -> None:
    story = Story(a_host("a"), a_host("c", DRIVER))
    story.tell(a_class("large"))
    pod = a_pod("p", mem=4, annotations={names.GPU_CLASS: "large"} if by == "class" else {})
    assert story.filter(pod, ["a"]) == ["a"]
    place = story.bind(pod, "a")
    assert isinstance(place, PostBinding)
    story.tell(a_namespace("memory") if by == "namespace" else a_class("large", isolation="memory"))
    story.tell(BindDone(pod.metadata.uid, "lost"))
    assert isinstance(story.bind(pod, "a"), Refuse)
    assert story.filter(pod) == ["c"]


def test_members_of_a_gang_are_bound_with_their_demand() -> None:
    world = GangStory(a_host("a"), a_host("c", DRIVER))
    world.start(*members(2, annotations=MEMORY))
    assert world.phase() is Phase.RUNNING
    books = world.engine.nodes["c"].books
    assert books is not None
    assert set(books.entries) == {"uid-m0", "uid-m1"}
    assert {pod.allocation.isolation for pod in world.engine.pods.values() if pod.allocation} == {"memory"}


def test_a_gang_that_no_node_isolates_as_demanded_cannot_start() -> None:
    world = GangStory(a_host("a"))
    world.create(*members(2, annotations=MEMORY))
    reason = world.known().reason
    assert reason is not None
    assert reason.code == "GangCannotFit"
    assert f"{NOTHING}: a has memory promised, compute promised" in reason.numbers


# -- reasons


def test_what_no_node_enforces_is_told_with_the_nearest_node() -> None:
    story = Story(a_host("a"), a_host("c", DRIVER))
    pod = demanding(isolation="compute")
    assert refusal(story, pod) == (
        "no node that could fit the pod enforces the memory and caps the compute of containers, which "
        "gangshare.io/isolation: compute demands: c has memory enforced (driver), compute promised"
    )
    assert story.engine.explain(story.engine.pods["uid-p"]).code == "NoIsolation"


def test_what_is_too_large_everywhere_is_told_as_that_first() -> None:
    assert refusal(Story(a_host("a")), demanding(mem=50)).startswith("no node in the cluster could fit 50 GiB")


def test_a_large_part_is_too_large_for_the_nodes_that_isolate() -> None:
    story = Story(a_host("a", None, 80), a_host("c", DRIVER))
    assert refusal(story, demanding(mem=40)) == f"{NOTHING}: a has memory promised, compute promised"


def test_room_that_is_free_on_other_nodes_only_is_no_room() -> None:
    story = Story(a_host("a", OLD), a_host("c", DRIVER, 16))
    assert story.run(demanding("first", mem=16)) == "c:0"
    assert story.engine.filter(demanding(), ["a", "c"], story.now).reason.code == "NoRoom"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("isolation", "demanded", "words"),
    [
        (None, "memory", "its memory limits are promised, not enforced"),
        (OLD, "compute", "its memory limits are promised, not enforced"),
        (DRIVER, "compute", "its compute limits are promised, not enforced"),
        (Isolation("mps", "cooperative"), "compute", "its compute limits are cooperative, not enforced"),
    ],
)
def test_a_node_that_does_not_isolate_says_what_is_missing(
    isolation: Isolation | None, demanded: str, words: str
) -> None:
    assert why(Story(a_host("n", isolation)), demanding(isolation=demanded)) == Misfit(words, never=True)


def test_a_container_gets_no_parts_of_several_gpus_from_nodes_with_mps() -> None:
    several = a_pod("p", mem=8, annotations={names.GPU_COUNT: "2"})
    cooperative = Isolation("mps", "cooperative")
    story = Story(a_host("a", MPS), a_host("b", cooperative), a_host("c", DRIVER))
    assert possible(story, several) == {"c"}
    for level in (MPS, cooperative):
        assert why(Story(a_host("n", level)), several) == Misfit(ONE_GPU, never=True)
    assert refusal(Story(a_host("a", MPS)), several) == (
        "no node in the cluster could fit 4 GiB on each of 2 GPUs, even if it were empty: MPS gives a container "
        "parts of one GPU only, as on a: request a part of one GPU"
    )


def test_nodes_with_mps_give_several_whole_gpus_and_parts_to_several_containers() -> None:
    whole = a_pod("w", whole=2)
    mixed = a_pod("x", containers=[a_container("one", mem=4), a_container("two", mem=14)])
    for pod in (whole, mixed):
        assert possible(Story(a_host("a", MPS)), pod) == {"a"}


# -- the level of a node changes


def test_a_refused_pod_is_woken_when_a_node_enforces_its_demand() -> None:
    story = Story(a_host("a", OLD))
    pod = demanding()
    story.tell(PodSeen(pod))
    assert refusal(story, pod).startswith(NOTHING)
    story.tell(NodeSeen(a_host("a", DRIVER)))
    assert story.wakes() == ["p"]
    assert story.run(pod) == "a:0"


def test_a_held_pod_is_not_bound_where_the_level_has_fallen() -> None:
    story = Story(a_host("a", DRIVER))
    pod = demanding()
    story.tell(PodSeen(pod))
    assert story.filter(pod) == ["a"]
    story.tell(NodeSeen(a_host("a", OLD)))
    assert isinstance(story.bind(pod, "a"), Refuse)


def test_a_gang_is_planned_again_when_the_level_falls_before_its_bind() -> None:
    world = GangStory(a_host("a", DRIVER), a_host("c", OLD))
    world.create(*members(2, annotations=MEMORY))
    assert world.come("m0") == ["held"]
    world.tell(NodeSeen(a_host("a", OLD)), NodeSeen(a_host("c", DRIVER)))
    world.later()
    world.come("m0", "m1")
    world.land()
    assert world.phase() is Phase.RUNNING
    assert {member.node for member in world.gang().members.values()} == {"c"}


def test_a_running_pod_stays_and_counts_when_the_level_falls() -> None:
    story = Story(a_host("a", DRIVER))
    assert story.run(demanding())
    story.tell(NodeSeen(a_host("a", OLD)))
    books = story.engine.nodes["a"].books
    assert books is not None
    assert books.gpus["GPU-a-0"].mem_used == 4


# -- defaults


def test_the_pod_goes_before_its_namespace_and_that_before_the_cluster() -> None:
    story = Story(a_host("a"), a_host("c", DRIVER), a_host("d", MPS), default_isolation="memory")
    assert possible(story, a_pod("p", mem=4)) == {"c", "d"}
    assert possible(story, demanding("q", "any")) == {"a", "c", "d"}
    story.tell(a_namespace("compute"))
    assert story.filter(a_pod("r", mem=4)) == ["d"]
    assert possible(story, demanding("s", "memory")) == {"c", "d"}
    story.tell(a_namespace("any"))
    assert possible(story, a_pod("t", mem=4)) == {"a", "c", "d"}
    story.tell(NamespaceGone("default"))
    assert possible(story, a_pod("u", mem=4)) == {"c", "d"}


def test_another_namespace_has_another_default() -> None:
    story = Story(a_host("a"))
    story.tell(a_namespace("memory", "theirs"))
    assert story.filter(a_pod("p", mem=4)) == ["a"]
    assert story.filter(a_pod("q", mem=4, namespace="theirs")) == []


def test_a_label_that_cannot_be_read_demands_the_strictest() -> None:
    story = Story(a_host("c", DRIVER), a_host("d", MPS))
    story.tell(a_namespace("Memory"))
    assert story.filter(a_pod("p", mem=4)) == ["d"]


def test_a_class_narrows_the_default() -> None:
    story = Story(a_host("a"), a_host("c", DRIVER), a_host("d", MPS))
    story.tell(a_class(isolation="memory"))
    assert possible(story, named("p")) == {"c", "d"}
    story.tell(a_namespace("compute"))
    assert story.filter(named("q")) == ["d"]
    assert possible(story, named("r", annotations={names.ISOLATION: "any"})) == {"c", "d"}


def test_a_pending_pod_follows_the_label_of_its_namespace() -> None:
    story = Story(a_host("a", None, 16))
    story.tell(a_namespace("memory"))
    pods = [a_pod("p", mem=4), named("c"), demanding("own")]
    story.tell(a_class())
    for pod in pods:
        story.tell(PodSeen(pod))
        assert refusal(story, pod).startswith(NOTHING)
    assert woken(story.tell(a_namespace(None))) == ["p", "c"]
    assert story.run(pods[0]) == "a:0"
    story.tell(a_namespace("memory"))
    assert [story.filter(pod) for pod in pods[1:]] == [[], []]
    assert story.engine.pods["uid-p"].state == "bound"


def test_a_pending_pod_keeps_what_its_class_demands_whatever_its_namespace_says() -> None:
    story = Story(a_host("a"), a_host("c", DRIVER))
    story.tell(a_class(isolation="memory"))
    story.tell(a_namespace("compute"))
    story.tell(PodSeen(named("p")))
    assert story.filter(named("p")) == []
    story.tell(a_namespace(None))
    asked = story.engine.pods["uid-p"].ask
    assert asked is not None
    assert asked.containers[0].isolation == "memory"
    assert story.filter(named("p")) == ["c"]


def test_a_held_pod_is_bound_by_the_new_default() -> None:
    story = Story(a_host("a"))
    pod = a_pod(mem=4)
    story.tell(PodSeen(pod))
    assert story.filter(pod) == ["a"]
    story.tell(a_namespace("memory"))
    assert story.engine.pods["uid-p"].state == "waiting"
    assert isinstance(story.bind(pod, "a"), Refuse)


def test_a_planned_gang_follows_the_new_default() -> None:
    world = GangStory(a_host("a"), a_host("c", DRIVER, 4, 4))
    world.create(*members(2))
    assert world.phase() is Phase.STARTING
    assert world.come("m0") == ["held"]
    world.tell(a_namespace("memory"))
    world.later()
    assert world.phase() is Phase.WAITING
    world.tell(a_namespace("any"))
    world.later()
    world.come("m0", "m1")
    world.land()
    assert world.phase() is Phase.RUNNING


def test_a_default_that_changes_while_a_question_is_on_its_way_is_not_missed() -> None:
    story = Story(a_host("a"))
    pod = a_pod(mem=4)
    assert story.filter(pod) == ["a"]  # before the watch told of it
    story.tell(a_namespace("memory"))
    story.tell(PodSeen(pod))
    assert story.filter(pod) == []


def test_a_bound_pod_keeps_its_gpus_whatever_the_default_becomes() -> None:
    story = Story(a_host("a"))
    pod = a_pod(mem=4)
    place = story.bind(pod, story.filter(pod)[0])
    again = Story(a_host("a"), default_isolation="memory")
    again.tell(PodSeen(bound(pod, place)))
    again.tell(PodSeen(changed(bound(pod, place), {**pod.metadata.annotations, **place.annotations})))
    books = again.engine.nodes["a"].books
    assert books is not None
    assert books.entries["uid-p"].charges["GPU-a-0"].mem == 4

"""The explanations of the status port: the verdict, what to do, and the nodes by reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.types.events import NodeSeen, PodSeen
from extender.server import explain, node_counts, places, verdicts
from extender.server.desk import Pieces, Refusal
from extender.wire import answers, listings
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.objects import Taint
from tests.builders import a_node, a_pod
from tests.unit.docs.pages import page, table
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.story import Story, changed
from tests.unit.engine.test_queues import a_queue, in_queue


def read(pieces: Pieces) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(b"".join(pieces))
    return found


def pod(story: Story | GangStory, name: str = "p", *, scores: bool = False) -> dict[str, Any]:
    return read(explain.pod(story.engine, "default", name, story.now, scores=scores))


def verdict(told: dict[str, Any]) -> tuple[str, str]:
    return told["verdict"]["state"], told["verdict"]["headline"]


def waiting(story: Story, **fields: Any) -> dict[str, Any]:
    """What is told of a pod that kube-scheduler has asked about in vain."""
    asked = a_pod(**fields)
    story.tell(PodSeen(asked))
    assert story.filter(asked) == []
    return pod(story)


def test_a_pod_that_waits_for_gpus_is_told_so_with_the_nodes_by_reason() -> None:
    story = Story(a_node("a", 16), a_node("b", 16), a_node("small", 4), a_node("none"))
    for name in ("x", "y"):
        story.run(a_pod(name, mem=16))
    told = waiting(story, mem=8)
    assert verdict(told) == ("waiting", "waits for free GPUs (NoRoom)")
    assert "gangshare defrag" in told["verdict"]["advice"]
    assert [(each["nodes"], each["why"], each["never"]) for each in told["nodes"]] == [
        (2, "too little GPU memory free", False),
        (1, "GPUs too small", True),
        (1, "no GPUs of Gangshare", True),
    ]
    assert told["nodes"][0]["example"] == "a"


def test_a_pod_that_no_node_could_take_even_empty_can_never_run() -> None:
    assert verdict(waiting(Story(a_node("a", 16)), mem=500)) == ("never", "can never run on these nodes (CannotFit)")
    story = Story(a_node("a", 16))
    story.tell(PodSeen(a_pod(mem=1, spec={"nodeSelector": {"zone": "moon"}})))
    told = pod(story)
    assert verdict(told) == ("never", "can never run on these nodes (Unasked)")
    assert told["nodes"] == [{"nodes": 1, "why": "node selector", "never": True, "example": "a"}]


def test_a_request_that_cannot_be_read_can_never_run_as_it_is() -> None:
    told = waiting(Story(a_node("a", 16)), mem=5, annotations={names.GPU_COUNT: "2"})
    assert verdict(told) == ("never", "can never run as it is (AskUneven)")


def test_a_pod_is_told_to_start_soon_and_then_to_run() -> None:
    story, placed = Story(a_node("a", 16)), a_pod(mem=1)
    story.tell(PodSeen(placed))
    story.filter(placed)
    assert verdict(pod(story)) == ("starting", "starts soon on a: its GPUs are chosen")
    place = story.bind(placed, "a")
    there = changed(placed, place.annotations, node="a")
    story.tell(PodSeen(there))
    assert verdict(pod(story))[0] == "starting"
    story.tell(PodSeen(changed(there, place.annotations, node="a", phase="Running")))
    assert verdict(pod(story)) == ("running", "runs on a")
    assert pod(story)["nodes"] == []


def test_scores_are_told_on_request_alone_and_never_to_a_pod_whose_queue_does_not_exist() -> None:
    story = Story(a_node("a", 16))
    story.tell(PodSeen(a_pod(mem=1)))
    assert "ranking" not in pod(story)
    assert [rank["node"] for rank in pod(story, scores=True)["ranking"]] == ["a"]
    story.tell(a_queue("other"))
    story.tell(PodSeen(a_pod("q", mem=1, annotations=in_queue("nowhere"))))
    told = pod(story, "q", scores=True)
    assert "ranking" not in told
    assert verdict(told) == ("waiting", "waits for its queue (QueueMissing)")


def test_a_pod_that_would_fit_is_told_where() -> None:
    story = Story(a_node("a", 16), a_node("b", 4))
    story.tell(PodSeen(a_pod(mem=8)))
    assert {each["why"]: each["nodes"] for each in pod(story)["nodes"]} == {"": 1, "GPUs too small": 1}


def test_a_pod_that_names_its_gpu_is_compared_with_the_nodes_too() -> None:
    story = Story(a_node("a", 16), a_node("b", 16))
    story.tell(PodSeen(a_pod(mem=8, annotations={names.GPU_UUID: "GPU-b-0"})))
    assert {each["why"]: each["example"] for each in pod(story)["nodes"]} == {"": "b", "other GPU UUIDs": "a"}


def test_reasons_beyond_the_most_frequent_are_counted_together() -> None:
    story = Story(*(a_node(f"n{number:02}", 16) for number in range(30)))
    for number in range(30):
        node = a_node(f"n{number:02}", 16)
        spec = msgspec.structs.replace(node.spec, taints=(Taint(key=f"taint-{number:02}", effect="NoSchedule"),))
        story.tell(NodeSeen(msgspec.structs.replace(node, spec=spec)))
    story.tell(PodSeen(a_pod(mem=8)))
    counts = pod(story)["nodes"]
    assert len(counts) == node_counts.MOST_REASONS + 1
    assert (counts[-1]["why"], counts[-1]["nodes"]) == ("other reasons", 18)


def test_nodes_are_compared_in_slices() -> None:
    story = Story(*(a_node(f"n{number:03}", 4) for number in range(8 * node_counts.NODES)))
    story.tell(PodSeen(a_pod(mem=8)))
    pieces = list(explain.pod(story.engine, "default", "p", story.now))
    assert len(pieces) > 8


def test_a_gang_is_told_what_it_waits_for() -> None:
    story = GangStory(a_node("n1", 16))
    story.create(*members(2, least=3))
    told = read(explain.group(story.engine, GroupKey("default", "g"), story.now))
    assert verdict(told) == ("waiting", "waits for missing members (GangAssembling)")
    assert told["verdict"]["advice"] == "create the missing members, or correct the minimum"


@pytest.mark.parametrize(
    ("phase", "code", "state", "headline"),
    [
        (Phase.RUNNING, "", "running", "runs with 3 members"),
        (Phase.STARTING, "GangStarting", "starting", "starts soon: 3 of 4 members are bound"),
        (Phase.WAITING, "GangNoRoom", "waiting", "waits for free GPUs for all members (GangNoRoom)"),
        (Phase.WAITING, "QueueFull", "waiting", "waits for its queue (QueueFull)"),
        (Phase.WAITING, "GangTooLarge", "never", "can never run as it is (GangTooLarge)"),
        (Phase.FAILED, "GangTimedOut", "never", "can never run as it is (GangTimedOut)"),
        (Phase.DEGRADED, "GangMemberLost", "degraded", "is degraded (GangMemberLost)"),
        (Phase.UNDOING, "GangUndone", "undoing", "is undoing (GangUndone)"),
        (Phase.COMPLETED, "GangCompleted", "completed", "is completed"),
    ],
)
def test_every_phase_of_a_gang_has_a_verdict(phase: Phase, code: str, state: str, headline: str) -> None:
    gang = answers.Gang(namespace="default", name="g", phase=phase, present=4, bound=3, code=code)
    found = verdicts.of_gang(gang)
    assert (found.state, found.headline) == (state, headline)


def test_a_queue_that_starts_no_pods_is_told_why() -> None:
    for fields, headline in (
        ({"closed": True}, "is closed: no pod of it starts"),
        ({"closed": True, "closed_by": "org"}, "is closed with queue org above it: no pod of it starts"),
        ({"problem": "weight is 0"}, "cannot be read: weight is 0"),
        ({"exceeded": "9 GPUs are in use", "running": 9}, "is above its capability: 9 pods run, 0 wait"),
    ):
        found = verdicts.of_queue(listings.Queue(name="q", **fields))
        assert (found.state, found.headline) == ("closed", headline)


def test_a_node_is_told_whether_it_takes_pods() -> None:
    story = Story(a_node("a", 16, 16), a_node("none"), a_node("odd", annotations={names.GPUS: "nonsense"}))
    story.run(a_pod(mem=1))
    told = read(places.node(story.engine, "a"))
    assert verdict(told) == ("open", "takes new pods: 1 of 2 GPUs wholly free")
    assert told["free"] == {"cpu": "64", "memory": "256Gi"}
    story.run(a_pod("q", whole=1))
    assert verdict(read(places.node(story.engine, "a")))[0] == "open"
    story.run(a_pod("r", mem=15))
    assert verdict(read(places.node(story.engine, "a"))) == ("full", "takes no new pods with GPUs: all GPUs are in use")
    assert verdict(read(places.node(story.engine, "none"))) == ("closed", "has no GPUs of Gangshare")
    assert verdict(read(places.node(story.engine, "odd")))[1].startswith("takes no new pods with GPUs: ")
    story.tell(NodeSeen(a_node("a", 16, 16, annotations={names.CORDONED_GPUS: "0,1"})))
    assert verdict(read(places.node(story.engine, "a")))[0] == "closed"
    with pytest.raises(Refusal, match="nowhere: no such node"):
        list(places.node(story.engine, "nowhere"))


def test_a_gpu_is_found_by_its_uuid() -> None:
    story = Story(*(a_node(name, 16, 16) for name in "abc"))
    story.run(a_pod(mem=3))
    used = next(n.name for n in story.engine.nodes.values() if n.books and n.books.entries)
    told = read(places.gpu(story.engine, f"GPU-{used}-0"))
    assert (told["node"], verdict(told)) == (used, ("open", "takes new pods: 13 of 16 units free, used by 1"))
    assert [each["name"] for each in told["gpu"]["pods"]] == ["p"]
    assert verdict(read(places.gpu(story.engine, f"GPU-{used}-1")))[1] == "is wholly free"
    story.tell(NodeSeen(a_node("a", 16, 16, annotations={names.CORDONED_GPUS: "1"})))
    assert verdict(read(places.gpu(story.engine, "GPU-a-1")))[1] == "takes no new pods: it is cordoned"
    with pytest.raises(Refusal, match="GPU-z: no such GPU"):
        list(places.gpu(story.engine, "GPU-z"))


def test_a_queue_is_told_with_the_first_of_its_line() -> None:
    story = GangStory(a_node("n1", 16))
    story.tell(a_queue("a"))
    for number in range(7):
        story.create(a_pod(f"w{number}", mem=99, annotations=in_queue("a")))
        story.ask(f"w{number}")
        story.later(1.0)
    told = read(places.queue(story.engine, "a", story.now))
    assert verdict(told) == ("open", "is open: 0 pods run, 7 wait")
    assert told["inLine"] == 7
    assert [each["who"] for each in told["line"]] == [f"default/w{number}" for number in range(5)]
    with pytest.raises(Refusal, match="nowhere: no such queue"):
        list(places.queue(story.engine, "nowhere", story.now))


def test_a_queue_says_how_many_pods_wait_as_an_explanation_does() -> None:
    story = GangStory(a_node("n1", 16))
    story.tell(a_queue("a"))
    gang = members(3, least=3, prefix="w-", mem=16, annotations=in_queue("a"))
    story.create(*gang, a_pod(mem=99, annotations=in_queue("a")))
    story.later(1.0)
    assert pod(story)["pendingPods"] == pod(story, "w-0")["pendingPods"] == 4
    assert read(explain.group(story.engine, GroupKey("default", "g"), story.now))["pendingPods"] == 4
    assert read(places.queue(story.engine, "a", story.now))["waiting"] == 4


CODES = [row[0] for row in table(page("docs/events.md"), "code", "sentence (an example)", "what to do")]
FAILED_AT_ADMISSION = {
    "NodeFull", "PodUnknown", "NodeUnknown", "ApiSilent", "OneReplica", "PodEnded", "ClassUnknown",
    "NoIsolation",
    "MpsNotReady", "MpsOneGpu",
}  # fmt: skip
NOTHING = {"BindConflict", "BindUnseen", "NodesNotChecked", "BindElsewhere", "PodGone", "NotReady"}


@pytest.mark.parametrize("code", sorted({*CODES} - FAILED_AT_ADMISSION))
def test_every_code_of_a_pending_pod_has_an_advice(code: str) -> None:
    assert (verdicts.what_to_do(code) == verdicts.NOTHING) is (code in NOTHING)

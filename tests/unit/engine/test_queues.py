"""Queues limit what their pods may have together, and say whose turn it is."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from extender.engine.queueing.admission import AGAIN_MOST_S
from extender.engine.queueing.usage import Takes
from extender.engine.state.pod_state import PodState
from extender.engine.types.effects import QueueStatus, Report
from extender.engine.types.events import ClassSeen, NodeGone, NodeSeen, PodGone, PodSeen, QueueGone, QueueSeen
from extender.engine.types.settings import Settings
from protos.contract import names
from protos.contract.gpu_class import GpuClass
from protos.contract.queue import GPU, GPUS, Queue
from protos.contract.queue_sources import SOURCES, decode
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, members
from tests.unit.engine.preemption_story import PreemptionStory, a_single
from tests.unit.engine.story import Story, changed

OWN, VOLCANO = "gangshare.io/v1alpha1", "scheduling.volcano.sh/v1beta1"


def a_queue(name: str, **fields: Any) -> QueueSeen:
    """A queue; `gpus` is its capability in GPUs."""
    if "gpus" in fields:
        fields["capability"] = {GPUS: int(fields.pop("gpus") * GPU)}
    return QueueSeen(Queue(name=name, **fields))


def in_queue(name: str) -> dict[str, str]:
    return {names.QUEUE: name}


def gang(name: str, count: int, queue: str, **fields: Any) -> list[Any]:
    """A gang of pods with a whole GPU each."""
    return members(count, gang=name, prefix=f"{name}-", mem=0, whole=1, annotations=in_queue(queue), **fields)


@pytest.fixture
def story() -> GangStory:
    """Two nodes of four GPUs with 16 units each."""
    return GangStory(a_node("n1", *[16] * 4), a_node("n2", *[16] * 4))


def run(story: GangStory, name: str, count: int) -> list[str]:
    found = story.come(*(f"{name}-{i}" for i in range(count)))
    story.land()
    return found


def gpus(story: GangStory, queue: str) -> float:
    return story.engine.tenancy.queues.queue_nodes[queue].allocated.get(GPUS, 0) / GPU


def numbers(story: GangStory, name: str) -> str:
    reason = story.known(name).reason
    return reason.numbers if reason else ""


def test_without_queues_everything_is_in_default_and_starts(story: GangStory) -> None:
    story.start(*gang("a", 3, "team-a"))
    assert gpus(story, "default") == 3
    assert story.phase("a") == "Running"


def test_a_gang_waits_while_its_queue_has_no_room_for_it_and_starts_when_it_has(story: GangStory) -> None:
    story.tell(a_queue("team-a", gpus=4))
    story.start(*gang("a", 3, "team-a"))
    story.create(*gang("b", 2, "team-a"))
    assert story.why("b") == "QueueFull"
    assert numbers(story, "b") == "queue team-a may have 4 GPUs: 3 are in use, this asks 2"
    verdict = story.ask("b-0")
    assert verdict.reason is not None
    assert verdict.reason.sentence == "queue team-a has no quota left for this request"
    story.delete("a-0")
    story.later()
    assert run(story, "b", 2) == ["held", "flying"]
    assert gpus(story, "team-a") == 4


def test_a_gang_that_waits_for_its_queue_is_left_alone_until_there_is_room(story: GangStory) -> None:
    story.tell(a_queue("team-a", gpus=4), a_queue("team-b", gpus=4))
    story.start(*gang("a", 3, "team-a"), *gang("x", 1, "team-b"))
    story.create(*gang("b", 2, "team-a"))
    story.later(3)
    assert story.known("b").parked
    story.delete("x-0")
    story.later()
    assert story.known("b").parked, "room in another queue does not matter"
    story.delete("a-0")
    story.later()
    assert not story.known("b").parked
    assert run(story, "b", 2) == ["held", "flying"]


@pytest.mark.parametrize(
    "change",
    [a_queue("team-a", gpus=8), QueueGone("gangshare.io/v1alpha1", "team-a"), a_queue("team-a", parent="team-b")],
)
def test_a_gang_left_alone_comes_back_when_its_queue_changes(story: GangStory, change: Any) -> None:
    story.tell(a_queue("team-a", gpus=1), a_queue("team-b"))
    story.create(*gang("a", 2, "team-a"))
    story.later(3)
    assert story.known("a").parked
    story.tell(change)
    story.later()
    assert story.why("a") == ("QueueMissing" if isinstance(change, QueueGone) else "")


def test_only_the_minimum_starts_where_there_is_no_more_room_and_others_follow_one_by_one(story: GangStory) -> None:
    story.tell(a_queue("team-a", gpus=3))
    story.create(*gang("a", 4, "team-a", least=2))
    assert story.come("a-0", "a-1") == ["held", "flying"]
    story.land()
    assert story.come("a-2") == ["flying"]
    story.land()
    assert story.come("a-3") == ["QueueFull"]
    story.delete("a-0")
    story.later()
    assert "a-3" in [name for name, _ in story.woken()]
    assert story.come("a-3") == ["flying"]


def test_a_single_pod_waits_and_is_woken_when_its_queue_has_room(story: GangStory) -> None:
    story.tell(a_queue("team-a", gpus=1))
    for name in ("p", "q", "r"):
        story.create(a_pod(name, mem=8, annotations=in_queue("team-a")))
    assert story.come("p", "q") == ["flying", "flying"], "two halves are one GPU"
    story.land()
    assert story.come("r") == ["QueueFull"]
    (told,) = [e.reason for e in story.done if isinstance(e, Report)]
    assert told.numbers == "queue team-a may have 1 GPUs: 1 are in use, this asks 0.5"
    assert story.woken() == []
    story.delete("q")
    story.later()
    assert story.woken() == [("r", "")]
    assert story.come("r") == ["flying"]


def test_no_more_are_woken_than_there_is_room_for(story: GangStory) -> None:
    story.tell(a_queue("team-a", gpus=2))
    story.create(*(a_pod(f"p{i}", whole=1, annotations=in_queue("team-a")) for i in range(6)))
    story.come(*(f"p{i}" for i in range(6)))
    story.land()
    story.delete("p0")
    story.later()
    story.later()
    assert story.woken() == [("p2", "")]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (a_queue("team-a", closed=True), "QueueClosed"),
        (a_queue("team-b"), "QueueMissing"),
        (a_queue("team-a", problem="spec cannot be read: weight is 0"), "QueueUnreadable"),
    ],
)
def test_nothing_starts_in_a_queue_that_is_closed_missing_or_unreadable(
    story: GangStory, change: QueueSeen, code: str
) -> None:
    story.tell(change)
    story.create(*gang("a", 2, "team-a"), a_pod("p", mem=1, annotations=in_queue("team-a")))
    assert story.why("a") == code
    assert story.come("p") == [code]
    story.tell(a_queue("team-a"))
    story.later()
    assert run(story, "a", 2) == ["held", "flying"]
    assert ("p", "") in story.woken()


def test_a_queue_that_cannot_be_read_any_more_stays_what_it_was(story: GangStory) -> None:
    story.tell(a_queue("team-a", gpus=1), a_queue("team-a", problem="spec cannot be read"))
    queue_node = story.engine.tenancy.queues.queue_nodes["team-a"]
    assert queue_node.queue.capability == {GPUS: GPU}
    assert queue_node.queue.problem == "spec cannot be read"
    assert not queue_node.queue.closed


def test_what_is_above_a_queue_bounds_it_too(story: GangStory) -> None:
    story.tell(a_queue("org", gpus=4), a_queue("team-a", parent="org"), a_queue("team-b", parent="org"))
    story.start(*gang("a", 3, "team-a"))
    story.create(*gang("b", 2, "team-b"))
    assert numbers(story, "b") == "queue org may have 4 GPUs: 3 are in use, this asks 2"
    story.tell(a_queue("team-b"))
    story.later()
    assert run(story, "b", 2) == ["held", "flying"]


def test_what_is_guaranteed_to_one_is_taken_by_nobody_else_even_while_it_is_idle(story: GangStory) -> None:
    story.tell(a_queue("team-a", guarantee={GPUS: 3 * GPU}), a_queue("team-b"))
    story.create(*gang("b", 6, "team-b"))
    assert story.why("b") == "QueueReserved"
    assert numbers(story, "b") == "the cluster has 8 GPUs: 0 are in use, 3 are guaranteed to others, this asks 6"
    story.start(*gang("a", 3, "team-a"))
    assert story.phase("a") == "Running"
    story.create(*gang("c", 5, "team-b"))
    assert run(story, "c", 5)[-1] == "flying"


def test_whose_turn_it_is_goes_by_what_a_queue_has_of_its_due(story: GangStory) -> None:
    story.tell(a_queue("team-a", weight=3), a_queue("team-b", weight=1), a_queue("other"))
    story.start(*gang("a", 2, "team-a"))
    story.start(*gang("b", 1, "team-b"), *gang("other", 5, "other"))
    story.create(*gang("old", 4, "team-b"))
    story.later()
    story.create(*gang("young", 4, "team-a"))
    story.delete(*(f"other-{i}" for i in range(5)))
    story.later()
    assert run(story, "young", 4)[-1] == "flying", "team-a has 2 of 6, team-b 1 of 2"
    assert story.why("old") == "GangNoRoom"


def test_the_queue_with_the_higher_priority_goes_first_though_its_gang_is_younger(story: GangStory) -> None:
    story.tell(a_queue("low"), a_queue("high", priority=10))
    story.start(*gang("all", 4, "low"))
    story.start(*gang("rest", 4, "high"))
    story.create(*gang("old", 4, "low"))
    story.later()
    story.create(*gang("young", 4, "high"))
    story.delete(*(f"all-{i}" for i in range(4)))
    story.later()
    assert run(story, "young", 4)[-1] == "flying"
    assert story.why("old") == "GangNoRoom"


def test_namespaces_belong_to_the_queue_that_lists_them(story: GangStory) -> None:
    story.tell(a_queue("team-a", namespaces=("default",)))
    story.create(a_pod("p", mem=16), a_pod("q", mem=16, annotations=in_queue("default")))
    story.come("p", "q")
    assert gpus(story, "team-a") == 2
    story.tell(QueueGone(OWN, "team-a"))
    assert gpus(story, "default") == 2


def test_of_two_queues_of_one_name_ours_holds(story: GangStory) -> None:
    story.tell(a_queue("team-a", source=VOLCANO, gpus=1), a_queue("team-a", gpus=2))
    queues = story.engine.tenancy.queues
    assert queues.queue_nodes["team-a"].queue.capability == {GPUS: 2 * GPU}
    story.tell(QueueGone(OWN, "team-a"))
    assert queues.queue_nodes["team-a"].queue.capability == {GPUS: GPU}


def test_parents_that_are_missing_or_go_in_circles_are_told_and_hang_below_the_root(story: GangStory) -> None:
    story.tell(
        a_queue("a", parent="b"), a_queue("b", parent="a"), a_queue("c", parent="a"), a_queue("d", parent="nobody")
    )
    found = {name: (s.above.name if s.above else None) for name, s in story.engine.tenancy.queues.queue_nodes.items()}
    assert found == {"a": "", "b": "", "c": "a", "d": "", "default": ""}
    told = {e.name: e.misplaced for e in story.later() if isinstance(e, QueueStatus)}
    assert told["a"] == "its parent b hangs below it: it hangs below the root"
    assert told["d"] == "its parent nobody does not exist: it hangs below the root"
    assert told["c"] == ""


def test_the_status_tells_what_is_due_and_what_is_had(story: GangStory) -> None:
    story.tell(a_queue("team-a", weight=3), a_queue("team-b"))
    story.start(*gang("a", 4, "team-a"))
    story.create(*gang("b", 8, "team-b"))
    told = {e.name: e for e in story.later() if isinstance(e, QueueStatus)}
    assert told["team-a"].fair_share[GPUS] == "4"
    assert told["team-b"].fair_share[GPUS] == "4"
    assert (told["team-a"].allocated[GPUS], told["team-b"].requested[GPUS]) == ("4", "8")
    assert (told["team-a"].share, told["team-b"].share) == ("1.00", "0.00")
    assert (told["team-a"].running, told["team-b"].waiting) == (4, 8)
    assert not [e for e in story.later() if isinstance(e, QueueStatus)], "equal news is told once"


def takes(story: GangStory, name: str) -> Takes:
    return story.engine.tenancy.queues.takes(f"uid-{name}")


@pytest.mark.parametrize(
    ("asks", "account"),
    [({"mem": 4}, 0.25), ({"slices": 50}, 0.5), ({"mem": 4, "slices": 50}, 0.5), ({"whole": 2}, 2.0), ({"mem": 16}, 1)],
)
def test_parts_of_gpus_count_as_parts_before_and_after_they_are_placed(asks: dict[str, Any], account: float) -> None:
    story = GangStory(a_node("n1", 16, 16))
    story.create(a_pod("p", **asks))
    assert dict(takes(story, "p"))[GPUS] == account * GPU
    story.come("p")
    assert story.booked() == ["p"]
    assert dict(takes(story, "p"))[GPUS] == account * GPU


def test_the_smallest_gpu_that_would_do_stands_for_those_to_come() -> None:
    story = GangStory(a_node("n1", 16), a_node("n2", 48))
    story.create(a_pod("small", mem=12), a_pod("large", mem=24))
    assert dict(takes(story, "small"))[GPUS] == 0.75 * GPU
    assert dict(takes(story, "large"))[GPUS] == 0.5 * GPU
    story.come("small")
    assert dict(takes(story, "small"))[GPUS] in (0.75 * GPU, 0.25 * GPU)


def test_a_new_kind_of_gpu_counts_pending_pods_anew_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    story = GangStory(a_node("n1", 48))
    story.create(*(a_pod(f"p{number}", mem=12) for number in range(100)), a_pod("gone", mem=12))
    story.later()
    tenancy, counted = story.engine.tenancy, list[str]()
    count = tenancy.moved

    def moved(pod: PodState) -> None:
        counted.append(pod.ref.name)
        count(pod)

    monkeypatch.setattr(tenancy, "moved", moved)
    story.tell(NodeSeen(a_node("n3", 48)))
    tenancy.tick()
    assert counted == []
    story.tell(NodeSeen(a_node("n2", 16)))
    tenancy.tick()
    longest = len(counted)
    story.engine.step(PodGone("uid-gone"), story.now)
    while True:
        before = len(counted)
        more = tenancy.work()
        longest = max(longest, len(counted) - before)
        if not more:
            break
    assert 0 < longest < 50
    assert sorted(counted) == sorted(f"p{number}" for number in range(100))
    assert dict(takes(story, "p0"))[GPUS] == dict(takes(story, "p99"))[GPUS] == 0.75 * GPU
    assert tenancy.queues.root.requested[GPUS] == 75 * GPU


def test_a_kind_of_gpu_that_came_and_went_between_two_ticks_leaves_no_estimate() -> None:
    story = GangStory(a_node("n1", 48))
    story.later()
    story.tell(NodeSeen(a_node("n2", 16)))
    story.create(a_pod("p", mem=12))
    assert dict(takes(story, "p"))[GPUS] == 0.75 * GPU
    story.tell(NodeGone("n2"))
    story.later()
    assert dict(takes(story, "p"))[GPUS] == 0.25 * GPU


def test_a_pod_of_a_class_counts_for_the_class_too(story: GangStory) -> None:
    story.tell(ClassSeen(GpuClass(name="t4")), a_queue("team-a", capability={"class/t4": GPU}))
    said = {names.QUEUE: "team-a", names.GPU_CLASS: "t4"}
    story.create(*(a_pod(name, mem=16, annotations=said) for name in ("p", "q")))
    assert story.come("p", "q") == ["flying", "QueueFull"]


def test_nobody_is_evicted_for_a_pod_whose_queue_is_full() -> None:
    story = PreemptionStory(a_node("n1", 16))
    story.tell(a_queue("team-a", gpus=0.5, priority=1))
    story.runs(a_single("low", 12))
    story.later(11)
    story.waits(a_single("urgent", 10, 1000, annotations=in_queue("team-a")))
    assert story.preempt() == []
    story.tell(a_queue("team-a", gpus=1, priority=1))
    story.later()
    assert story.come("urgent") == ["NoRoom"]
    assert story.preempt() == ["low"]


# -- ElasticQuotas, which tenants may have made


def a_quota(gpus: int) -> QueueSeen:
    """An ElasticQuota that lends nothing of its minimum."""
    labels = {"quota.scheduling.koordinator.sh/allow-lent-resource": "false"}
    metadata = {"name": "q", "namespace": "greedy", "labels": labels}
    made = {"metadata": metadata, "spec": {"min": {GPUS: gpus}, "max": {GPUS: gpus}}}
    return QueueSeen(decode(SOURCES[3], msgspec.json.encode(made)))


@pytest.mark.parametrize(
    ("setting", "code", "deserved"), [("limits", "", 0), ("deserved", "", 1000), ("guaranteed", "QueueReserved", 1000)]
)
def test_an_elastic_quota_guarantees_itself_nothing_unless_the_setting_says_so(
    setting: str, code: str, deserved: int
) -> None:
    story = GangStory(a_node("n1", *[16] * 4), elastic_quotas=setting)
    story.tell(a_quota(1000), a_queue("team-a"))
    story.create(*gang("a", 4, "team-a"))
    assert story.why("a") == code
    quota = story.engine.tenancy.queues.queue_nodes["greedy/q"].queue
    assert (quota.deserved.get(GPUS, 0), quota.capability[GPUS]) == (deserved * GPU, 1000 * GPU)


def test_an_elastic_quota_guarantees_itself_nothing_by_default() -> None:
    assert Settings().elastic_quotas == "deserved"


# -- closed queues


def requested(story: GangStory, queue: str) -> float:
    return story.engine.tenancy.queues.queue_nodes[queue].requested.get(GPUS, 0) / GPU


def due(story: GangStory, queue: str) -> float:
    story.later()
    return story.engine.tenancy.queues.queue_nodes[queue].due[GPUS] / GPU


def test_a_closed_queue_requests_only_what_runs_in_it_and_others_get_the_rest(story: GangStory) -> None:
    story.tell(a_queue("team-a"), a_queue("team-b"))
    story.start(*gang("a", 2, "team-a"))
    story.create(*gang("more", 7, "team-a"), *gang("b", 8, "team-b"))
    assert (due(story, "team-a"), due(story, "team-b")) == (4, 4)
    story.tell(a_queue("team-a", closed=True))
    assert (due(story, "team-a"), due(story, "team-b")) == (2, 6)
    assert (requested(story, "team-a"), story.phase("a")) == (2, "Running")
    story.create(*gang("later", 1, "team-a"))
    assert requested(story, "team-a") == 2
    story.delete("a-0")
    assert requested(story, "team-a") == 1
    story.tell(a_queue("team-a"))
    assert (requested(story, "team-a"), due(story, "team-a")) == (9, 4)


def test_a_closed_queue_keeps_its_guarantee_from_nobody(story: GangStory) -> None:
    story.tell(a_queue("team-a", guarantee={GPUS: 3 * GPU}), a_queue("team-b"))
    story.create(*gang("b", 6, "team-b"))
    assert story.why("b") == "QueueReserved"
    story.tell(a_queue("team-a", guarantee={GPUS: 3 * GPU}, closed=True))
    story.later()
    assert run(story, "b", 6)[-1] == "flying"
    story.tell(a_queue("team-a", guarantee={GPUS: 3 * GPU}))
    story.create(*gang("c", 1, "team-b"))
    assert story.why("c") == "QueueReserved"


def test_a_pod_that_comes_to_a_closed_queue_with_a_node_is_requested_there(story: GangStory) -> None:
    story.tell(a_queue("team-a", closed=True))
    foreign = a_pod("p", whole=1, node="n1", phase="Running", schedulerName="other", annotations=in_queue("team-a"))
    story.create(foreign)
    assert (gpus(story, "team-a"), requested(story, "team-a")) == (1, 1)
    story.delete("p")
    assert (gpus(story, "team-a"), requested(story, "team-a")) == (0, 0)


def test_a_queue_below_a_closed_one_is_closed_with_it(story: GangStory) -> None:
    story.tell(a_queue("org", closed=True), a_queue("team-a", parent="org", guarantee={GPUS: 3 * GPU}))
    story.create(*gang("a", 2, "team-a"), *gang("b", 8, "default"))
    assert story.known("a").reason is not None
    assert story.why("a") == "QueueClosed"
    assert numbers(story, "a") == ""
    assert (requested(story, "team-a"), requested(story, "org")) == (0, 0)
    tenancy = story.engine.tenancy
    assert tenancy.status(tenancy.queues.queue_nodes["team-a"]).closed
    assert story.why("b") == ""


def test_closing_a_queue_changes_nothing_of_what_is_counted_again(story: GangStory) -> None:
    story.tell(a_queue("team-a", closed=True), a_queue("team-b"))
    story.create(*gang("a", 2, "team-a"), *gang("b", 2, "team-b"))
    story.tell(a_queue("team-a"))
    story.later()
    run(story, "a", 2)
    story.tell(a_queue("team-a", closed=True))
    before = requested(story, "team-a"), gpus(story, "team-a")
    story.engine.tenancy.recount()
    assert (requested(story, "team-a"), gpus(story, "team-a")) == before == (2, 2)


def test_a_pod_that_is_moved_to_a_queue_with_quota_is_requeued_even_if_it_was_asked_for_before_that_was_seen() -> None:
    """kube-scheduler may be ahead of our watch: then its question is answered by the former queue."""
    story = Story(a_node("n1", 16))
    story.tell(a_queue("stopped", closed=True))
    story.tell(a_queue("open"))
    pod = a_pod("one", mem=5, annotations=in_queue("stopped"))
    moved = changed(pod, in_queue("open"))
    story.tell(PodSeen(pod))
    assert story.filter(pod) == []
    assert story.filter(moved) == []
    assert story.wakes() == []
    story.tell(PodSeen(moved))
    assert story.wakes() == ["one"]
    assert story.run(moved) == "n1:0"


def test_a_pod_that_was_requeued_for_quota_and_did_not_come_is_requeued_again() -> None:
    """The patch that wakes it may be lost, as in a change of the leader; then it waited for kube-scheduler's flush."""
    story = Story(a_node("n1", 16, 16))
    story.tell(a_queue("team-a", gpus=1))
    first, second = (a_pod(name, mem=16, annotations=in_queue("team-a")) for name in ("first", "second"))
    for pod in (first, second):
        story.tell(PodSeen(pod))
    assert story.run(first)
    assert story.filter(second) == []
    story.tell(PodGone(first.metadata.uid))
    start, woken = story.now, list[float]()
    while story.now < start + 600.0:
        woken += [round(story.now - start)] * story.wakes(after=1.0).count("second")
    assert len(woken) >= 5
    assert all(later - sooner <= AGAIN_MOST_S + 2 for sooner, later in itertools.pairwise([*woken, 600.0]))
    assert story.run(second)
    assert story.wakes(after=AGAIN_MOST_S) == []

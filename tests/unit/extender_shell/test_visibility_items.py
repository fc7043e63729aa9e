"""What the aggregated API tells of the books: in slices, and nothing by name that its caller may not see."""

from __future__ import annotations

from typing import Any

import msgspec

from extender.engine.types.events import ClassSeen, GroupSeen
from extender.server import desk
from extender.server.visibility import items, lines, offers, resources
from extender.server.visibility.items import HIDDEN, Listing, Sight, View
from extender.wire.visibility import GangStatus, GpuOfferStatus, GpuPodStatus, GpuQueueStatus, Item
from gangfilter.group import GroupKey
from protos.contract import names
from protos.contract.gpu_class import GpuClass
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, a_declaration, members
from tests.unit.engine.test_queues import OWN, a_queue, in_queue
from tests.unit.extender_shell.test_line import a_busy_node, big, single, waits


def seen_by(story: GangStory, *namespaces: str) -> View:
    return View(story.engine, story.now, Sight(namespaces))


def found(listing: Listing) -> list[Any]:
    """The statuses, without the pauses."""
    return [item.status for item in listing if item is not None]


def test_the_first_in_line_has_no_name_for_those_who_may_not_see_it() -> None:
    story = a_busy_node(backfill_delay_s=30.0)
    story.create(*big())
    story.later(40.0)
    waits(story, single("behind", in_queue("a"), "3h"))
    (own,) = found(items.pod(seen_by(story, "default"), "default", "behind"))
    assert isinstance(own, GpuPodStatus)
    assert own.first is not None
    assert (own.first.who, own.first.after) == ("gang default/big", "default/runs")
    (others,) = found(items.pod(seen_by(story, "another"), "default", "behind"))
    assert others.first == msgspec.structs.replace(own.first, who=HIDDEN, after=HIDDEN)
    (gang,) = found(items.gang(seen_by(story, "another"), "default", "big"))
    assert isinstance(gang, GangStatus)
    assert gang.earliest is not None
    assert (gang.earliest.who, gang.place, len(gang.members)) == (HIDDEN, 1, 2)


def test_a_queue_tells_the_order_of_its_pending_workloads_and_the_rest_as_a_number() -> None:
    story = a_busy_node(backfill_delay_s=0.0)
    story.create(*big())
    story.later(1.0)
    waits(story, single("young", in_queue("a"), "3h"), single("other", in_queue("b"), "2h"))
    (queue,) = found(lines.queue(seen_by(story, "default"), "", "a"))
    assert isinstance(queue, GpuQueueStatus)
    assert [(each.place, each.kind, each.name) for each in queue.pending] == [(1, "Gang", "big"), (2, "Pod", "young")]
    (hidden,) = found(lines.queue(seen_by(story), "", "a"))
    assert (hidden.pending, hidden.other_pending) == ((), 2)
    assert {status.name for status in found(lines.queues(seen_by(story), ""))} >= {"a", "b", "default"}


def test_gangs_of_other_namespaces_are_passed_in_slices() -> None:
    story = GangStory(a_node("n1", 16))
    for number in range(3 * desk.SLICE):
        story.tell(GroupSeen(OWN, GroupKey("default", f"train-{number:04}"), a_declaration()))
    listed = list(items.gangs(seen_by(story, "another"), "another"))
    assert listed == [None] * 3
    every = list(items.gangs(seen_by(story, "default"), "default"))
    assert len([item for item in every if item is not None]) == 3 * desk.SLICE


def test_a_gang_of_too_many_members_is_told_without_them() -> None:
    story = GangStory(a_node("n1", 16))
    story.create(*members(items.MOST_MEMBERS + 1, least=2, mem=1))
    (gang,) = found(items.gang(seen_by(story, "default"), "default", "g"))
    assert (gang.members, gang.present) == ((), items.MOST_MEMBERS + 1)


def test_a_pod_that_runs_without_gpus_is_none_of_these() -> None:
    story = GangStory(a_node("n1", 16))
    story.create(a_pod("plain", node="n1"), a_pod("asks", mem=2))
    assert [status.name for status in found(items.pods(seen_by(story, "default"), "default"))] == ["asks"]
    assert msgspec.json.decode(b"".join(items.namespaces(story.engine))) == ["default"]


def test_every_object_of_a_list_is_a_piece_of_its_own() -> None:
    story = GangStory(*(a_node(f"n{number}", 16, 16) for number in range(20)))
    gpus = resources.BY_PLURAL["gpus"]
    for form in ("objects", "table", "table with objects"):
        pieces = list(resources.listed(gpus, items.gpus(seen_by(story), ""), form))
        told = msgspec.json.decode(b"".join(pieces))
        assert len(told["items" if form == "objects" else "rows"]) == 40
        assert max(map(len, pieces[1:])) < 1000


def test_offers_are_classes_missing_ones_and_models_each_with_a_name_of_its_own() -> None:
    story = GangStory(a_node("n1", 16))
    story.create(a_pod("waits", mem=1, annotations={names.GPU_CLASS: "tesla-v100"}))
    (model,) = {kind.model for kind, _ in story.engine.ledger.stock.kinds()}
    slug = offers._as_name(model)
    story.tell(ClassSeen(GpuClass(name=slug, description="small")))
    listed = {item.name: item.status for item in offers.offers(seen_by(story), "") if item is not None}
    assert list(listed) == [slug, "tesla-v100", f"{slug}-2"]
    missing = listed["tesla-v100"]
    assert isinstance(missing, GpuOfferStatus)
    assert missing.missing is not None
    assert missing.missing.waiting == 1
    cells = [column.cell(missing) for column in resources.BY_PLURAL["gpuoffers"].columns]
    assert cells == [0, 0, 0, "class that does not exist"]
    assert offers._as_name("NVIDIA H100 80GB HBM3") == "nvidia-h100-80gb-hbm3"
    assert offers._as_name("??") == offers.UNKNOWN


def test_ages_are_written_as_kubectl_writes_them() -> None:
    assert [resources.ago(seconds) for seconds in (-1, 5.9, 61, 7300, 200_000)] == ["0s", "5s", "1m", "2h", "2d"]


def test_an_object_has_no_empty_fields_in_its_metadata() -> None:
    assert Item("", "a", GangStatus(namespace="", name="a", phase="")).metadata() == {"name": "a"}


def test_a_node_has_its_links_when_it_is_asked_for_alone_and_pods_have_their_queue() -> None:
    story = GangStory(a_node("n1", 16, 16, links=((0, 1, "NV4"),)))
    story.tell(a_queue("a"))
    story.start(a_pod("p", mem=4, annotations=in_queue("a")))
    view = seen_by(story, "default")
    ((node,), (listed,)) = found(items.node(view, "", "n1")), found(items.nodes(view, ""))
    assert [(link.gpus, link.kind) for link in node.links] == [((0, 1), "NV4")]
    assert listed.links == ()
    assert {holder.queue for gpu in listed.gpus for holder in gpu.pods} == {"a"}

"""What has a node stays in the queue in which it was counted, whatever its pods and PodGroups say later."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.types.events import GroupGone, GroupSeen, Leading
from gangfilter.group import GroupKey
from protos.contract import names
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, a_declaration
from tests.unit.engine.test_queue_namespaces import relabel
from tests.unit.engine.test_queues import OWN, a_queue, gang, gpus, in_queue, run

G = GroupKey("default", "g")


def group(queue: str) -> GroupSeen:
    """The PodGroup with this queue."""
    return GroupSeen(OWN, G, a_declaration(min_member=2, queue=queue))


@pytest.fixture
def story() -> GangStory:
    """Two nodes of four GPUs, two queues, and this process leads."""
    made = GangStory(a_node("n1", *[16] * 4), a_node("n2", *[16] * 4))
    made.tell(a_queue("team-a"), a_queue("team-b"), Leading(yes=True))
    return made


def single(story: GangStory, **fields: Any) -> None:
    """A pod that was started in team-a."""
    story.create(a_pod("p", whole=1, annotations=in_queue("team-a"), **fields))
    if "node" not in fields:
        assert story.come("p") == ["flying"]
        story.land()


def both(story: GangStory) -> tuple[float, float]:
    return gpus(story, "team-a"), gpus(story, "team-b")


def test_a_bound_pod_that_names_another_queue_stays_in_its_own(story: GangStory) -> None:
    single(story)
    relabel(story, "p", "team-b")
    assert both(story) == (1, 0)
    story.delete("p")
    assert both(story) == (0, 0)


def test_so_does_one_that_bound_itself(story: GangStory) -> None:
    single(story, node="n1")
    relabel(story, "p", "team-b")
    assert both(story) == (1, 0)


def test_one_that_names_another_while_its_binding_is_written_counts_where_it_was_admitted(story: GangStory) -> None:
    story.create(a_pod("p", whole=1, annotations=in_queue("team-a")))
    assert story.come("p") == ["flying"]
    relabel(story, "p", "team-b")
    story.land()
    assert both(story) == (1, 0)


def test_a_pod_that_waits_may_change_its_queue(story: GangStory) -> None:
    story.create(a_pod("p", whole=1, annotations=in_queue("team-a")))
    relabel(story, "p", "team-b")
    assert story.come("p") == ["flying"]
    story.land()
    assert both(story) == (0, 1)


def test_a_bound_pod_that_names_a_group_stays_in_its_queue(story: GangStory) -> None:
    single(story)
    story.create(*gang("g", 2, "team-b"))
    assert run(story, "g", 2) == ["held", "flying"]
    assert both(story) == (1, 2)
    story.change("p", annotations={names.GROUP: "g", **story.pods["p"].metadata.annotations, **in_queue("team-b")})
    assert both(story) == (1, 2)
    story.change(
        "g-0", annotations={**story.pods["g-0"].metadata.annotations, names.GROUP: "other"} | in_queue("team-a")
    )
    assert both(story) == (1, 2)


def test_what_runs_of_a_gang_moves_for_none_of_its_pods(story: GangStory) -> None:
    story.create(*gang("g", 2, "team-b", least=2))
    assert run(story, "g", 2) == ["held", "flying"]
    relabel(story, "g-0", "team-a")
    relabel(story, "g-1", "team-a")
    assert both(story) == (0, 2)
    story.create(*gang("g", 3, "team-a", least=2)[2:])
    assert both(story) == (0, 2), "one that comes later and waits moves the others no more than they themselves"


def test_a_podgroup_that_names_another_queue_is_told_that_what_runs_stays(story: GangStory) -> None:
    story.tell(group("team-a"))
    story.create(*gang("g", 2, "", least=None))
    assert run(story, "g", 2) == ["held", "flying"]
    assert both(story) == (2, 0)
    story.tell(group("team-b"))
    assert both(story) == (2, 0)
    assert any("queue team-b is named" in told for told in story.known().gang.terms.conflicts)
    story.tell(GroupGone(OWN, G))
    assert both(story) == (2, 0)


def test_once_nothing_of_a_gang_runs_the_new_queue_counts(story: GangStory) -> None:
    story.tell(group("team-a"))
    story.create(*gang("g", 2, "", least=None))
    assert run(story, "g", 2) == ["held", "flying"]
    story.tell(group("team-b"))
    story.terminate("g-0", "g-1")
    for name in ("g-0", "g-1"):
        story.again(name)
    story.later()
    assert run(story, "g", 2) == ["held", "flying"]
    assert both(story) == (0, 2)


def test_who_reads_the_cluster_anew_takes_what_it_says_until_it_leads(story: GangStory) -> None:
    single(story)
    relabel(story, "p", "team-b")
    story.restart()
    story.tell(a_queue("team-a"), a_queue("team-b"))
    assert both(story) == (0, 1)
    relabel(story, "p", "team-a")
    assert both(story) == (1, 0)
    story.tell(Leading(yes=True))
    relabel(story, "p", "team-b")
    assert both(story) == (1, 0)

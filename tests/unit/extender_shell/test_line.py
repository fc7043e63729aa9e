"""Where gangs and pods stand in line, as the status port tells who asks for one of them."""

from __future__ import annotations

from typing import Any

import msgspec

from extender.server import explain
from extender.server.desk import Pieces
from gangfilter.group import GroupKey
from protos.contract import names
from protos.contract.objects import Pod
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, a_member, members
from tests.unit.engine.preemption_story import urgent
from tests.unit.engine.test_queues import a_queue, in_queue

A, B = in_queue("a"), in_queue("b")


def single(name: str, annotations: dict[str, str], runs: str, gpus: int = 2) -> Pod:
    return a_pod(name, whole=gpus, annotations={**annotations, names.EXPECTED_RUNTIME: runs})


def big() -> list[Pod]:
    return members(2, gang="big", prefix="big-", mem=0, whole=1, annotations={**A, names.EXPECTED_RUNTIME: "2h"})


def waits(story: GangStory, *pods: Pod) -> None:
    """They come a second after one another, and find no room."""
    for pod in pods:
        story.create(pod)
        assert not story.ask(pod.metadata.name).nodes
        story.later(1.0)


def a_busy_node(**settings: Any) -> GangStory:
    """One node with two GPUs, one of which is taken for 600 s, and two queues."""
    story = GangStory(a_node("n1", 16, 16), **settings)
    for queue in (a_queue("a"), a_queue("b")):
        story.tell(queue)
    story.create(single("runs", A, "600", gpus=1))
    assert story.come("runs") == ["flying"]
    story.land()
    return story


async def pod(story: GangStory, name: str) -> dict[str, Any]:
    return read(explain.pod(story.engine, "default", name, story.now))


async def gang(story: GangStory, name: str) -> dict[str, Any]:
    return read(explain.group(story.engine, GroupKey("default", name), story.now))


def read(page: Pieces) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(b"".join(page))
    return found


async def test_gangs_and_single_pods_of_a_queue_stand_in_one_line() -> None:
    story = a_busy_node(backfill_delay_s=0.0)
    waits(story, single("other", B, "2h"))
    story.create(*big())
    story.later(1.0)
    waits(story, single("young", A, "3h"), urgent(a_pod("urgent", whole=2, annotations=A)))
    found = {name: await pod(story, name) for name in ("other", "young", "urgent", "big-0")}
    found["big"] = await gang(story, "big")
    assert {name: (told["place"], told["inLine"]) for name, told in found.items()} == {
        "other": (1, 1),
        "urgent": (1, 3),
        "big": (2, 3),
        "big-0": (2, 3),
        "young": (3, 3),
    }
    assert found["young"]["queue"] == "a"
    assert found["young"]["first"] is None
    assert "place" not in await pod(story, "runs")


async def test_all_of_a_queue_are_told_when_the_first_in_line_starts() -> None:
    story = a_busy_node(backfill_delay_s=30.0)
    story.create(*big())
    story.later(40.0)
    waits(story, single("behind", A, "3h"), single("elsewhere", B, "3h"))
    behind, first = await pod(story, "behind"), await gang(story, "big")
    assert behind["first"] == first["earliest"] == first["first"]
    assert (behind["first"]["who"], behind["first"]["nodes"]) == ("gang default/big", ["n1"])
    assert behind["first"]["after"] == "default/runs"
    assert behind["earliest"] is None
    assert (await pod(story, "elsewhere"))["first"] is None


async def test_a_pod_is_told_what_differs_in_its_gang() -> None:
    story = GangStory(a_node("n1", 16, 16))
    story.create(*members(1, least=2), a_member("other", least=3))
    assert (await pod(story, "m0"))["conflicts"] == [
        "the minimum differs: 2 by pods' gangshare.io/*, 3 by pods' gangshare.io/*; 3 holds"
    ]

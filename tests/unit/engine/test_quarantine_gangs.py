"""Errors of ours over one gang: it is not planned, what its members have stays, and the others go on."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.gangs.controller import GangController
from extender.engine.gangs.members import MemberController
from extender.engine.gangs.planner import GangPlanner
from extender.engine.gangs.replacement_holds import ReplacementHolds
from extender.engine.gangs.starts import GangStarts
from extender.engine.policies.preemption.victims import Search
from extender.engine.state import quarantine
from extender.engine.types.events import PodGone
from extender.engine.types.subject import of_gang
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, members, two_nodes
from tests.unit.engine.preemption_story import PreemptionStory, urgent
from tests.unit.engine.test_quarantine import poison

pytestmark = pytest.mark.faults


@pytest.fixture
def story() -> GangStory:
    return two_nodes()


def of(name: str) -> Any:
    """Whether the work is for this gang."""

    def ours(first: Any, *_: Any) -> bool:
        return str(getattr(first, "gang", first).key) == f"default/{name}"

    return ours


def aside(story: GangStory) -> list[str]:
    return [subject.key for subject, _ in story.engine.quarantine.all() if subject.kind == "gang"]


def two_gangs(story: GangStory) -> None:
    for name in ("bad", "good"):
        story.create(*members(2, gang=name, prefix=f"{name}-", mem=16))


@pytest.mark.parametrize(("kind", "method"), [(GangPlanner, "advance"), (GangPlanner, "asked"), (GangStarts, "take")])
def test_a_plan_that_fails_keeps_no_other_gang_waiting(
    kind: type[Any], method: str, story: GangStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(kind, method, monkeypatch, of("bad"))
    two_gangs(story)
    assert aside(story) == ["default/bad"]
    assert story.why("bad") == "SetAside"
    assert story.come("bad-0", "bad-1") == ["SetAside", "SetAside"]
    assert story.come("good-0", "good-1") == ["held", "flying"]
    assert ("bad-0", "SetAside") in story.told()
    story.land()
    assert story.phase("good") is Phase.RUNNING
    story.later(5.0)
    assert story.engine.counters["faults", "plan"] < 5


def test_a_gang_is_tried_again_when_one_of_its_pods_changes(story: GangStory, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(GangPlanner, "advance", monkeypatch, of("bad"))
    two_gangs(story)
    monkeypatch.undo()
    story.later(3.0)
    assert aside(story) == ["default/bad"]
    story.show("bad-0")
    story.later(quarantine.SOON_S + 1.0)
    assert aside(story) == []
    assert sorted(story.come("bad-0", "bad-1")) == ["flying", "held"]


def test_a_gang_that_nobody_changes_is_tried_again_after_a_while(
    story: GangStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(GangPlanner, "advance", monkeypatch, of("bad"))
    two_gangs(story)
    monkeypatch.undo()
    story.later(quarantine.AGAIN_S + 2.0)
    assert aside(story) == []
    assert story.phase("bad") is Phase.STARTING


def test_held_binds_of_a_gang_that_fails_are_answered(story: GangStory, monkeypatch: pytest.MonkeyPatch) -> None:
    two_gangs(story)
    assert story.come("bad-0") == ["held"]
    poison(GangController, "tick", monkeypatch, of("bad"))
    story.later(1.0)
    assert story.denied() == {"bad-0": "SetAside"}
    assert [name for name in story.booked() if name.startswith("bad")] == []
    assert story.come("good-0", "good-1") == ["held", "flying"]


def test_a_gang_that_runs_keeps_its_gpus_and_nobody_is_evicted(
    story: GangStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.start(*members(3, gang="bad", prefix="bad-", mem=16, lost="restart"))
    poison(GangController, "_settle", monkeypatch, of("bad"))
    story.delete("bad-2")
    story.later(200.0)
    assert story.booked() == ["bad-0", "bad-1"]
    assert story.evicted() == []
    monkeypatch.undo()
    story.show("bad-0")
    story.later(5.0)
    assert story.evicted() != []  # it restarts, as its reason says


def test_what_fails_as_a_member_goes_leaves_no_ghost(story: GangStory, monkeypatch: pytest.MonkeyPatch) -> None:
    story.start(*members(2, gang="bad", prefix="bad-", mem=16))
    for part, method in ((ReplacementHolds, "keep"), (MemberController, "leave")):
        poison(part, method, monkeypatch)
    for name in ("bad-0", "bad-1"):
        story.tell(PodGone(story.pods.pop(name).metadata.uid))
    assert story.booked() == []
    assert GroupKey("default", "bad") not in story.engine.gangs.roster.known
    assert of_gang(GroupKey("default", "bad")) not in story.engine.quarantine


def test_a_preemption_whose_search_fails_keeps_no_other_from_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    story = PreemptionStory(a_node("n1", 16, 16))
    for name in ("low-0", "low-1"):
        story.runs(a_pod(name, mem=16))
    story.waits(urgent(a_pod("bad", mem=16, slices=50), 2000))
    story.waits(urgent(a_pod("good", mem=16), 1000))
    searched: list[str] = []
    right = Search.advance

    def advance(self: Search, *args: Any) -> bool:
        assert story.engine._components.preemption._search is None  # taken out until it is known to go on
        searched.append("one")
        if len(searched) == 1:
            raise KeyError("the first")
        return right(self, *args)

    monkeypatch.setattr(Search, "advance", advance)
    assert len(story.preempt(20.0)) == 1
    assert [subject.kind for subject, _ in story.engine.quarantine.all()] == ["pod"]

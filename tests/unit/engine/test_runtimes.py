"""Run times that gangs tell, or earlier ones of the same name did, and what they do to the order."""

from __future__ import annotations

import math
from typing import Any

import pytest

from extender.engine.queueing.line import PATIENCE, UNKNOWN_S
from extender.engine.queueing.runtimes import OWNERS, RUNS, History, end_of_running
from extender.engine.state.pod_info import stem
from extender.engine.types.effects import Report
from protos.contract import names
from protos.contract.objects import ContainerState, ContainerStatus, Terminated
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory, at_wall, members


def gang(name: str, count: int = 2, runs: str = "", **fields: Any) -> list[Any]:
    """A gang of pods with a whole GPU each that is expected to run so long."""
    said = {names.EXPECTED_RUNTIME: runs} if runs else {}
    return members(count, gang=name, prefix=f"{name}-", mem=0, whole=1, annotations=said, **fields)


@pytest.fixture
def story() -> GangStory:
    """Two GPUs, all of them taken by a gang."""
    story = GangStory(a_node("n1", 16, 16))
    story.start(*gang("first"))
    return story


def ends(story: GangStory, name: str, seconds: float) -> None:
    """The gang's first pod has done its work, so long after its start."""
    done = Terminated(at_wall(story.now + seconds))
    status = (ContainerStatus("main", state=ContainerState(terminated=done)),)
    story.change(f"{name}-0", phase="Succeeded", start_time=at_wall(story.now), container_statuses=status)


def starting(story: GangStory) -> list[str]:
    """The gangs that got a place when the first one goes."""
    story.delete("first-0", "first-1")
    story.later(1.0)
    return [key.name for key, known in story.engine.gangs.roster.known.items() if known.gang.phase == "Starting"]


def test_the_shorter_of_two_gangs_goes_first_though_it_came_later(story: GangStory) -> None:
    story.create(*gang("long", runs="10h"))
    story.now += 60
    story.create(*gang("short", runs="600"))
    assert starting(story) == ["short"]


def test_who_came_after_the_due_date_of_another_does_not_pass_it(story: GangStory) -> None:
    story.create(*gang("long", runs="1h"))
    story.now += PATIENCE * 3600
    story.create(*gang("short", runs="1s"))
    assert starting(story) == ["long"]


def test_of_gangs_that_tell_nothing_the_older_goes_first(story: GangStory) -> None:
    story.create(*gang("older"))
    story.now += 60
    story.create(*gang("younger"))
    assert starting(story) == ["older"]
    assert story.engine.runtimes.of_gang(story.gang("older")) == math.inf


def test_a_run_time_that_cannot_be_read_counts_as_unknown_and_is_told(story: GangStory) -> None:
    story.create(*gang("odd", runs="soon"))
    told = [effect for effect in story.done if isinstance(effect, Report) and effect.reason.code == "RuntimeUnreadable"]
    assert [(report.pod.name, report.reason.numbers) for report in told] == [
        (
            "odd-0",
            "annotation gangshare.io/expected-runtime is 'soon': "
            "expected seconds above 0, like 5400, or a duration like 90m or 2h30m",
        )
    ]
    assert story.engine._components.order.of_gang(story.gang("odd")).rank == pytest.approx(
        story.gang("odd").born + PATIENCE * UNKNOWN_S
    )


def test_the_run_time_of_a_single_pod_may_be_a_label(story: GangStory) -> None:
    label = {names.EXPECTED_RUNTIME: "2h"}
    story.create(a_pod("told", whole=1, labels=label), a_pod("odd", whole=1, labels={names.EXPECTED_RUNTIME: "x"}))
    assert story.engine.runtimes.of_pod(story.engine.pods["uid-told"]) == 7200
    assert ("odd", "RuntimeUnreadable") in story.told()


def test_what_earlier_gangs_of_a_name_ran_is_expected_of_the_next() -> None:
    story = GangStory(a_node("n1", *[16] * 8))
    for number, seconds in ((1, 100), (2, 300)):
        story.start(*gang(f"train-{number}"))
        ends(story, f"train-{number}", seconds)
    story.create(*gang("train-3"), *gang("other-3"))
    assert story.engine.runtimes.of_gang(story.gang("train-3")) == 300
    assert story.engine.runtimes.of_gang(story.gang("other-3")) == math.inf


def test_the_longest_of_ten_runs_does_not_count_and_older_ones_are_forgotten() -> None:
    history = History()
    for number in range(RUNS + 1):
        history.note(("ns", "train"), str(number), 5000.0 if number == 0 else number)
    assert history.expected(("ns", "train")) == RUNS - 1


def test_one_run_is_too_few_and_its_pods_are_one_run() -> None:
    history = History()
    for seconds in (10.0, 20.0):
        history.note(("ns", "train"), "1", seconds)
    assert history.expected(("ns", "train")) == math.inf
    history.note(("ns", "train"), "2", 5.0)
    assert history.expected(("ns", "train")) == 20


def test_runs_are_kept_of_a_bounded_number_of_names() -> None:
    history = History()
    for number in range(OWNERS + 1):
        history.note(("ns", f"name {number}"), "1", 1.0)
        history.note(("ns", f"name {number}"), "2", 1.0)
    assert history.expected(("ns", "name 0")) == math.inf
    assert history.expected(("ns", "name 1")) == 1


@pytest.mark.parametrize(
    ("name", "short"), [("train-7", "train"), ("nightly-28374650", "nightly"), ("sweep-x7k2p", "sweep"), ("big", "big")]
)
def test_runs_of_one_thing_are_told_apart_by_what_ends_their_names(name: str, short: str) -> None:
    assert stem(name) == short


@pytest.mark.parametrize(
    ("expected", "now", "end"), [(50, 30, 60), (50, 70, 70), (math.inf, 30, 50), (math.inf, 70, 130)]
)
def test_one_ends_as_expected_or_at_any_moment_or_after_as_long_again(expected: float, now: float, end: float) -> None:
    assert end_of_running(10, expected, now) == end

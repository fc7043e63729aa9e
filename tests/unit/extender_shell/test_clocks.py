"""The shell tells the engine when the wall clock was set."""

from __future__ import annotations

import time

import pytest
from structlog.testing import capture_logs

from extender.engine.types.wall import Wall
from extender.server.clocks import STEP_S, Clocks
from tests.unit.extender_shell.world import World, until


class Shown:
    def __init__(self) -> None:
        self.monotonic, self.wall = 100.0, 1_700_000_000.0

    def passes(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds


def test_only_what_the_api_could_show_is_told_and_each_step_once() -> None:
    shown = Shown()
    clocks = Clocks(lambda: shown.monotonic, lambda: shown.wall)
    assert clocks.ahead == 1_699_999_900.0
    shown.passes(10.0)
    assert clocks.moved() == 0.0
    shown.wall += 3600.0
    assert [clocks.moved(), clocks.moved()] == [3600.0, 0.0]
    shown.wall -= 3600.0
    assert [clocks.moved(), clocks.moved()] == [-3600.0, 0.0]
    assert clocks.ahead == 1_699_999_900.0


def test_a_clock_that_is_slewed_is_told_in_steps() -> None:
    shown = Shown()
    clocks = Clocks(lambda: shown.monotonic, lambda: shown.wall)
    told = 0.0
    for _ in range(1000):
        shown.passes(1.0)
        shown.wall += 0.0025
        told += clocks.moved()
        assert abs(shown.wall - shown.monotonic - clocks.ahead) < STEP_S
    assert 2.0 <= told <= 2.5


async def test_a_running_extender_goes_by_the_clock_that_was_set(
    cluster: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[float] = []
    monkeypatch.setattr(Wall, "move", lambda _, by: moved.append(by))
    with capture_logs() as logs:
        monkeypatch.setattr(cluster.extender._clocks, "_wall", lambda: time.time() + 3600.0)
        await until(lambda: moved, "told")
        monkeypatch.setattr(cluster.extender._clocks, "_wall", time.time)
        await until(lambda: len(moved) > 1, "told again")
    assert [round(by) for by in moved] == [3600, -3600]
    assert [each["by_s"] for each in logs if each["event"] == "wall_clock_moved"] == [3600.0, -3600.0]

"""Which container a process is in: a fake /proc, and real processes in real groups."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from deviceplugin.usage import places
from deviceplugin.usage.places import GONE, OUTSIDE, TICKS
from tests.unit.deviceplugin.usage import made

LISTED = 100.0


@pytest.mark.parametrize("name", ["python", "a b) S 1 (c", "x" * 200])
def test_a_process_is_in_its_container_or_outside(tmp_path: Path, name: str) -> None:
    made.in_proc(tmp_path, 7, made.path_of(made.group(1)), start=50, name=name)
    made.in_proc(tmp_path, 8, "/system.slice/nvidia-persistenced.service")
    assert places.find(7, LISTED, tmp_path) == (made.group(1), 50)
    assert places.find(8, LISTED, tmp_path) == (OUTSIDE, 0)


def test_a_process_that_ended_or_came_after_the_list_is_gone(tmp_path: Path) -> None:
    made.in_proc(tmp_path, 7, made.path_of(made.group(1)), start=int(LISTED * TICKS) + 2)
    assert places.find(7, LISTED, tmp_path) == (GONE, 0)
    assert places.find(9, LISTED, tmp_path) == (GONE, 0)


@pytest.mark.parametrize("stat", ["", "7 (x", "7 (x) S 1", "7 (x) " + "no " * 30])
def test_what_cannot_be_read_is_gone(tmp_path: Path, stat: str) -> None:
    made.in_proc(tmp_path, 7, made.path_of(made.group(1)))
    (tmp_path / "7" / "stat").write_text(stat)
    assert places.find(7, LISTED, tmp_path) == (GONE, 0)


def test_a_real_process_of_this_machine_is_found_and_gone_after_its_end() -> None:
    with made.sleeping() as child:
        place, start = places.find(child.pid, time.clock_gettime(time.CLOCK_BOOTTIME))
        assert place == OUTSIDE
        assert 0 < start <= time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS + 1
        assert places.find(child.pid, start / TICKS - 1)[0] == GONE
    assert places.find(child.pid, time.clock_gettime(time.CLOCK_BOOTTIME)) == (GONE, 0)


@pytest.mark.skipif(made.unified() is None, reason="needs a writable hierarchy of cgroup v2")
def test_a_real_process_in_a_real_group_is_in_that_container() -> None:
    root = made.unified()
    assert root is not None
    with made.sleeping() as child, made.in_group(root, made.group(0xE), child.pid):
        assert places.find(child.pid, time.clock_gettime(time.CLOCK_BOOTTIME))[0] == made.group(0xE)

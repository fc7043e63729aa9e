"""Which container a process is in, read from /proc, which every process of the node's PID namespace may read.

The driver's list of processes is a little older than this reading. A process that has ended meanwhile is `GONE`, and so
is one that started after the list was read: it has the number of another.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from deviceplugin import cgroups
from deviceplugin.cgroups import Group
from deviceplugin.usage.processes import Sample

Place = Group | Literal["outside", "gone"]
OUTSIDE: Final = "outside"
"""In no container of a pod: a process of the node itself."""
GONE: Final = "gone"
TICKS = os.sysconf("SC_CLK_TCK")
"""Of a second; the kernel counts starts in them."""
START = 19
"""Place of the start among the fields of /proc/PID/stat after the name, which may have blanks. Source: proc(5)."""
STAT = 4096
"""Bytes of it that are read."""


class Placed(NamedTuple):
    """A sample, and the places of its processes: by pid, with their starts."""

    sample: Sample
    places: Mapping[int, tuple[Place, int]] = {}


def find(pid: int, listed: float, proc: Path = cgroups.PROC) -> tuple[Place, int]:
    """The place of a process that the driver listed at this time (seconds since boot), and its start in ticks."""
    group = cgroups.of_process(pid, proc)
    start = _start(pid, proc)  # after the group: a process that has it had it when its group was read, or came later
    if start is None or start > listed * TICKS + 1:
        return GONE, 0
    return group or OUTSIDE, start


def _start(pid: int, proc: Path) -> int | None:
    try:
        with (proc / str(pid) / "stat").open("rb") as file:
            fields = file.read(STAT).rpartition(b")")[2].split()
        return int(fields[START])
    except (OSError, ValueError, IndexError):
        return None

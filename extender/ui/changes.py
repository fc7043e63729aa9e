"""What a viewer sees, and what of it has changed since a browser last heard. Pure.

The times that workloads have waited grow all the
time, so they are no change by themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from extender.wire import page

TOLERANCE_S = 15.0
"""Seconds by which an earliest start may move without being told."""
MOST_KEPT = 30
"""Changes that are remembered for browsers that come back."""


class Seen(NamedTuple):
    """All that a viewer sees at a moment."""

    nodes: Mapping[str, page.Node] = {}
    queues: tuple[page.Queue, ...] = ()
    workloads: tuple[page.Workload, ...] = ()
    limits: tuple[str, ...] = ()
    at: float = 0.0
    """The time of the last look at the workloads."""


def delta(old: Seen, new: Seen, cursor: str, at: float) -> page.Delta | None:
    """What has changed; None if nothing has."""
    nodes: dict[str, page.Node | None] = {
        name: node
        for name, node in new.nodes.items()
        if old.nodes.get(name) is not node and old.nodes.get(name) != node
    }
    nodes |= dict.fromkeys(name for name in old.nodes if name not in new.nodes)
    found = page.Delta(
        cursor=cursor,
        at=at,
        nodes=nodes,
        queues=new.queues if new.queues != old.queues else None,
        workloads=new.workloads if _changed(old, new) else None,
        limits=new.limits if new.limits != old.limits else None,
    )
    empty = not nodes and found.queues is None and found.workloads is None and found.limits is None
    return None if empty else found


def _changed(old: Seen, new: Seen) -> bool:
    """Whether the workloads have changed, but for the time that passes."""
    if len(old.workloads) != len(new.workloads):
        return True
    return any(
        replace(before, seconds=0.0, earliest_start=None) != replace(now, seconds=0.0, earliest_start=None)
        or _moved(before.earliest_start, now.earliest_start, new.at - old.at)
        for before, now in zip(old.workloads, new.workloads, strict=True)
    )


def _moved(before: float | None, now: float | None, passed: float) -> bool:
    """Whether a workload starts at another time, given its seconds until then at two looks."""
    if before is None or now is None:
        return before is not now
    return abs(max(0.0, before - passed) - now) > TOLERANCE_S


class History:
    """The last changes by their cursors, which are numbers within one life of the process."""

    def __init__(self, life: str) -> None:
        self._life, self._number = life, 0
        self._kept: deque[tuple[int, page.Delta]] = deque(maxlen=MOST_KEPT)

    @property
    def cursor(self) -> str:
        return f"{self._life}.{self._number}"

    def add(self, old: Seen, new: Seen, at: float) -> None:
        """Remember what has changed."""
        found = delta(old, new, f"{self._life}.{self._number + 1}", at)
        if found is not None:
            self._number += 1
            self._kept.append((self._number, found))

    def since(self, cursor: str) -> list[page.Delta] | None:
        """The changes after a cursor; None if it is not of this life, or too old."""
        life, _, number = cursor.rpartition(".")
        if life != self._life or not (number.isascii() and number.isdecimal()) or len(number) > 15:
            return None
        last = int(number)
        oldest = self._kept[0][0] if self._kept else self._number + 1
        if last > self._number or last < oldest - 1:
            return None
        return [change for at, change in self._kept if at > last]

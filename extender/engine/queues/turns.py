"""Whose turn it is of the gangs that want a plan: by queue, then by priority, then by age.

Queues are compared from the top of their tree downwards: the higher priority first, then who has the smaller part of
its due. Within one queue the order is kept, so that the next is found at the cost of the queues with gangs that wait,
however many gangs those are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sortedcontainers import SortedDict

from extender.engine.queues.standing import Account
from gangfilter.gang import Gang
from gangfilter.group import GroupKey

Place = tuple[int, float, GroupKey]
"""Where a gang stands in its queue, least first."""
Standing = tuple[tuple[int, float], ...]
"""Where a queue stands among queues, least first."""


def place(gang: Gang) -> Place:
    """By its highest priority, then by age."""
    priority = max((m.priority for m in gang.members.values()), default=0)
    return -priority, gang.born, gang.key


class Turns:
    """The gangs that want a plan."""

    def __init__(self, account: Callable[[Gang], Account], standing: Callable[[Account], Standing]) -> None:
        self._account, self._standing = account, standing
        self._lines: dict[Account, SortedDict[Place, Gang]] = {}
        self._places: dict[GroupKey, tuple[Account, Place]] = {}

    def put(self, gang: Gang) -> None:
        """The gang wants one, by what is said of it now."""
        self.remove(gang)
        at = self._places[gang.key] = self._account(gang), place(gang)
        self._lines.setdefault(at[0], SortedDict())[at[1]] = gang

    def remove(self, gang: Gang) -> None:
        """The gang wants none."""
        at = self._places.pop(gang.key, None)
        if at is not None:
            del self._lines[at[0]][at[1]]
            if not self._lines[at[0]]:
                del self._lines[at[0]]

    def __contains__(self, gang: Gang) -> bool:
        return gang.key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Gang]:
        return (gang for line in self._lines.values() for gang in line.values())

    def first(self) -> Gang | None:
        """Whose turn it is, None if nobody wants a plan."""
        heads = ((self._standing(account), *line.peekitem(0)) for account, line in self._lines.items())
        found = min(heads, key=lambda head: head[:2], default=None)
        return found[2] if found is not None else None

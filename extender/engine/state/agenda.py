"""When each gang is to be looked at again without an event: most are not, since only events move them."""

from __future__ import annotations

import math

from sortedcontainers import SortedList

from gangfilter.group import GroupKey

ALWAYS, NEVER = -math.inf, math.inf
"""At every look; not before something happens to it."""


class Agenda:
    """One time for each gang that time may move, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._always: dict[GroupKey, None] = {}
        self._later: SortedList[tuple[float, GroupKey]] = SortedList()
        self._at: dict[GroupKey, float] = {}
        """Of those that are looked at later."""

    def put(self, key: GroupKey, at: float) -> None:
        """The gang is to be looked at then, and not before."""
        if at == ALWAYS and key in self._always:
            return
        self.drop(key)
        if at == ALWAYS:
            self._always[key] = None
        elif at < NEVER:
            self._at[key] = at
            self._later.add((at, key))

    def drop(self, key: GroupKey) -> None:
        """The gang is not to be looked at."""
        self._always.pop(key, None)
        at = self._at.pop(key, None)
        if at is not None:
            self._later.remove((at, key))

    def due(self, now: float) -> list[GroupKey]:
        """Those to be looked at now."""
        found = list(self._always)
        for at, key in self._later:
            if at > now:
                break
            found.append(key)
        return found

"""When the engine looks at a gang again without an event. Events alone move most gangs."""

from __future__ import annotations

import math

from sortedcontainers import SortedList

from gangfilter.group import GroupKey

ALWAYS, NEVER = -math.inf, math.inf
"""At every look; only after an event."""


class Agenda:
    """The next look at each gang that time alone may move, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._always: dict[GroupKey, None] = {}
        self._later: SortedList[tuple[float, GroupKey]] = SortedList()
        self._at: dict[GroupKey, float] = {}
        """The times in `_later`."""

    def put(self, key: GroupKey, at: float) -> None:
        """Set the time of the gang's next look."""
        if at == ALWAYS and key in self._always:
            return
        self.drop(key)
        if at == ALWAYS:
            self._always[key] = None
        elif at < NEVER:
            self._at[key] = at
            self._later.add((at, key))

    def drop(self, key: GroupKey) -> None:
        self._always.pop(key, None)
        at = self._at.pop(key, None)
        if at is not None:
            self._later.remove((at, key))

    def due(self, now: float) -> list[GroupKey]:
        """The gangs whose time has come."""
        found = list(self._always)
        for at, key in self._later:
            if at > now:
                break
            found.append(key)
        return found

"""The priorities of gangs: of the PriorityClass that their PodGroup names, else of their members.

Kubernetes' quotas hold pods to the classes that their namespace may use, and PodGroups to none. So a PodGroup's class
gives no more than the highest of its members has, or than a setting allows; a system class gives nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from extender.engine.types import refusals
from gangfilter.gang import Gang
from protos.contract.priority import PriorityClass
from protos.contract.reason import Reason


class Priorities:
    """All classes, by name. One that a gang names and that does not exist says nothing of it."""

    def __init__(self, most: int) -> None:
        """`most`: what a class may give to a gang of which no member has that much."""
        self._most = most
        self._known: dict[str, PriorityClass] = {}

    def put(self, found: PriorityClass) -> str:
        """The class is there, or another one now; returns its name."""
        self._known[found.metadata.name] = found
        return found.metadata.name

    def drop(self, name: str) -> str:
        """The class is gone; returns its name."""
        self._known.pop(name, None)
        return name

    def of(self, gang: Gang, otherwise: int) -> int:
        """The priority of a gang, or this one of its members, if its class gives none."""
        found = self._known.get(gang.terms.priority_class)
        if found is None or found.system:
            return otherwise
        return found.value if found.value <= otherwise else min(found.value, max(gang.priority, self._most))

    def highest(self, gang: Gang) -> int:
        """The same; else the highest of its members."""
        return self.of(gang, gang.priority)

    def capped(self, gang: Gang) -> Reason | None:
        """Why its class gives less than it says, None if it gives all of it."""
        found = self._known.get(gang.terms.priority_class)
        if found is None:
            return None
        counted = self.highest(gang)
        if not found.system and counted == found.value:
            return None
        name = found.metadata.name
        if found.system:
            why = "system classes are not for PodGroups"
        elif counted == self._most:
            why = "the most that --group-priority allows"
        else:
            why = "the highest of its members; --group-priority lets PodGroups give more"
        return refusals.priority_capped(gang.key, f"{name} gives {found.value}, it counts as {counted}, {why}")

    def never(self, gang: Gang) -> bool:
        """Whether its class says that nobody is to be evicted for it."""
        found = self._known.get(gang.terms.priority_class)
        return found is not None and found.never

    def lowest(self, others: Iterable[int]) -> int | None:
        """The least of all classes and of these, None if there are none of these."""
        least = min(others, default=None)
        return least if least is None else min([least, *(known.value for known in self._known.values())])

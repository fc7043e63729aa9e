"""The priorities of gangs: of the PriorityClass that their PodGroup names, else of their members.

Kubernetes' quotas limit the classes that pods of a namespace may use, but not those of PodGroups. So a PodGroup's
class gives at most the highest priority of the members, or what a setting allows. A system class gives nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from extender.engine.types import refusals
from gangfilter.gang import Gang
from protos.contract.priority import PriorityClass
from protos.contract.reason import Reason


class Priorities:
    """All PriorityClasses. A class that does not exist gives a gang no priority."""

    def __init__(self, most: int) -> None:
        """`most`: the limit of what a class gives, unless a member has a higher priority."""
        self._most = most
        self._classes: dict[str, PriorityClass] = {}

    def put(self, priority_class: PriorityClass) -> str:
        """Add or replace a class; return its name."""
        self._classes[priority_class.metadata.name] = priority_class
        return priority_class.metadata.name

    def drop(self, name: str) -> str:
        """Remove a class; return its name."""
        self._classes.pop(name, None)
        return name

    def named(self, name: str | None) -> PriorityClass | None:
        """The class of this name, or the one of pods that name none."""
        if name:
            return self._classes.get(name)
        return max((each for each in self._classes.values() if each.global_default), key=_value, default=None)

    def of(self, gang: Gang, otherwise: int) -> int:
        """The priority that the gang's class gives; `otherwise`, the priority of its members, if it gives none."""
        found = self._classes.get(gang.terms.priority_class)
        if found is None or found.system:
            return otherwise
        return found.value if found.value <= otherwise else min(found.value, max(gang.priority, self._most))

    def highest(self, gang: Gang) -> int:
        """The priority that the gang's class gives, else the highest of its members."""
        return self.of(gang, gang.priority)

    def capped(self, gang: Gang) -> Reason | None:
        """Why the gang's class gives less than its value, None if it gives all of it."""
        found = self._classes.get(gang.terms.priority_class)
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
        """Whether the gang's class forbids preemption for it."""
        found = self._classes.get(gang.terms.priority_class)
        return found is not None and found.never

    def lowest(self, others: Iterable[int]) -> int | None:
        """The lowest of all classes and of `others`, None if `others` is empty."""
        least = min(others, default=None)
        return least if least is None else min([least, *(known.value for known in self._classes.values())])


def _value(priority_class: PriorityClass) -> int:
    return priority_class.value

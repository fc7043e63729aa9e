"""The priorities of gangs: of the PriorityClass that their PodGroup names, else of their members."""

from __future__ import annotations

from collections.abc import Iterable

from gangfilter.gang import Gang
from protos.contract.priority import PriorityClass


class Priorities:
    """All classes, by name. One that a gang names and that does not exist says nothing of it."""

    def __init__(self) -> None:
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
        """The priority of a gang, or of its members, if that of its class is not known."""
        found = self._known.get(gang.terms.priority_class)
        return otherwise if found is None else found.value

    def highest(self, gang: Gang) -> int:
        """The same; else the highest of its members."""
        return self.of(gang, max((member.priority for member in gang.members.values()), default=0))

    def never(self, gang: Gang) -> bool:
        """Whether its class says that nobody is to be evicted for it."""
        found = self._known.get(gang.terms.priority_class)
        return found is not None and found.never

    def lowest(self, others: Iterable[int]) -> int | None:
        """The least of all classes and of these, None if there are none of these."""
        least = min(others, default=None)
        return least if least is None else min([least, *(known.value for known in self._known.values())])

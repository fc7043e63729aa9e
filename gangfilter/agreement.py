"""Which values hold for a group when several sources declare it, kept up to date as declarations come and go.

Where two values differ the stricter one holds, and a sentence names both. The order of the sources does not matter.
Adding or removing a declaration costs what it says itself, however many others there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from gangfilter.group import LAXEST_FIRST, Declaration, OnLost, Terms
from protos.contract.bounds import RESOURCES, ROLES, Bound
from protos.contract.remembered import Remembered

DEFAULT_QUEUE = "default"
"""What operators write where the user chose no queue: any other name takes precedence."""
MOST_TOLD = 4
"""Values that one sentence names."""
KNOWN = 1024
"""Declarations that are remembered with the terms that follow from each."""


class DeclaredValues:
    """The different values that are declared for one field, sorted, and how often each source declares each."""

    __slots__ = ("_sources", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._sources: dict[Any, Counter[str]] = {}

    def count(self, value: Any, source: str, change: int) -> None:
        """The source declares the value once more (`change` = 1) or once less (-1)."""
        sources = self._sources.get(value)
        if sources is None:
            insort(self.values, value)
            sources = self._sources[value] = Counter()
        sources[source] += change
        if not sources[source]:
            del sources[source]
        if not sources:
            del self._sources[value]
            del self.values[bisect_left(self.values, value)]

    def difference(self, field: str, held: Any) -> Iterator[str]:
        """A sentence if there are several values."""
        if len(self.values) > 1:
            named = [f"{value} by {min(self._sources[value])}" for value in self.values[:MOST_TOLD]]
            named += [f"{len(self.values) - MOST_TOLD} more"] if len(self.values) > MOST_TOLD else []
            yield f"{field} differs: {', '.join(named)}; {held} holds"


class Agreement:
    """All declarations of one group. For most groups all sources declare the same."""

    __slots__ = ("_count", "_one", "_several")

    def __init__(self, declarations: Iterable[Declaration] = ()) -> None:
        self._one: Declaration | None = None
        """The declaration that all sources make; None if there is none, or if they differ."""
        self._count = 0
        """How many sources make it."""
        self._several: _Several | None = None
        """The declarations, while they differ."""
        for declaration in declarations:
            self.add(declaration)

    def add(self, declaration: Declaration) -> bool:
        """Count a declaration; returns whether it is new."""
        if self._several is not None:
            return self._several.add(declaration)
        if self._one is None or self._one == declaration:
            self._one = self._one or shared(declaration)[0]
            self._count += 1
            return self._count == 1
        self._several, self._one = _Several(self._one, self._count), None
        return self._several.add(declaration)

    def remove(self, declaration: Declaration) -> None:
        """Count a declaration once less."""
        if self._several is None:
            self._count -= 1
            self._one = self._one if self._count else None
            return
        self._several.remove(declaration)
        if len(self._several.declarations) == 1:
            ((self._one, self._count),) = self._several.declarations.items()
            self._several = None

    def __bool__(self) -> bool:
        """Whether there is any declaration."""
        return self._one is not None or self._several is not None

    def terms(self) -> Terms:
        """The terms that hold: the greater of two minimums, the shorter of two time limits."""
        if self._several is not None:
            return _terms(self._several, self._several.problems.values)
        return shared(self._one)[1] if self._one is not None else Terms()

    def combined(self) -> tuple[Declaration, tuple[str, ...]]:
        """All declarations as one, and a sentence about each value that differs."""
        if self._several is not None:
            return self._several.combined()
        return self._one or Declaration(source=""), ()


class _Several:
    """Different declarations, each with the number of sources that make it."""

    __slots__ = ("_amounts", "_names", "_values", "declarations", "problems")

    def __init__(self, declaration: Declaration, count: int = 1) -> None:
        self.declarations = Counter({declaration: count})
        self._values = {field: DeclaredValues() for field, _, _ in _VALUES}
        self._amounts: dict[str, dict[str, DeclaredValues]] = {field: {} for field, _, _ in _AMOUNTS}
        self._names: dict[str, list[str]] = {field: [] for field, _, _ in _AMOUNTS}
        """The names of `_amounts`, sorted."""
        self.problems = DeclaredValues()
        self._count(declaration, 1)

    def add(self, declaration: Declaration) -> bool:
        """Count a declaration; returns whether it is new."""
        self.declarations[declaration] += 1
        if self.declarations[declaration] > 1:
            return False
        self._count(declaration, 1)
        return True

    def remove(self, declaration: Declaration) -> None:
        self.declarations[declaration] -= 1
        if not self.declarations[declaration]:
            del self.declarations[declaration]
            self._count(declaration, -1)

    def _count(self, declaration: Declaration, change: int) -> None:
        source = declaration.source
        for field, values in self._values.items():
            if value := getattr(declaration, field):
                values.count(value, source, change)
        for field, by_name in self._amounts.items():
            for name, amount in getattr(declaration, field):
                if name not in by_name:
                    insort(self._names[field], name)
                    by_name[name] = DeclaredValues()
                by_name[name].count(amount, source, change)
                if not by_name[name].values:
                    del by_name[name]
                    del self._names[field][bisect_left(self._names[field], name)]
        for problem in declaration.problems:
            self.problems.count(problem, source, change)

    def combined(self) -> tuple[Declaration, tuple[str, ...]]:
        held, differences = self.held()
        source = " and ".join(sorted({declaration.source for declaration in self.declarations}))
        return Declaration(source=source, problems=tuple(self.problems.values), **held), tuple(differences)

    def held(self) -> tuple[dict[str, Any], list[str]]:
        """The declared fields with the value that holds, and the sentences about those that differ."""
        held: dict[str, Any] = {}
        differences: list[str] = []
        for field, title, strictest in _VALUES:
            declared = self._values[field]
            if declared.values:
                held[field] = strictest(declared.values)
                differences += declared.difference(title, held[field])
        for field, title, bound in _AMOUNTS:
            by_name, names = self._amounts[field], self._names[field]
            if names:
                held[field] = tuple((name, by_name[name].values[-1]) for name in names[: bound.most])
                for name, amount in held[field]:
                    differences += by_name[name].difference(f"{title} {name}", amount)
            if len(names) > bound.most:
                differences.append(bound.exceeded(len(names)))
        return held, differences


def _terms(several: _Several, problems: Sequence[str]) -> Terms:
    held, differences = several.held()
    by_role = sum(minimum for _, minimum in held.get("min_by_role", ()))
    held["min_member"] = max(held.get("min_member", 0), by_role) or None
    more = len(problems) - MOST_TOLD  # each member may write nonsense of its own
    like_these = (f"{more} more like these",) if more > 0 else ()
    return Terms(conflicts=(*problems[:MOST_TOLD], *like_these, *differences), **held)


_known: Remembered[Declaration, tuple[Declaration, Terms]] = Remembered(KNOWN)
"""Declarations, and the terms that hold where nothing else is declared: many groups declare the same."""


def shared(declaration: Declaration) -> tuple[Declaration, Terms]:
    """One object for all groups with this declaration, and the terms that follow from it alone."""
    known = _known.get(declaration)
    if known is not None:
        return known
    return _known.put(declaration, (declaration, _terms(_Several(declaration), declaration.problems)))


def combined(declarations: Sequence[Declaration]) -> tuple[Declaration, tuple[str, ...]]:
    """All these declarations as one, and a sentence about each value in which they differ."""
    return (declarations[0], ()) if len(declarations) == 1 else Agreement(declarations).combined()


def _chosen_queue(queues: Sequence[str]) -> str:
    return queues[1] if queues[0] == DEFAULT_QUEUE and len(queues) > 1 else queues[0]


def _strictest_answer(answers: Sequence[OnLost]) -> OnLost:
    return max(answers, key=LAXEST_FIRST.index)


_least, _most = itemgetter(0), itemgetter(-1)
_VALUES: tuple[tuple[str, str, Callable[[Sequence[Any]], Any]], ...] = (
    ("min_member", "the minimum", _most),
    ("queue", "the queue", _chosen_queue),
    ("priority_class", "the priority class", _least),
    ("schedule_timeout_s", "the time limit in seconds", _least),
    ("on_member_lost", "the answer to a lost member", _strictest_answer),
    ("on_completion", "the role that ends the group", _least),
    ("expected_runtime_s", "the expected run time in seconds", _most),
)
"""Single values: field, title for people, and which of the sorted values holds (of texts the first by alphabet)."""
_AMOUNTS: tuple[tuple[str, str, Bound], ...] = (
    ("min_by_role", "the minimum of role", ROLES),
    ("lasting_by_role", "the minimum, once started, of role", ROLES),
    ("min_resources", "the amount that must be free of", RESOURCES),
)
"""Values by name: for each name the greatest holds. Past the bound, the first names by alphabet hold."""

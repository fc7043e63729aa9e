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
KNOWN, WEIGHT = 1024, 2**20
"""Declarations that are remembered with the terms that follow from each, and the characters of all of them."""


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
    """All declarations of one group, each with the number of sources that make it. Most groups have only one."""

    __slots__ = ("_declarations", "_values")

    def __init__(self, declarations: Iterable[Declaration] = ()) -> None:
        self._declarations: dict[Declaration, int] = {}
        self._values: _Values | None = None
        """The values of all declarations, while there are several."""
        for declaration in declarations:
            self.add(declaration)

    def add(self, declaration: Declaration) -> bool:
        """Count a declaration; returns whether it is new."""
        count = self._declarations.get(declaration, 0)
        self._declarations[declaration if self._declarations else shared(declaration)[0]] = count + 1
        if not count:
            self._changed(declaration, 1)
        return not count

    def remove(self, declaration: Declaration) -> None:
        """Count a declaration once less."""
        self._declarations[declaration] -= 1
        if not self._declarations[declaration]:
            del self._declarations[declaration]
            self._changed(declaration, -1)

    def _changed(self, declaration: Declaration, change: int) -> None:
        """Update the values after the first source makes the declaration (1), or the last one withdraws it (-1)."""
        if len(self._declarations) < 2:
            self._values = None
        elif self._values is None:
            self._values = _Values(self._declarations)
        else:
            self._values.count(declaration, change)

    def __bool__(self) -> bool:
        """Whether there is any declaration."""
        return bool(self._declarations)

    def terms(self) -> Terms:
        """The terms that hold: the greater of two minimums, the shorter of two time limits."""
        if self._values is not None:
            return _terms(self._values, self._values.problems.values)
        return next((shared(one)[1] for one in self._declarations), Terms())

    def combined(self) -> tuple[Declaration, tuple[str, ...]]:
        """All declarations as one, and a sentence about each value that differs."""
        if self._values is None:
            return next(iter(self._declarations), Declaration(source="")), ()
        held, differences = self._values.held()
        source = " and ".join(sorted({declaration.source for declaration in self._declarations}))
        return Declaration(source=source, problems=tuple(self._values.problems.values), **held), tuple(differences)


class _Values:
    """What different declarations say, field by field."""

    __slots__ = ("_amounts", "_names", "_values", "problems")

    def __init__(self, declarations: Iterable[Declaration]) -> None:
        self._values = {field: DeclaredValues() for field, _, _ in _VALUES}
        self._amounts: dict[str, dict[str, DeclaredValues]] = {field: {} for field, _, _ in _AMOUNTS}
        self._names: dict[str, list[str]] = {field: [] for field, _, _ in _AMOUNTS}
        """The names of `_amounts`, sorted."""
        self.problems = DeclaredValues()
        for declaration in declarations:
            self.count(declaration, 1)

    def count(self, declaration: Declaration, change: int) -> None:
        """Add what the declaration says (`change` = 1), or take it away (-1)."""
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


def _terms(values: _Values, problems: Sequence[str]) -> Terms:
    held, differences = values.held()
    by_role = sum(minimum for _, minimum in held.get("min_by_role", ()))
    held["min_member"] = max(held.get("min_member", 0), by_role) or None
    more = len(problems) - MOST_TOLD  # each member may write nonsense of its own
    like_these = (f"{more} more like these",) if more > 0 else ()
    return Terms(conflicts=(*problems[:MOST_TOLD], *like_these, *differences), **held)


def _length(declaration: Declaration) -> int:
    return len(repr(declaration))


_known: Remembered[Declaration, tuple[Declaration, Terms]] = Remembered(KNOWN, WEIGHT, _length)
"""Declarations, and the terms that hold where nothing else is declared: many groups declare the same."""


def shared(declaration: Declaration) -> tuple[Declaration, Terms]:
    """One object for all groups with this declaration, and the terms that follow from it alone."""
    known = _known.get(declaration)
    if known is not None:
        return known
    return _known.put(declaration, (declaration, _terms(_Values((declaration,)), declaration.problems)))


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
    ("elastic", "whether it is elastic", _most),
)
"""Single values: field, title for people, and which of the sorted values holds (of texts the first by alphabet)."""
_AMOUNTS: tuple[tuple[str, str, Bound], ...] = (
    ("min_by_role", "the minimum of role", ROLES),
    ("lasting_by_role", "the minimum, once started, of role", ROLES),
    ("min_resources", "the amount that must be free of", RESOURCES),
)
"""Values by name: for each name the greatest holds. Past the bound, the first names by alphabet hold."""

"""What holds when several sources declare the same group, kept as they come and go.

Of two values the stricter holds, and a sentence names those that differ; the order in which they speak never matters.
A declaration that comes or goes costs what it says itself, however many others there are.
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
"""What operators fill in where nobody chose a queue: any other name goes before it."""
MOST_TOLD = 4
"""Values that one sentence names."""
KNOWN = 1024
"""Declarations that are remembered with what follows from each."""


class Spoken:
    """Different values that are said of one thing, in order, and their sources."""

    __slots__ = ("_sources", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._sources: dict[Any, Counter[str]] = {}

    def add(self, value: Any, source: str) -> None:
        if value not in self._sources:
            insort(self.values, value)
            self._sources[value] = Counter()
        self._sources[value][source] += 1

    def remove(self, value: Any, source: str) -> None:
        left = self._sources[value]
        left[source] -= 1
        if not left[source]:
            del left[source]
        if not left:
            del self._sources[value]
            del self.values[bisect_left(self.values, value)]

    def difference(self, what: str, held: Any) -> Iterator[str]:
        """A sentence if there are several."""
        if len(self.values) > 1:
            told = [f"{value} by {min(self._sources[value])}" for value in self.values[:MOST_TOLD]]
            told += [f"{len(self.values) - MOST_TOLD} more"] if len(self.values) > MOST_TOLD else []
            yield f"{what} differs: {', '.join(told)}; {held} holds"


class Agreement:
    """All that is declared of one group. Of most groups one thing is, by all who say anything."""

    __slots__ = ("_count", "_one", "_several")

    def __init__(self, declarations: Iterable[Declaration] = ()) -> None:
        self._one: Declaration | None = None
        """What all say; None if nobody says anything, or not all say the same."""
        self._count = 0
        """How many say it."""
        self._several: _Several | None = None
        """What is said, while there are different declarations."""
        for one in declarations:
            self.add(one)

    def add(self, one: Declaration) -> bool:
        """This is declared, maybe once more; returns whether nobody had declared it."""
        if self._several is not None:
            return self._several.add(one)
        if self._one is None or self._one == one:
            self._one = self._one or shared(one)[0]
            self._count += 1
            return self._count == 1
        self._several, self._one = _Several(self._one, self._count), None
        return self._several.add(one)

    def remove(self, one: Declaration) -> None:
        """This is declared no more, or once less."""
        if self._several is None:
            self._count -= 1
            self._one = self._one if self._count else None
            return
        self._several.remove(one)
        if len(self._several.said) == 1:
            ((self._one, self._count),) = self._several.said.items()
            self._several = None

    def __bool__(self) -> bool:
        """Whether anything is declared."""
        return self._one is not None or self._several is not None

    def terms(self) -> Terms:
        """What holds: of two minimums the greater, of two limits the shorter."""
        if self._several is not None:
            return _terms(self._several, self._several.problems.values)
        return shared(self._one)[1] if self._one is not None else Terms()

    def combined(self) -> tuple[Declaration, tuple[str, ...]]:
        """All of it as one declaration, and a sentence about each value that differs."""
        if self._several is not None:
            return self._several.combined()
        return self._one or Declaration(source=""), ()


class _Several:
    """Different declarations, by value."""

    __slots__ = ("_amounts", "_names", "_values", "problems", "said")

    def __init__(self, one: Declaration, count: int = 1) -> None:
        self.said = Counter({one: count})
        """How often each is made."""
        self._values = {field: Spoken() for field, _, _ in _VALUES}
        self._amounts: dict[str, dict[str, Spoken]] = {field: {} for field, _, _ in _AMOUNTS}
        self._names: dict[str, list[str]] = {field: [] for field, _, _ in _AMOUNTS}
        """The names of those amounts, in order."""
        self.problems = Spoken()
        self._take(one)

    def add(self, one: Declaration) -> bool:
        """One more makes this declaration; returns whether nobody had."""
        self.said[one] += 1
        if self.said[one] > 1:
            return False
        self._take(one)
        return True

    def _take(self, one: Declaration) -> None:
        for field, spoken in self._values.items():
            if value := getattr(one, field):
                spoken.add(value, one.source)
        for field, named in self._amounts.items():
            for name, amount in getattr(one, field):
                if name not in named:
                    insort(self._names[field], name)
                    named[name] = Spoken()
                named[name].add(amount, one.source)
        for problem in one.problems:
            self.problems.add(problem, one.source)

    def remove(self, one: Declaration) -> None:
        self.said[one] -= 1
        if self.said[one]:
            return
        del self.said[one]
        for field, spoken in self._values.items():
            if value := getattr(one, field):
                spoken.remove(value, one.source)
        for field, named in self._amounts.items():
            for name, amount in getattr(one, field):
                named[name].remove(amount, one.source)
                if not named[name].values:
                    del named[name]
                    del self._names[field][bisect_left(self._names[field], name)]
        for problem in one.problems:
            self.problems.remove(problem, one.source)

    def combined(self) -> tuple[Declaration, tuple[str, ...]]:
        held, differ = self.held()
        source = " and ".join(sorted({one.source for one in self.said}))
        return Declaration(source=source, problems=tuple(self.problems.values), **held), tuple(differ)

    def held(self) -> tuple[dict[str, Any], list[str]]:
        """The fields that are said, each with the value that holds, and the sentences."""
        held: dict[str, Any] = {}
        differ: list[str] = []
        for field, what, strictest in _VALUES:
            spoken = self._values[field]
            if spoken.values:
                held[field] = strictest(spoken.values)
                differ += spoken.difference(what, held[field])
        for field, what, bound in _AMOUNTS:
            named, ordered = self._amounts[field], self._names[field]
            if ordered:
                first = ordered[: bound.most]
                held[field] = tuple((name, named[name].values[-1]) for name in first)
                for name, amount in held[field]:
                    differ += named[name].difference(f"{what} {name}", amount)
            if len(ordered) > bound.most:
                differ.append(bound.exceeded(len(ordered)))
        return held, differ


def _terms(several: _Several, problems: Sequence[str]) -> Terms:
    held, differ = several.held()
    of_roles = sum(least for _, least in held.get("min_by_role", ()))
    held["min_member"] = max(held.get("min_member", 0), of_roles) or None
    return Terms(conflicts=(*_first(problems), *differ), **held)


_known: Remembered[Declaration, tuple[Declaration, Terms]] = Remembered(KNOWN)
"""Declarations, and the terms that hold where nothing else is declared: many groups say the same."""


def shared(one: Declaration) -> tuple[Declaration, Terms]:
    """The same declaration for all groups that make it, and the terms that follow from it alone."""
    found = _known.get(one)
    return found if found is not None else _known.put(one, (one, _terms(_Several(one), one.problems)))


def combined(declarations: Iterable[Declaration]) -> tuple[Declaration, tuple[str, ...]]:
    """All of these as one declaration, and a sentence about each value in which they differ."""
    said = list(declarations)
    return (said[0], ()) if len(said) == 1 else Agreement(said).combined()


def _first(sentences: Sequence[str]) -> Iterator[str]:
    """As many as one sentence names, and how many more there are: each member may write nonsense of its own."""
    yield from sentences[:MOST_TOLD]
    if len(sentences) > MOST_TOLD:
        yield f"{len(sentences) - MOST_TOLD} more like these"


_least, _most = itemgetter(0), itemgetter(-1)


def _chosen_queue(queues: Sequence[str]) -> str:
    return queues[1] if queues[0] == DEFAULT_QUEUE and len(queues) > 1 else queues[0]


def _strictest_answer(answers: Sequence[OnLost]) -> OnLost:
    return max(answers, key=LAXEST_FIRST.index)


_VALUES: tuple[tuple[str, str, Callable[[Sequence[Any]], Any]], ...] = (
    ("min_member", "the minimum", _most),
    ("queue", "the queue", _chosen_queue),
    ("priority_class", "the priority class", _least),
    ("schedule_timeout_s", "the time limit in seconds", _least),
    ("on_member_lost", "the answer to a lost member", _strictest_answer),
    ("on_completion", "the role that ends the group", _least),
    ("expected_runtime_s", "the expected run time in seconds", _most),
)
"""Single values: field, name for people, which of several in order holds (of texts the first by alphabet)."""
_AMOUNTS: tuple[tuple[str, str, Bound], ...] = (
    ("min_by_role", "the minimum of role", ROLES),
    ("lasting_by_role", "the minimum, once started, of role", ROLES),
    ("min_resources", "the amount that must be free of", RESOURCES),
)
"""Values by name: of each name the greatest holds. Of more names than the bound the first by alphabet count."""

"""Groups: how they are named, what is declared about them, and what holds when several declare.

Several sources may speak of one group: PodGroups of several kinds, and every member by its own annotations and labels.
Of two values the stricter holds, and whoever differs is told; the order in which they speak never matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

OnLost = Literal["wait", "restart", "ignore"]
LAXEST_FIRST: tuple[OnLost, ...] = ("ignore", "wait", "restart")
DEFAULT_QUEUE = "default"
"""What operators fill in where nobody chose a queue: any other name goes before it."""
MOST_TOLD = 4
"""Values that one sentence names."""


class GroupKey(msgspec.Struct, frozen=True, order=True):
    """A group's name; the same name in another namespace is another group."""

    namespace: str
    name: str
    """Empty for pods that want to be in a group but name none that can be read: they wait."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What one source says of a group: a PodGroup, or a pod by its annotations and labels. None: it does not say."""

    source: str
    """For people: `PodGroup scheduling.volcano.sh/v1beta1`, `pods' gangshare.io/*`."""
    min_member: int | None = None
    """Members that must start together."""
    min_by_role: tuple[tuple[str, int], ...] = ()
    """The same per role, sorted by role; roles are in lower case everywhere."""
    lasting_by_role: tuple[tuple[str, int], ...] = ()
    """Of roles that start with more than they need: how many are enough once the group has started, sorted by role."""
    min_resources: tuple[tuple[str, int], ...] = ()
    """Amounts that nodes together must have free for a start, sorted by resource; cpu in thousandths of a core."""
    queue: str = ""
    priority_class: str = ""
    schedule_timeout_s: float | None = None
    """The user's limit for waiting."""
    on_member_lost: OnLost | None = None
    on_completion: str = ""
    """The role whose success ends the group."""
    expected_runtime_s: float | None = None
    """For how long it is expected to run."""
    problems: tuple[str, ...] = ()
    """Sentences about values of this source that cannot be read."""


class Membership(msgspec.Struct, frozen=True):
    """What a pod says of the group that it belongs to."""

    key: GroupKey
    role: str = ""
    required: bool = False
    """Always part of the minimum: a launcher or master, without which the others wait in vain."""
    declaration: Declaration | None = None
    """What the pod itself says of the group, None if nothing."""
    problems: tuple[str, ...] = ()
    """Sentences: names and roles that cannot be read, keys that name different groups, values that differ."""
    leader: str = ""
    """The role of a pod that may be made only when this one runs, "" if there is none."""

    @property
    def said(self) -> Declaration | None:
        """What the pod says, with what of it cannot be taken at its word; None if nothing."""
        if not self.problems:
            return self.declaration
        return msgspec.structs.replace(self.declaration or Declaration(source="pods"), problems=self.problems)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a group. `min_member` is None while nobody says: then it waits."""

    min_member: int | None = None
    """Never less than the roles' minimums together."""
    min_by_role: tuple[tuple[str, int], ...] = ()
    lasting_by_role: tuple[tuple[str, int], ...] = ()
    """What takes the place of these roles' minimums once the group has started."""
    min_resources: tuple[tuple[str, int], ...] = ()
    queue: str = ""
    priority_class: str = ""
    schedule_timeout_s: float | None = None
    on_member_lost: OnLost = "wait"
    on_completion: str = ""
    expected_runtime_s: float | None = None
    conflicts: tuple[str, ...] = ()
    """Sentences about declarations that differ or cannot be read."""


def agree(declarations: Iterable[Declaration]) -> Terms:
    """What holds when all of these are made: of two minimums the greater, of two limits the shorter."""
    one, conflicts = combined(declarations)
    by_roles = sum(least for _, least in one.min_by_role)
    return Terms(
        min_member=max(one.min_member or 0, by_roles) or None,
        min_by_role=one.min_by_role,
        lasting_by_role=one.lasting_by_role,
        min_resources=one.min_resources,
        queue=one.queue,
        priority_class=one.priority_class,
        schedule_timeout_s=one.schedule_timeout_s,
        on_member_lost=one.on_member_lost or "wait",
        on_completion=one.on_completion,
        expected_runtime_s=one.expected_runtime_s,
        conflicts=(*_first(one.problems), *conflicts),
    )


def _first(sentences: tuple[str, ...]) -> Iterator[str]:
    """As many as one sentence names, and how many more there are: each member may write nonsense of its own."""
    yield from sentences[:MOST_TOLD]
    if len(sentences) > MOST_TOLD:
        yield f"{len(sentences) - MOST_TOLD} more like these"


def combined(declarations: Iterable[Declaration]) -> tuple[Declaration, tuple[str, ...]]:
    """All of these as one declaration, and a sentence about each value in which they differ."""
    said = set(declarations)
    if len(said) == 1:
        return said.pop(), ()
    differ: list[str] = []
    held: dict[str, Any] = {}
    for field, what, strictest in _VALUES:
        value = _held(what, ((getattr(one, field), one.source) for one in said), strictest, differ)
        if value is not None:
            held[field] = value
    for field, what in _AMOUNTS:
        amounts: dict[str, list[tuple[int, str]]] = {}
        for one in said:
            for name, amount in getattr(one, field):
                amounts.setdefault(name, []).append((amount, one.source))
        held[field] = tuple((name, _held(f"{what} {name}", amounts[name], max, differ)) for name in sorted(amounts))
    sources = " and ".join(sorted({one.source for one in said}))
    problems = tuple(sorted({problem for one in said for problem in one.problems}))
    return Declaration(source=sources, problems=problems, **held), tuple(differ)


def _held(what: str, said: Iterable[tuple[Any, str]], strictest: Callable[..., Any], differ: list[str]) -> Any:
    """The strictest of the values that are said, None if none is; adds a sentence if there are several."""
    sources: dict[Any, str] = {}
    for value, source in said:
        if value:
            sources[value] = min(source, sources.get(value, source))
    if not sources:
        return None
    held = strictest(sources)
    if len(sources) > 1:
        told = [f"{value} by {sources[value]}" for value in sorted(sources)[:MOST_TOLD]]
        told += [f"{len(sources) - MOST_TOLD} more"] if len(sources) > MOST_TOLD else []
        differ.append(f"{what} differs: {', '.join(told)}; {held} holds")
    return held


def _chosen_queue(queues: Iterable[str]) -> str:
    return min(queues, key=lambda queue: (queue == DEFAULT_QUEUE, queue))


def _strictest_answer(answers: Iterable[OnLost]) -> OnLost:
    return max(answers, key=LAXEST_FIRST.index)


_VALUES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("min_member", "the minimum", max),
    ("queue", "the queue", _chosen_queue),
    ("priority_class", "the priority class", min),
    ("schedule_timeout_s", "the time limit in seconds", min),
    ("on_member_lost", "the answer to a lost member", _strictest_answer),
    ("on_completion", "the role that ends the group", min),
    ("expected_runtime_s", "the expected run time in seconds", max),
)
"""Single values: field, name for people, which of several holds (of texts without an order the first by alphabet)."""
_AMOUNTS = (
    ("min_by_role", "the minimum of role"),
    ("lasting_by_role", "the minimum, once started, of role"),
    ("min_resources", "the amount that must be free of"),
)
"""Values by name: of each name the greatest holds."""

"""Why a gang does not fit, in numbers for people: what it needs, and how much of that is free or could be placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec

from extender.engine.planning.attempt import LOOK, STEP, ClusterView, batched
from extender.engine.planning.trial import EquivalenceClass
from extender.engine.state.intree import Amounts
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Seat
from extender.engine.types.amounts import in_words
from protos.contract import ask_words
from protos.contract.mig import of_resource
from protos.contract.names import Resources
from protos.contract.reason import listed

NAMED = 5
"""Most nodes, shapes or obstacles named; the rest is counted."""
Count = tuple[int, str]
"""How many, of what."""


class Shortage(msgspec.Struct, frozen=True):
    """How far the smallest start of a gang could be placed. As text: the sentence with numbers."""

    needed: tuple[Count, ...]
    """Members by shape, hardest first."""
    placed: tuple[Count, ...]
    """Members that could be placed, by node, most first."""
    missing: tuple[Count, ...]
    """Members without a place, by shape."""
    passed: tuple[Count, ...] = ()
    """Nodes with GPUs for the hardest members without a place, by what else stands in the way there."""

    @property
    def short(self) -> int:
        """How many members have no place."""
        return sum(count for count, _ in self.missing)

    def __str__(self) -> str:
        count = sum(count for count, _ in self.placed)
        nodes = f": {listed((f'{node} {n}' for n, node in self.placed), NAMED)}" if count else ""
        short = _shapes(self.missing) if len(self.needed) > 1 else str(self.short)
        passed = f"; passed over: {listed((f'{n} {why}' for n, why in self.passed), NAMED)}" if self.passed else ""
        return f"needs {_shapes(self.needed)}; {count or 'none'} can be placed{nodes}; short by {short}{passed}"


def shortage(eq_classes: Sequence[EquivalenceClass], placed: Mapping[str, int]) -> Shortage:
    """The shortage of these classes, some of whose members have no place; `placed` counts the others by node."""
    needed: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    ordered = sorted(eq_classes, key=attrgetter("hardness"))
    for eq_class in ordered:
        words = _words(eq_class)
        needed[words] += eq_class.size
        missing[words] += len(eq_class.waiting)
    passed = next((eq_class.passed for eq_class in ordered if eq_class.waiting), Counter[str]())
    return Shortage(
        needed=tuple((count, words) for words, count in needed.items()),
        placed=_most_first(placed),
        missing=tuple((count, words) for words, count in missing.items() if count),
        passed=_most_first(passed),
    )


def _most_first(counts: Mapping[str, int]) -> tuple[Count, ...]:
    return tuple((count, name) for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _words(eq_class: EquivalenceClass) -> str:
    """One member in words: `40 GiB`, `2 whole GPUs on NVLink nodes`, `4 cpu and 8Gi memory`."""
    if eq_class.ask is None:
        return in_words(eq_class.amounts) or "pod slot"
    single = len(eq_class.ask.containers) == 1
    words = (
        ask_words.wanted(eq_class.ask).removesuffix(" on one GPU") if single else f"({ask_words.wanted(eq_class.ask)})"
    )
    return words + " on NVLink nodes" * (eq_class.ask.selection.link == "nvlink")


def _shapes(counts: Iterable[Count]) -> str:
    return listed((f"{count}×{words}" for count, words in counts), NAMED)


class Scarcity(msgspec.Struct, frozen=True):
    """Less is free than the gang requires before it starts. As text: the sentence with numbers."""

    wanted: Amounts
    free: Amounts
    """Of the same resources."""

    def __str__(self) -> str:
        return f"minResources wants {in_words(self.wanted)}; free are {in_words(self.free)}"


def scarcity(view: ClusterView, required: Amounts, minimum: Sequence[Seat]) -> Generator[int, None, Scarcity | None]:
    """The resources of `minResources` of which the nodes together have too little free; None if there is enough.

    A plan places what the smallest start takes, so only the amounts beyond that are counted here. Sums say nothing
    about single nodes. So they never suffice for a start, as they do for Volcano's enqueue action.
    """
    taken: Counter[str] = Counter()
    for seat in minimum if required else ():
        taken.update(dict(seat.requests))
    wanted = tuple((resource, amount) for resource, amount in required if amount > taken[resource])
    free: Counter[str] = Counter()
    for nodes in batched(tuple(view.nodes.values()) if wanted else ()):
        for resource, _ in wanted:
            free[resource] += sum(_free(node, resource, view.resources) for node in nodes)
        yield len(wanted) * STEP * LOOK
    short = tuple((resource, amount) for resource, amount in wanted if amount > free[resource])
    return Scarcity(short, tuple((resource, free[resource]) for resource, _ in short)) if short else None


def _free(node: NodeState, resource: str, ours: Resources) -> int:
    """What is free of a resource on a node that takes new pods, as far as parts can be added up."""
    if not node.seen or node.unschedulable or node.problem:
        return 0
    if node.books is None or resource not in ours.managed:
        return max(0, node.room(resource))
    inventory = node.books.inventory
    able = [book for book in node.books.gpus.values() if book.offered and not book.wholes]
    if inventory.state != "ready":
        return 0
    if resource == ours.mem:
        return sum(book.mem_free for book in able)
    if resource == ours.slice:
        return sum(book.slices_free for book in able)
    if replicas := inventory.replicas.get(resource):
        return sum(book.slices_free // (inventory.slices_per_gpu // replicas) for book in able if not book.gpu.mig)
    if resource == ours.whole:
        return sum(not book.sharers for book in able if inventory.single or not book.gpu.mig)
    profile = of_resource(resource)
    return sum(book.gpu.mig == profile.name and not book.blocked for book in able) if profile is not None else 0

"""Why a gang does not fit, in numbers for people: what it needs, and how much of that could be placed where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec

from extender.engine.planning.trial import EquivalenceClass
from protos.contract import choose
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
    """One member in words: `40`, `2 whole GPUs on NVLink nodes`, `4 cpu and 8Gi memory`."""
    if eq_class.ask is None:
        return " and ".join(amount_of(*amount) for amount in eq_class.amounts if amount[0] != "pods") or "pod slot"
    single = len(eq_class.ask.containers) == 1
    words = choose.wanted(eq_class.ask).removesuffix(" on one GPU") if single else f"({choose.wanted(eq_class.ask)})"
    return words + " on NVLink nodes" * (eq_class.ask.selection.link == "nvlink")


def amount_of(resource: str, amount: int) -> str:
    """An amount in words: `1.5 cpu`, `8Gi memory`, `2 rdma/hca`."""
    if resource == "cpu":
        return f"{amount / 1000:g} cpu"
    if "/" in resource:
        return f"{amount} {resource}"
    power, suffix = (30, "Gi") if amount >= 2**30 else (20, "Mi")
    return f"{round(amount / 2**power, 1):g}{suffix} {resource}"


def _shapes(counts: Iterable[Count]) -> str:
    return listed((f"{count}×{words}" for count, words in counts), NAMED)

"""How the GPUs of a node are linked, and the best-linked set of k of them.

A pair's weight grows with its bandwidth: each NVLink counts 100, then PCIe by closeness (one switch 50 … across CPU
sockets 10), the scale of NVIDIA's go-gpuallocator. A matrix that differs by direction counts its better direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from protos.contract.inventory import Link

PCIE_WEIGHTS = {"PIX": 50, "PXB": 40, "PHB": 30, "NODE": 20, "SYS": 10}
NVLINK_WEIGHT = 100
UNKNOWN_WEIGHT = 0
SEARCH_STEPS = 1_000
"""Nodes of the search tree visited at most before the best set found so far is taken; 8 GPUs need fewer."""


def weight(kind: str) -> int:
    """The weight of one link kind; an unknown kind weighs nothing."""
    if kind.startswith("NV") and kind[2:].isdecimal():
        return NVLINK_WEIGHT * int(kind[2:])
    return PCIE_WEIGHTS.get(kind, UNKNOWN_WEIGHT)


class Topology:
    """Pair weights of one node's GPUs, by GPU index, with a memo of the sets already searched."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._pairs: dict[tuple[int, int], int] = {}
        self._memo: dict[tuple[tuple[int, ...], int, bool], tuple[int, ...] | None] = {}
        for a, b, kind in links:
            pair = (a, b) if a < b else (b, a)
            self._pairs[pair] = max(self._pairs.get(pair, 0), weight(kind))

    def pair(self, a: int, b: int) -> int:
        return self._pairs.get((a, b) if a < b else (b, a), UNKNOWN_WEIGHT)

    def nvlinked(self, indexes: Sequence[int]) -> bool:
        """Whether every two of these GPUs have an NVLink between them."""
        return all(self.pair(a, b) >= NVLINK_WEIGHT for i, a in enumerate(indexes) for b in indexes[i + 1 :])

    def total(self, indexes: Sequence[int]) -> int:
        """The sum over all pairs."""
        return sum(self.pair(a, b) for i, a in enumerate(indexes) for b in indexes[i + 1 :])

    def best(self, candidates: tuple[int, ...], k: int, nvlink: bool = False) -> tuple[int, ...] | None:
        """The k of `candidates` with the greatest total weight, the earliest in their order among equals.

        With `nvlink`, only sets with NVLinks between all their GPUs. None if there is no such set.
        """
        if k > len(candidates):
            return None
        if k <= 1:
            return candidates[:k]
        key = (candidates, k, nvlink)
        if key not in self._memo:
            if len(self._memo) > 4096:
                self._memo.clear()
            self._memo[key] = _Search(self, candidates, k, nvlink).run()
        return self._memo[key]


@lru_cache(maxsize=1024)
def topology(links: tuple[Link, ...]) -> Topology:
    """The topology of these links, shared by all nodes that are linked alike."""
    return Topology(links)


class _Search:
    """Depth-first branch and bound over candidate positions; exact unless SEARCH_STEPS runs out.

    It starts from the best set that grows greedily out of one GPU, so that what it ends with is never worse.
    """

    def __init__(self, links: Topology, candidates: tuple[int, ...], k: int, nvlink: bool) -> None:
        self.candidates, self.k = candidates, k
        self.weights = [[links.pair(a, b) if a != b else 0 for b in candidates] for a in candidates]
        self.floor = NVLINK_WEIGHT if nvlink else UNKNOWN_WEIGHT
        self.heaviest = max((max(row) for row in self.weights), default=0)
        self.best_total, self.best_set, self.steps = -1, None, 0  # type: int, tuple[int, ...] | None, int

    def run(self) -> tuple[int, ...] | None:
        for first in range(len(self.candidates)):
            self._grow(first)
        self.best_total -= 1  # an equal one that comes earlier in their order goes first
        self._extend((), 0, 0)
        return None if self.best_set is None else tuple(self.candidates[i] for i in self.best_set)

    def _grow(self, first: int) -> None:
        chosen, total, gain = [first], 0, list(self.weights[first])
        left = [i for i in range(len(self.candidates)) if i != first and gain[i] >= self.floor]
        while len(chosen) < self.k and left:
            best = max(left, key=gain.__getitem__)
            total += gain[best]
            chosen.append(best)
            row = self.weights[best]
            left = [i for i in left if i != best and row[i] >= self.floor]
            gain = [a + b for a, b in zip(gain, row, strict=True)]
        if len(chosen) == self.k and total > self.best_total:
            self.best_total, self.best_set = total, tuple(sorted(chosen))

    def _extend(self, chosen: tuple[int, ...], start: int, total: int) -> None:
        self.steps += 1
        have, missing = len(chosen), self.k - len(chosen)
        if not missing:
            if total > self.best_total:
                self.best_total, self.best_set = total, chosen
            return
        pairs_left = missing * have + missing * (missing - 1) // 2
        if total + pairs_left * self.heaviest <= self.best_total or self.steps > SEARCH_STEPS:
            return
        for i in range(start, len(self.candidates) - missing + 1):
            row = self.weights[i]
            if all(row[j] >= self.floor for j in chosen):
                self._extend((*chosen, i), i + 1, total + sum(row[j] for j in chosen))

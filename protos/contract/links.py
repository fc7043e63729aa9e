"""The links between the GPUs of a node, and the best set of k GPUs.

The weight of a pair grows with its bandwidth, on the scale of NVIDIA's go-gpuallocator: 100 for each NVLink, for PCIe
from 50 (one switch) to 10 (across CPU sockets). A switched fabric is a full mesh of NVLinks. If a matrix differs by
direction, the better direction counts. Let L(X) be the sum of the weights of all pairs in X, N(X) the number of its
pairs on one NUMA node, and F the idle GPUs of the node. The best set S of k candidates is the one with the greatest

    (L(S), L(F \\ S), N(S), N(F \\ S)),

compared from left to right: the best-linked set, then the set that leaves the most links to the other GPUs, then the
same by NUMA nodes. Of equal sets the first in the order of the candidates wins.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import combinations, starmap

from protos.contract import mig
from protos.contract.inventory import Link
from protos.contract.selection import Link as Wish
from protos.contract.selection import is_number

PCIE_WEIGHTS = {"PIX": 50, "PXB": 40, "PHB": 30, "NODE": 20, "SYS": 10}
NVLINK_WEIGHT = 100
UNKNOWN_WEIGHT = 0
MOST_NVLINKS = 64
"""NVLinks that count between two GPUs at most."""
EXACT = 16
"""With at most so many GPUs per node the search is exact, else greedy, from at most so many first GPUs."""
GREED = 20_000
"""Pairs that the greedy search examines in all, except for its first start."""
REMEMBERED = 16_384
"""Cached answers of all topologies together."""
TABLES = 64
"""Topologies with cached sums of all sets: half a MiB for 16 GPUs, 2 KiB for 8."""

_N, _L = 20, 40
"""Bit positions of combined sums: the pairs of 16 GPUs weigh less than 2^20 together."""


def weight(kind: str) -> int:
    """The weight of one link kind; an unknown kind weighs nothing."""
    if kind.startswith("NV") and is_number(kind[2:]):
        return NVLINK_WEIGHT * min(int(kind[2:]), MOST_NVLINKS)
    return PCIE_WEIGHTS.get(kind, UNKNOWN_WEIGHT)


class Topology:
    """The links and NUMA nodes of one node's GPUs, by GPU index."""

    def __init__(self, links: Sequence[Link], numa: Sequence[tuple[int, int]] = ()) -> None:
        """`numa`: (GPU index, NUMA node), a negative node where it is unknown."""
        self._weights: dict[tuple[int, int], int] = {}
        for a, b, kind in links:
            pair = (a, b) if a < b else (b, a)
            self._weights[pair] = max(self._weights.get(pair, UNKNOWN_WEIGHT), weight(kind))
        self._numa = {index: node for index, node in numa if node >= 0}
        gpus = {index for index, _ in numa}.union(*self._weights)
        self.indexes = tuple(sorted(index for index in gpus if mig.gpu_of(index) is None))
        """Those of GPUs; MIG instances have no links."""
        self._last_losses: tuple[frozenset[int], dict[int, int]] = frozenset(), {}
        """The last idle GPUs, and their losses."""

    def pair(self, a: int, b: int) -> int:
        """The weight between two GPUs."""
        return self._weights.get((a, b) if a < b else (b, a), UNKNOWN_WEIGHT)

    def near(self, a: int, b: int) -> bool:
        """Whether both are known to be on one NUMA node."""
        return a in self._numa and self._numa[a] == self._numa.get(b)

    def local(self, indexes: Sequence[int]) -> bool:
        """Whether these GPUs are on one NUMA node; GPUs without a known one share a further node."""
        return len({self._numa.get(index) for index in indexes}) <= 1

    def value(self, a: int, b: int) -> int:
        """The pair's part of L and N, as one number."""
        return self.pair(a, b) << _L | self.near(a, b)

    def nvlinked(self, indexes: Sequence[int]) -> bool:
        """Whether every two of these GPUs have an NVLink between them."""
        return all(self.pair(a, b) >= NVLINK_WEIGHT for a, b in combinations(indexes, 2))

    def losses(self, idle: tuple[int, ...]) -> Mapping[int, int]:
        """By index of an idle GPU, the loss of L, then of N, of the others if it is allocated; only for comparison."""
        return _losses(self, idle)

    def lost(self, idle: tuple[int, ...]) -> dict[int, int]:
        """The same without the cache; updates the last result if few GPUs differ."""
        present, (before, last) = frozenset(idle), self._last_losses
        if 4 * len(present ^ before) < len(present):
            losses = {a: last[a] for a in idle if a in before}
            for b in before - present:
                for a in losses:
                    losses[a] -= self.value(a, b)
            for b in present - before:
                added = {a: self.value(a, b) for a in losses}
                for a, value in added.items():
                    losses[a] += value
                losses[b] = sum(added.values())
        else:
            losses = self._lost(idle)
        self._last_losses = present, losses
        return losses

    def _lost(self, idle: tuple[int, ...]) -> dict[int, int]:
        present, near = set(idle), Counter(self._numa[index] for index in idle if index in self._numa)
        losses = {index: near[self._numa[index]] - 1 if index in self._numa else 0 for index in idle}
        for (a, b), pair in self._weights.items():
            if a in present and b in present:
                losses[a] += pair << _L
                losses[b] += pair << _L
        return losses

    def allows(self, indexes: Sequence[int], wish: Wish, local: bool = False) -> bool:
        """Whether these GPUs satisfy `nvlink` (an NVLink between every two) and `local` (one NUMA node)."""
        return (wish != "nvlink" or self.nvlinked(indexes)) and (not local or self.local(indexes))

    def worth(self, chosen: Sequence[int], idle: Sequence[int], wish: Wish = "prefer") -> int:
        """What `best` compares of a set: a better set has a greater number."""
        left = [index for index in idle if index not in chosen]
        own = 0 if wish == "any" else sum(starmap(self.value, combinations(chosen, 2)))
        return (own << _N) + sum(starmap(self.value, combinations(left, 2)))

    def best(
        self,
        candidates: tuple[int, ...],
        k: int,
        idle: tuple[int, ...] = (),
        wish: Wish = "prefer",
        local: bool = False,
    ) -> tuple[int, ...] | None:
        """The best allowed set of `k` candidates, in their order; None if there is none. `idle` is F.

        For `any`, L(S) and N(S) do not count. On a node with more than EXACT GPUs the set may be nearly the best, and a
        set that is hard to find may be missed.
        """
        if k > len(candidates):
            return None
        if self._weights or self._numa:
            return _best(self, candidates, k, idle, wish, local)
        return candidates[:k] if self.allows(candidates[:k], wish, local) else None


@lru_cache(maxsize=1024)
def topology(links: tuple[Link, ...], numa: tuple[tuple[int, int], ...] = ()) -> Topology:
    """The topology of these links and NUMA nodes, one object for all equal nodes."""
    return Topology(links, numa)


@lru_cache(maxsize=REMEMBERED)
def _losses(links: Topology, idle: tuple[int, ...]) -> Mapping[int, int]:
    return links.lost(idle)


@lru_cache(maxsize=REMEMBERED)
def _best(
    links: Topology, candidates: tuple[int, ...], k: int, idle: tuple[int, ...], wish: Wish, local: bool
) -> tuple[int, ...] | None:
    exact = len(links.indexes) <= EXACT and set(links.indexes).issuperset((*candidates, *idle))
    return (_exactly if exact else _greedily)(links, candidates, k, idle, wish, local)


# -- exact: sets are bit masks, and the sums of all sets are computed at once


def _exactly(
    links: Topology, candidates: tuple[int, ...], k: int, idle: tuple[int, ...], wish: Wish, local: bool
) -> tuple[int, ...] | None:
    sums, apart, abroad = _tables(links)
    bits = {index: 1 << place for place, index in enumerate(links.indexes)}
    free = sum(bits[a] for a in idle)
    sets = _placed(_sets(len(candidates), k), [bits[a] for a in candidates])
    if wish == "nvlink":
        sets = [chosen for chosen in sets if not apart[chosen]]
    if local:
        sets = [chosen for chosen in sets if not abroad[chosen]]
    if not sets:
        return None
    if wish == "any":
        values = [sums[free & ~chosen] for chosen in sets]
    else:
        values = [(sums[chosen] << _N) + sums[free & ~chosen] for chosen in sets]
    best = sets[values.index(max(values))]
    return tuple(a for a in candidates if best & bits[a])


@lru_cache(maxsize=TABLES)
def _tables(links: Topology) -> tuple[array[int], bytes, bytes]:
    """By bit mask of a set: L and N as one number, the pairs without NVLink, the pairs on two NUMA nodes."""

    def pairs(value: Callable[[int, int], int]) -> list[list[int]]:
        return [[value(a, b) for b in links.indexes[:i]] for i, a in enumerate(links.indexes)]

    apart = pairs(lambda a, b: not links.nvlinked((a, b)))
    abroad = pairs(lambda a, b: not links.local((a, b)))
    return array("Q", _sums(pairs(links.value), 8)), _sums(apart, 1), _sums(abroad, 1)


def _sums(pairs: Sequence[Sequence[int]], size: int) -> bytes:
    """The sums over the pairs of every set of positions, of `size` bytes each, in the order of the bit masks.

    `pairs` has for each position its pairs with the positions before it. One long integer holds the sums of all sets
    without a position; one addition makes the sums of the sets with it.
    """
    sums, ones = 0, [1]
    for i, row in enumerate(pairs):
        added = 0
        for j, pair in enumerate(row):
            added |= (added + pair * ones[j]) << (8 * size << j)
        sums |= (sums + added) << (8 * size << i)
        ones.append(ones[i] | ones[i] << (8 * size << i))
    return sums.to_bytes(size << len(pairs), "little")


@cache
def _sets(n: int, k: int) -> array[int]:
    """The sets of k of n positions as bit masks, in the order of the positions."""
    if not 0 < k <= n:
        return array("H", [0] * (k == 0))
    return array("H", [*(1 | rest << 1 for rest in _sets(n - 1, k - 1)), *(rest << 1 for rest in _sets(n - 1, k))])


def _placed(sets: Sequence[int], bits: Sequence[int]) -> list[int]:
    """The sets of positions as masks of these bits."""
    low, high = [0], [0]
    for bit in bits[:8]:
        low += [chosen | bit for chosen in low]
    for bit in bits[8:]:
        high += [chosen | bit for chosen in high]
    return [low[chosen & 255] | high[chosen >> 8] for chosen in sets]


# -- greedy


def _greedily(
    links: Topology, candidates: tuple[int, ...], k: int, idle: tuple[int, ...], wish: Wish, local: bool
) -> tuple[int, ...] | None:
    losses = links.losses(idle)
    best, most = None, (0, 0)
    for first in candidates[: max(1, min(EXACT, GREED // (k * len(candidates))))]:
        rest = [a for a in candidates if a != first and links.allows((a, first), wish, local)]
        chosen, worth = _grown(links, first, rest, k, losses, wish)
        if len(chosen) == k and (best is None or worth > most):
            best, most = chosen, worth
    return None if best is None else tuple(a for a in candidates if a in best)


def _grown(
    links: Topology, first: int, candidates: Sequence[int], k: int, losses: Mapping[int, int], wish: Wish
) -> tuple[set[int], tuple[int, int]]:
    """A set that starts with one GPU and takes the best GPU until it has k or none is allowed; and its worth.

    The worth is its part of L(S) and N(S), then of L(F \\ S) and N(F \\ S).
    """
    gains = {a: (0, -losses.get(a, 0)) for a in candidates}
    chosen, last, worth = {first}, first, (0, -losses.get(first, 0))
    while len(chosen) < k:
        for a, (joined, left) in list(gains.items()):
            value = links.value(a, last)
            if wish == "nvlink" and not links.nvlinked((a, last)):
                del gains[a]
            else:
                gains[a] = joined + value * (wish != "any"), left + value * (a in losses and last in losses)
        if not gains:
            break
        last = max(gains, key=gains.__getitem__)
        joined, left = gains.pop(last)
        chosen.add(last)
        worth = worth[0] + joined, worth[1] + left
    return chosen, worth

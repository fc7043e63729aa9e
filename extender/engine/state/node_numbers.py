"""Numbers of nodes: bits in sets of nodes, given to other nodes once those are gone and forgotten in all sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable

RENUMBERED = 1024
"""Nodes that are gone, from which on their numbers are given to others."""


class NodeNumbers:
    """Gives each node a number that no other node has, and by which nobody remembers another."""

    def __init__(self, forget: Callable[[int], None]) -> None:
        """`forget` is told of numbers (bits) before they are given to others."""
        self._forget = forget
        self._count = 0
        """Numbers that were ever given."""
        self._gone: list[int] = []
        """Those of nodes that are gone."""
        self._unused: list[int] = []
        """Those of them by which nobody remembers a node any more."""

    def take(self) -> int:
        """One for a node that comes."""
        if len(self._gone) >= RENUMBERED:
            self._forget(self.bits(self._gone))
            self._unused += self._gone
            self._gone = []
        if self._unused:
            return self._unused.pop()
        self._count += 1
        return self._count - 1

    def give_back(self, number: int) -> None:
        """The node that has it is gone."""
        self._gone.append(number)

    def bits(self, numbers: Iterable[int]) -> int:
        """These as a set."""
        found = bytearray(self._count // 8 + 1)
        for number in numbers:
            found[number >> 3] |= 1 << (number & 7)
        return int.from_bytes(found, "little")

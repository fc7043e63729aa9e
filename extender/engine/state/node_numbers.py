"""Numbers of nodes, used as bits in sets of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

RENUMBERED = 1024
"""Numbers of deleted nodes that are collected before they are reused."""


class NodeNumbers:
    """Gives each node a unique number. A deleted node's number is reused once no set of nodes has it."""

    def __init__(self, forget: Callable[[int], None]) -> None:
        """`forget` removes numbers (as bits) from all sets of nodes, before they are reused."""
        self._forget = forget
        self._count = 0
        """Numbers ever given."""
        self._gone: list[int] = []
        """Numbers of deleted nodes, perhaps still in sets."""
        self._unused: list[int] = []
        """Numbers that are in no set."""

    def take(self) -> int:
        if len(self._gone) >= RENUMBERED:
            self._forget(self.bits(self._gone))
            self._unused += self._gone
            self._gone = []
        if self._unused:
            return self._unused.pop()
        self._count += 1
        return self._count - 1

    def give_back(self, number: int) -> None:
        self._gone.append(number)

    def bits(self, numbers: Iterable[int]) -> int:
        """These numbers as a set of bits."""
        mask = bytearray(self._count // 8 + 1)
        for number in numbers:
            mask[number >> 3] |= 1 << (number & 7)
        return int.from_bytes(mask, "little")

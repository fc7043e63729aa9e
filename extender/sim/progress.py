"""How far a replay is. It tells whoever asks; it prints nothing."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called again and again: how many are done, and how many there are."""


def silent(_done: int, _of: int) -> None:
    """For replays that nobody watches."""

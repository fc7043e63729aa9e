"""How deep a text is nested: parsers take time with the square of that, and some end where it is too much."""

from __future__ import annotations

import re

_BRACKETS = re.compile(r"[\[\]{}]")


def depth(text: str) -> int:
    """The most brackets of JSON or YAML that are open at a time; those in strings count too."""
    deepest = now = 0
    for bracket in _BRACKETS.findall(text):
        now += 1 if bracket in "[{" else -1
        deepest = max(deepest, now)
    return deepest

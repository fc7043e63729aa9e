"""Text of others as it may be shown: a terminal acts on control characters, and some others hide or turn what follows.

Control characters (Cc), format characters (Cf, among them those of writing direction), surrogates and private ones
become U+FFFD. Line breaks too: what others write is one line.
"""

from __future__ import annotations

import json
import re

HIDDEN = "\ufffd"
BRIEF = 1000
"""Characters of others that one sentence repeats."""
_ESCAPE = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.", re.DOTALL)
"""Of JSON; a character beyond 16 bits is written as two."""
_BREAKS = ("\\b", "\\f", "\\n", "\\r", "\\t")
_STRANGE = re.compile("[^\x20-\x7e\n\r\t]")


def printable(text: str) -> str:
    """The text with nothing in it that does not print."""
    return text if text.isprintable() else "".join(map(_shown, text))


def brief(text: str, most: int = BRIEF) -> str:
    """The text, cut to so many characters."""
    return text if len(text) <= most else text[:most] + "…"


def printable_json(data: bytes) -> bytes:
    """A JSON text whose strings are printable; all else stays as it is."""
    text = _ESCAPE.sub(_unescaped, data.decode(errors="replace"))
    return _STRANGE.sub(lambda found: _shown(found[0]), text).encode()


def _shown(sign: str) -> str:
    return sign if sign.isprintable() else HIDDEN


def _unescaped(escape: re.Match[str]) -> str:
    text = escape[0]
    if len(text) == 2:
        return HIDDEN if text in _BREAKS else text
    try:
        return text if json.loads(f'"{text}"').isprintable() else HIDDEN
    except ValueError:
        return text  # no JSON

"""User text made safe to show: terminals act on control characters, and some characters hide or reverse text.

Control characters (Cc), format characters (Cf, with writing direction), surrogates and private characters become
U+FFFD. So do line breaks, because user text is one line.
"""

from __future__ import annotations

import json
import re

HIDDEN = "\ufffd"
BRIEF = 1000
"""Characters of user text that one sentence repeats."""
_ESCAPE = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.", re.DOTALL)
"""JSON escapes; a character beyond 16 bits has two."""
_BREAKS = ("\\b", "\\f", "\\n", "\\r", "\\t")
_STRANGE = re.compile("[^\x20-\x7e\n\r\t]")


def printable(text: str) -> str:
    """The text with U+FFFD for each character that does not print."""
    return text if text.isprintable() else "".join(map(_shown, text))


def brief(text: str, most: int = BRIEF) -> str:
    """The text, cut to `most` characters."""
    return text if len(text) <= most else text[:most] + "…"


def printable_json(data: bytes) -> bytes:
    """The JSON text with printable strings, otherwise unchanged."""
    text = _ESCAPE.sub(_unescaped, data.decode(errors="replace"))
    return _STRANGE.sub(lambda match: _shown(match[0]), text).encode()


def _shown(character: str) -> str:
    return character if character.isprintable() else HIDDEN


def _unescaped(escape: re.Match[str]) -> str:
    text = escape[0]
    if len(text) == 2:
        return HIDDEN if text in _BREAKS else text
    try:
        return text if json.loads(f'"{text}"').isprintable() else HIDDEN
    except ValueError:
        return text  # not JSON

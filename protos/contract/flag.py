"""How people give a setting: its flag, its environment variable, and its line in the docs, declared with its field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class Flag(msgspec.Struct, frozen=True):
    """Annotates a field of a settings struct. The flag is the field's name without `_s`, the unit of seconds.

    The environment variable is GANGSHARE_ and that name in upper case.
    """

    help: str
    """One sentence. `  [default: …]` at its end replaces the default that is shown."""
    read: Callable[[str], Any] | None = None
    """Reads the text; raises ValueError that says what was expected. None: the field's type says how."""
    metavar: str = ""
    default: str = ""
    """The default as people write it, where `read` is given."""
    name: str = ""
    """The flag's name where it is not the field's, as Python writes it."""
    variables: tuple[str, ...] = ()
    """More environment variables that are read."""


def listed(text: str) -> tuple[str, ...]:
    """Values that commas divide."""
    return tuple(value.strip() for value in text.split(",") if value.strip())

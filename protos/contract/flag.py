"""The user interface of a setting: flag, environment variable and documentation, declared with its field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class Flag(msgspec.Struct, frozen=True):
    """Annotation of a field of a settings struct. The flag is the field's name without `_s`, the unit of seconds.

    The environment variable is GANGSHARE_ and that name in upper case.
    """

    help: str
    """One or two sentences; `  [default: …]` at the end replaces the shown default."""
    read: Callable[[str], Any] | None = None
    """Parses the text; raises ValueError with what was expected. None: by the field's type."""
    metavar: str = ""
    default: str = ""
    """The default as users write it, if `read` is given."""
    name: str = ""
    """The flag's name as an identifier, if it differs from the field's."""
    variables: tuple[str, ...] = ()
    """Further environment variables."""


def option(field: str) -> str:
    """The flag of a field as users write it, for messages."""
    return "--" + field.removesuffix("_s").replace("_", "-")


def listed(text: str) -> tuple[str, ...]:
    """The values of a comma-separated list."""
    return tuple(value.strip() for value in text.split(",") if value.strip())

"""Strict, versioned JSON annotations: absent, malformed and newer are told apart."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from protos.contract.printable import brief

T = TypeVar("T")
BAD_JSON = (ValueError, RecursionError)
"""What msgspec raises over input, deep nesting included."""
VERSION = 1
SHOWN = 120
"""Characters of a bad value that an error repeats."""


class ContractError(ValueError):
    """A value on the wire that is not what the contract says: names key, value and what was expected."""

    def __init__(self, key: str, value: str, expected: str) -> None:
        super().__init__(f"{key} is {brief(value, SHOWN)!r}: expected {brief(expected, 2 * SHOWN)}")
        self.key, self.value, self.expected = key, value, expected


class MalformedError(ContractError):
    """The value cannot be read."""


class NewerVersionError(ContractError):
    """The value was written by a newer version; it is refused, never guessed at."""


class _Versioned(msgspec.Struct):
    v: int


_version = msgspec.json.Decoder(_Versioned)


def encode(value: Any) -> str:
    """The compact JSON text of a contract struct; fields that are None are left out."""
    fields = msgspec.to_builtins(value)
    return msgspec.json.encode({key: field for key, field in fields.items() if field is not None}).decode()


def decode(key: str, text: str | None, decoder: msgspec.json.Decoder[T]) -> T | None:
    """The value of annotation `key`, or None where it is absent; raises MalformedError or NewerVersionError."""
    if text is None:
        return None
    try:
        version = _version.decode(text).v
    except BAD_JSON as error:
        raise MalformedError(key, text, f'a JSON object with "v": {VERSION} ({error})') from error
    if version > VERSION:
        raise NewerVersionError(key, text, f"version {VERSION} or older")
    if version < 1:
        raise MalformedError(key, text, f"a version from 1 to {VERSION}")
    try:
        return decoder.decode(text)
    except BAD_JSON as error:
        raise MalformedError(key, text, str(error)) from error

"""Strict, versioned JSON annotations: absent, malformed and newer values are distinct cases."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from protos.contract.printable import brief

T = TypeVar("T")
BAD_JSON = (ValueError, RecursionError)
"""The errors of msgspec for bad input, including too deep nesting."""
VERSION = 1
SHOWN = 120
"""Characters of a bad value that an error message repeats."""


class ContractError(ValueError):
    """A value on the wire breaks the contract; the message has the key, the value and what was expected."""

    def __init__(self, key: str, value: str, expected: str) -> None:
        super().__init__(f"{key} is {brief(value, SHOWN)!r}: expected {brief(expected, 2 * SHOWN)}")


class MalformedError(ContractError):
    """The value cannot be read."""


class NewerVersionError(ContractError):
    """A newer version has written the value."""


class _Versioned(msgspec.Struct):
    v: int


_version = msgspec.json.Decoder(_Versioned)


class Annotation(Generic[T]):
    """The annotation `key`, whose value is the JSON of a contract struct."""

    def __init__(self, key: str, kind: type[T]) -> None:
        self._key, self._decoder = key, msgspec.json.Decoder(kind)

    def encode(self, value: T) -> str:
        """The compact JSON text; fields that are None are left out."""
        fields = msgspec.to_builtins(value)
        return msgspec.json.encode({key: field for key, field in fields.items() if field is not None}).decode()

    def decode(self, text: str | None) -> T | None:
        """The value, None if the annotation is absent; raises MalformedError or NewerVersionError."""
        if text is None:
            return None
        try:
            version = _version.decode(text).v
        except BAD_JSON as error:
            raise MalformedError(self._key, text, f'a JSON object with "v": {VERSION} ({error})') from error
        if version > VERSION:
            raise NewerVersionError(self._key, text, f"version {VERSION} or older")
        if version < 1:
            raise MalformedError(self._key, text, f"a version from 1 to {VERSION}")
        try:
            return self._decoder.decode(text)
        except BAD_JSON as error:
            raise MalformedError(self._key, text, str(error)) from error

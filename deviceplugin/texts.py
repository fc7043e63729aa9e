"""Files that an administrator or a runtime writes for the plugin: of bounded size, and for YAML of bounded depth."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec
from yaml import CSafeLoader, YAMLError, load

from protos.contract.bounds import FILE, FILE_DEPTH, Bound, depth

T = TypeVar("T")
Stamp = tuple[int, int, int]
"""Differs after a file was changed or replaced."""


class TextError(ValueError):
    """The file exists and cannot be used."""


class _Loader(CSafeLoader):
    def flatten_mapping(self, _: Any) -> None:
        """Merge keys (`<<`) are refused: nested, they multiply."""


def stamp(path: Path) -> Stamp:
    """The file's stamp; raises OSError."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def data(path: Path, bound: Bound = FILE) -> bytes:
    """The bytes of a file; raises TextError for a larger file than `bound`, and OSError."""
    with path.open("rb") as file:
        found = file.read(bound.most + 1)
    if len(found) > bound.most:
        raise TextError(bound.exceeded(path.stat().st_size))
    return found


def read(path: Path) -> str:
    """The text of a file; raises TextError and OSError."""
    try:
        return data(path).decode()
    except UnicodeDecodeError as error:
        raise TextError(f"expected text in UTF-8 ({error})") from error


def convert(text: str, into: type[T]) -> T:
    """The value of a YAML text, as this type; raises TextError."""
    if depth(text) > FILE_DEPTH.most:
        raise TextError(FILE_DEPTH.exceeded(depth(text)))
    try:
        return msgspec.convert(load(text, Loader=_Loader), into)
    except (YAMLError, ValueError, RecursionError) as error:
        raise TextError(str(error)) from error

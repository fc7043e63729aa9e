"""Files that others write for us: of bounded size, for YAML of bounded depth, and stamped to notice a replacement."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from yaml import CSafeLoader, YAMLError, load

from protos.contract.bounds import FILE, FILE_DEPTH, Bound, depth
from protos.contract.printable import brief

T = TypeVar("T")
Stamp = tuple[int, int, int]
"""Differs after a file was changed or replaced."""


class FileError(ValueError):
    """A file that cannot be used: the message has the file, the place in it and what was expected."""

    def __init__(self, sentence: str) -> None:
        super().__init__(brief(sentence))


class _Loader(CSafeLoader):
    def flatten_mapping(self, _: Any) -> None:
        """Merge keys (`<<`) are refused: nested, they multiply."""


def stamp(path: Path) -> Stamp | None:
    """The file's stamp, None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns, status.st_size


def read(path: Path, parse: Callable[[bytes], T], bound: Bound = FILE) -> T:
    """What `parse` makes of the content of a file; raises FileError with the path, also for what `parse` refuses."""
    try:
        with path.open("rb") as file:
            content = file.read(bound.most + 1)
        if len(content) > bound.most:
            raise FileError(bound.exceeded(path.stat().st_size))
        return parse(content)
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from error
    except FileError as error:
        raise FileError(f"{path}: {error}") from error


def text(content: bytes) -> str:
    """The JSON or YAML text of a file, before its parser takes time; raises FileError."""
    try:
        decoded = content.decode()
    except UnicodeDecodeError as error:
        raise FileError(f"expected text in UTF-8 ({error})") from error
    if depth(decoded) > FILE_DEPTH.most:
        raise FileError(FILE_DEPTH.exceeded(depth(decoded)))
    return decoded


def convert(content: bytes, into: type[T]) -> T:
    """The value of a YAML text, as this type; raises FileError."""
    try:
        return msgspec.convert(load(text(content), Loader=_Loader), into)
    except (YAMLError, ValueError, RecursionError) as error:
        raise FileError(str(error)) from error

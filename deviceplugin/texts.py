"""Files that an administrator writes for the plugin: text in UTF-8, YAML, of a bounded length and depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaml import CSafeLoader, YAMLError, load

from protos.contract.bounds import FILE, FILE_DEPTH, depth


class TextError(ValueError):
    """The file is there and cannot be read."""


class _Loader(CSafeLoader):
    def flatten_mapping(self, _: Any) -> None:
        """Merge keys (`<<`) are refused: nested, they multiply."""


def read(path: Path) -> str:
    """The text of a file; raises TextError and OSError."""
    with path.open("rb") as file:
        data = file.read(FILE.most + 1)
    if len(data) > FILE.most:
        raise TextError(FILE.exceeded(path.stat().st_size))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise TextError(f"expected text in UTF-8 ({error})") from error


def yaml(text: str) -> Any:
    """What a YAML text says; raises TextError."""
    if depth(text) > FILE_DEPTH.most:
        raise TextError(FILE_DEPTH.exceeded(depth(text)))
    try:
        return load(text, Loader=_Loader)
    except (YAMLError, ValueError, RecursionError) as error:
        raise TextError(str(error)) from error

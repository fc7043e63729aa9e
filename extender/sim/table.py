"""Reads CSV lists, plain or gzipped. Errors name the file and line."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

MOST = 10**12
"""The largest amount that a list may contain."""

Made = TypeVar("Made")


class TraceError(ValueError):
    """A list cannot be replayed; names file, line, value and what was expected."""


class Row:
    """One line of a list."""

    def __init__(self, path: Path, line: int, cells: Mapping[str, str]) -> None:
        self._where, self._cells = f"{path}, line {line}", cells

    def wrong(self, column: str, expected: str) -> TraceError:
        return TraceError(f"{self._where}: {column} is {self._cells[column][:40]!r}: expected {expected}")

    def text(self, column: str) -> str:
        return self._cells[column]

    def number(self, column: str, least: int = 0, most: int = MOST) -> int:
        text = self._cells[column]
        if text.isascii() and text.isdecimal() and len(text) <= len(str(MOST)) and least <= int(text) <= most:
            return int(text)
        expected = f"{least}" if least == most else f"a whole number from {least} to {most}"
        raise self.wrong(column, expected)

    def seconds(self, column: str) -> float:
        """A time or a duration."""
        try:
            value = float(self._cells[column])
        except ValueError:
            value = math.nan
        if 0 <= value <= MOST:
            return value
        raise self.wrong(column, "seconds, 0 or more")


def read(path: Path, columns: Sequence[str], make: Callable[[Row], Made]) -> list[Made]:
    """The values that `make` returns for the rows below the header. The first of `columns` has distinct names."""
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            made = [make(row) for row in _rows(path, csv.reader(file, strict=True), columns)]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"cannot read {path}: {error}: expected a whole gzip file") from error
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: byte {error.object[error.start]:#04x}: expected text in UTF-8") from error
    if not made:
        raise TraceError(f"{path}: 0 rows below the header: expected at least one")
    return made


def _rows(path: Path, lines: Iterator[list[str]], columns: Sequence[str]) -> Iterator[Row]:
    number = 0
    try:
        header = next(lines, [])
        if missing := [column for column in columns if column not in header]:
            found = ",".join(header)[:80]
            raise TraceError(f"{path}, line 1: the columns are {found!r}: expected {', '.join(missing)} among them")
        seen: dict[str, int] = {}
        number = 1
        for number, cells in enumerate(lines, 2):
            if not cells:
                continue
            if len(cells) != len(header):
                raise TraceError(
                    f"{path}, line {number}: {len(cells)} values: expected {len(header)}, as in the header"
                )
            row = Row(path, number, dict(zip(header, cells, strict=True)))
            name = row.text(columns[0])
            if not name or name in seen:
                other = f" other than that of line {seen[name]}" if name else ""
                raise row.wrong(columns[0], f"a name{other}")
            seen[name] = number
            yield row
    except csv.Error as error:
        raise TraceError(f"{path}, line {number + 1}: {error}: expected values divided by commas") from error

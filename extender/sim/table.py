"""Reads CSV lists, plain or gzipped. Anybody may have written them: errors name the file, line, column and value."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO, TypeVar

MOST = 10**12
"""The largest amount that a list may contain."""
MOST_ROWS = 1_000_000
MOST_COLUMNS = 256
MOST_LINE = 64 << 10
"""Characters of a line."""
MOST_NAME = 253
"""Characters of the name in the first column."""

Made = TypeVar("Made")


class TraceError(ValueError):
    """A list cannot be replayed; names file, line, value and what was expected."""


class Row:
    """One line of a list."""

    def __init__(self, path: Path, line: int, cells: Mapping[str, str]) -> None:
        self.where = f"{path}, line {line}"
        self._cells = cells

    def wrong(self, column: str, expected: str) -> TraceError:
        return TraceError(f"{self.where}: {column} is {self._cells[column][:40]!r}: expected {expected}")

    def text(self, column: str) -> str:
        """The value, empty if the list has no such column."""
        return self._cells.get(column, "")

    def name(self, column: str, taken: Mapping[str, int]) -> str:
        """A name that no earlier row has; `taken` has their lines."""
        text = self._cells[column]
        if text in taken:
            raise self.wrong(column, f"a name other than that of line {taken[text]}")
        if not text or len(text) > MOST_NAME or not text.isprintable():
            raise self.wrong(column, f"a name of at most {MOST_NAME} characters that print")
        return text

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
            made = [make(row) for row in _rows(path, _lines(path, file), columns)]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"cannot read {path}: {error}: expected a whole gzip file") from error
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: byte {error.object[error.start]:#04x}: expected text in UTF-8") from error
    if not made:
        raise TraceError(f"{path}: 0 rows below the header: expected at least one")
    return made


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """The lines of the file; a line without an end is not read whole."""
    for number, line in enumerate(iter(lambda: file.readline(MOST_LINE + 1), ""), 1):
        if len(line) > MOST_LINE:
            raise TraceError(f"{path}, line {number}: more than {MOST_LINE} characters: expected at most {MOST_LINE}")
        yield line


def _rows(path: Path, lines: Iterator[str], columns: Sequence[str]) -> Iterator[Row]:
    reader = csv.reader(lines, strict=True)
    taken: dict[str, int] = {}
    try:
        header = _header(path, next(reader, []), columns)
        for cells in filter(None, reader):
            where = f"{path}, line {reader.line_num}"
            if len(cells) != len(header):
                raise TraceError(f"{where}: {len(cells)} values: expected {len(header)}, as in the header")
            if len(taken) == MOST_ROWS:
                raise TraceError(f"{where}: more than {MOST_ROWS} rows: expected at most {MOST_ROWS}")
            row = Row(path, reader.line_num, dict(zip(header, cells, strict=True)))
            taken[row.name(columns[0], taken)] = reader.line_num
            yield row
    except csv.Error as error:
        raise TraceError(f"{path}, line {reader.line_num}: {error}: expected values divided by commas") from error


def _header(path: Path, header: Sequence[str], columns: Sequence[str]) -> Sequence[str]:
    """The names of the columns, in any order and with others between."""
    if missing := [column for column in columns if column not in header]:
        found = ",".join(header)[:80]
        raise TraceError(f"{path}, line 1: the columns are {found!r}: expected {', '.join(missing)} among them")
    if len(header) > MOST_COLUMNS:
        raise TraceError(f"{path}, line 1: {len(header)} columns: expected at most {MOST_COLUMNS}")
    if twice := next((column for column in columns if header.count(column) > 1), None):
        raise TraceError(f"{path}, line 1: {header.count(twice)} columns are named {twice!r}: expected one")
    return header

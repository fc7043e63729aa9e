"""The node and pod lists of the trace, read from CSV; what cannot be read is named with its file and line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

MILLI = 1000
"""Thousandths that make one GPU."""
MOST = 10**12
"""The largest amount that makes sense in a list."""
MOST_GPUS = 1024
"""GPUs of one node, or of one pod."""
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")

Made = TypeVar("Made", "Node", "Pod")


class TraceError(ValueError):
    """A list that cannot be replayed: file, line, value and what was expected."""


class Node(msgspec.Struct, frozen=True):
    """A node of the cluster."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


class Spec(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod asks. Pods of equal specs fit the same nodes."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    milli: int
    """Of each of its GPUs; less than 1000 only where it asks one, 0 where it asks none."""
    models: tuple[str, ...] = ()
    """GPU models that it accepts; empty: any."""

    @property
    def gpu_milli(self) -> int:
        """Of all its GPUs."""
        return self.gpus * self.milli


class Pod(msgspec.Struct, frozen=True):
    """A pod of the list."""

    name: str
    spec: Spec


def capacity(nodes: Sequence[Node]) -> int:
    """GPU milli of all nodes."""
    return sum(node.gpus for node in nodes) * MILLI


def read_nodes(path: Path) -> list[Node]:
    """The nodes of a list in its order; raises TraceError, also where none of them has a GPU."""
    nodes = _read(path, NODE_COLUMNS, _node)
    if not capacity(nodes):
        raise TraceError(f"{path}: 0 GPUs in all: expected a node with GPUs")
    return nodes


def read_pods(path: Path) -> list[Pod]:
    """The pods of a list in its order; raises TraceError, also where none of them asks for a GPU."""
    pods = _read(path, POD_COLUMNS, _pod)
    if not any(pod.spec.gpus for pod in pods):
        raise TraceError(f"{path}: no pod asks for a GPU: expected one that does")
    return pods


class _Row:
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


def _node(row: _Row) -> Node:
    gpus = row.number("gpu", most=MOST_GPUS)
    if gpus and not row.text("model"):
        raise row.wrong("model", "the GPU model of a node with GPUs")
    return Node(row.text("sn"), row.number("cpu_milli"), row.number("memory_mib"), gpus, row.text("model"))


def _pod(row: _Row) -> Pod:
    gpus = row.number("num_gpu", most=MOST_GPUS)
    least = 0 if not gpus else 1 if gpus == 1 else MILLI
    milli = row.number("gpu_milli", least=least, most=MILLI if gpus else 0)
    models = tuple(row.text("gpu_spec").split("|")) if row.text("gpu_spec") else ()
    if not all(models):
        raise row.wrong("gpu_spec", "GPU models joined by |")
    return Pod(row.text("name"), Spec(row.number("cpu_milli"), row.number("memory_mib"), gpus, milli, models))


def _read(path: Path, columns: Sequence[str], make: Callable[[_Row], Made]) -> list[Made]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            made = [make(row) for row in _rows(path, csv.reader(file, strict=True), columns)]
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: byte {error.object[error.start]:#04x}: expected text in UTF-8") from error
    if not made:
        raise TraceError(f"{path}: 0 rows below the header: expected at least one")
    return made


def _rows(path: Path, lines: Iterator[list[str]], columns: Sequence[str]) -> Iterator[_Row]:
    """The rows below the header; names, which stand in the first of `columns`, are there and distinct."""
    header = _header(path, lines, columns)
    seen: dict[str, int] = {}
    number = 1
    try:
        for number, cells in enumerate(lines, 2):
            if not cells:
                continue
            if len(cells) != len(header):
                raise TraceError(
                    f"{path}, line {number}: {len(cells)} values: expected {len(header)}, as in the header"
                )
            row = _Row(path, number, dict(zip(header, cells, strict=True)))
            name = row.text(columns[0])
            if not name or name in seen:
                other = f" other than that of line {seen[name]}" if name else ""
                raise row.wrong(columns[0], f"a name{other}")
            seen[name] = number
            yield row
    except csv.Error as error:
        raise TraceError(f"{path}, line {number + 1}: {error}: expected values divided by commas") from error


def _header(path: Path, lines: Iterator[list[str]], columns: Sequence[str]) -> list[str]:
    try:
        header = next(lines, [])
    except csv.Error as error:
        raise TraceError(f"{path}, line 1: {error}: expected values divided by commas") from error
    if missing := [column for column in columns if column not in header]:
        found = ",".join(header)
        raise TraceError(f"{path}, line 1: the columns are {found[:80]!r}: expected {', '.join(missing)} among them")
    return header

"""Long lists as JSON, in pieces: other work runs between two of them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from extender.server.desk import Pieces

SLICE = 200
"""Objects that a page only counts or compares, between two pieces."""

K = TypeVar("K")
V = TypeVar("V")


def current(table: Mapping[K, V], keys: Iterable[K] | None = None) -> Iterator[V]:
    """The values of a table that changes meanwhile, in the order of `keys`; deleted ones are skipped."""
    for key in list(table) if keys is None else keys:
        value = table.get(key)
        if value is not None:
            yield value


def joined(items: Iterable[object]) -> Pieces:
    """The items of a list with commas between them, one in each piece. None makes an empty piece."""
    comma = b""
    for item in items:
        if item is None:
            yield b""
        else:
            yield comma + msgspec.json.encode(item)
            comma = b","


def json_object(fields: Mapping[str, Any], lists: Mapping[str, Iterable[object]]) -> Pieces:
    """An object with these fields, then these long lists."""
    start = msgspec.json.encode(fields)[:-1]
    for name, items in lists.items():
        yield start + b"," * (start != b"{") + msgspec.json.encode(name) + b":["
        yield from joined(items)
        start = b"]"
    yield start + b"}"

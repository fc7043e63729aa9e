"""Long lists as JSON, item by item: between two items others may have their turn."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from extender.server.desk import Pieces

T = TypeVar("T")


def items(keys: Iterable[T], of: Callable[[T], object]) -> Pieces:
    """What `of` tells of each key; what is gone meanwhile (None) is left out."""
    return joined(map(of, list(keys)))


def joined(told: Iterable[object]) -> Pieces:
    """A list's items by comma, without those that are None."""
    comma = b""
    for item in told:
        if item is None:
            yield b""
        else:
            yield comma + msgspec.json.encode(item)
            comma = b","


def with_lists(told: Mapping[str, Any], lists: Mapping[str, Iterable[object]]) -> Pieces:
    """An object that has long lists beside what is told of it."""
    yield msgspec.json.encode(told)[:-1]
    for name, members in lists.items():
        yield b"," + msgspec.json.encode(name) + b":["
        yield from joined(members)
        yield b"]"
    yield b"}"

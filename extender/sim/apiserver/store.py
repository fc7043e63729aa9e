"""Objects with one growing resourceVersion, and per resource a window of changes for watchers.

Stored objects are never modified; a write replaces the object. So readers may keep objects, a change holds the states
before and after it, and each object is encoded once for all watchers.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from functools import cached_property
from typing import NamedTuple

import msgspec

from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import Object, Resource

Key = tuple[str, str]  # namespace ("" when cluster-wide), name
_encode = msgspec.json.Encoder().encode


class Item:
    """A stored object with its JSON."""

    def __init__(self, key: Key, obj: Object, rv: int) -> None:
        self.key, self.obj, self.rv = key, obj, rv

    @cached_property
    def body(self) -> bytes:
        """The JSON without kind and apiVersion."""
        return _encode(self.obj)

    def raw(self, resource: Resource) -> bytes:
        """The JSON of the whole object."""
        return b'{"kind":"%b","apiVersion":"%b",%b' % (
            resource.kind.encode(),
            resource.api_version.encode(),
            self.body[1:],
        )


class Change(NamedTuple):
    """One write: the states after and before it (after a deletion: the last state)."""

    item: Item
    before: Item | None
    deleted: bool = False


class _Table:
    """The objects of one resource, and its window of changes."""

    def __init__(self) -> None:
        self.items: dict[Key, Item] = {}
        self.changes: list[Change] = []
        self.floor = 0  # resourceVersion of the last change that left the window
        self.changed = asyncio.Event()  # replaced by each change

    def wake(self) -> None:
        woken, self.changed = self.changed, asyncio.Event()
        woken.set()


class Store:
    """All objects of the cluster, with a window of ``history`` changes per resource."""

    def __init__(self, history: int = 20_000) -> None:
        self._history = history
        self._tables: dict[tuple[str, str], _Table] = {}
        self.rv = 1

    def _table(self, resource: Resource) -> _Table:
        return self._tables.setdefault((resource.group, resource.plural), _Table())

    def get(self, resource: Resource, key: Key) -> Item | None:
        return self._table(resource).items.get(key)

    def items(self, resource: Resource, namespace: str = "") -> list[Item]:
        """The objects of one namespace; of all if it is empty."""
        items = self._table(resource).items.values()
        return [i for i in items if i.key[0] == namespace] if namespace else list(items)

    def put(self, resource: Resource, key: Key, obj: Object) -> Item:
        """Store ``obj`` under the next resourceVersion; no other object may share its metadata dict."""
        table = self._table(resource)
        before = table.items.get(key)
        item = self._next(key, obj)
        table.items[key] = item
        self._record(table, Change(item, before))
        return item

    def remove(self, resource: Resource, key: Key) -> Item:
        """Remove the object; its last state has the resourceVersion of the removal."""
        table = self._table(resource)
        before = table.items.pop(key)
        item = self._next(key, {**before.obj, "metadata": dict(before.obj["metadata"])})
        self._record(table, Change(item, before, deleted=True))
        return item

    def _next(self, key: Key, obj: Object) -> Item:
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        return Item(key, obj, self.rv)

    def _record(self, table: _Table, change: Change) -> None:
        table.changes.append(change)
        if len(table.changes) > 2 * self._history:
            table.floor = table.changes[-self._history - 1].item.rv
            del table.changes[: -self._history]
        table.wake()

    def wake(self, resource: Resource) -> None:
        """Wake all readers that wait for a change of the resource, without a change."""
        self._table(resource).wake()

    def watch(self, resource: Resource, rv: int) -> Cursor:
        """A cursor on the changes after ``rv``."""
        return Cursor(self._table(resource), rv)


class Cursor:
    """A reader of the changes of one resource after a resourceVersion."""

    def __init__(self, table: _Table, rv: int) -> None:
        self._table, self._rv = table, rv

    def read(self) -> list[Change]:
        """The changes since the last read; raises ApiError 410 if some have left the window."""
        table = self._table
        if self._rv < table.floor:
            raise errors.expired(f"too old resource version: {self._rv} ({table.floor})")
        found = table.changes[bisect_right(table.changes, self._rv, key=lambda change: change.item.rv) :]
        if found:
            self._rv = found[-1].item.rv
        return found

    async def next(self, timeout: float | None = None) -> list[Change]:
        """Wait for changes and read them; return an empty list after ``timeout`` seconds."""
        if found := self.read():
            return found
        try:
            async with asyncio.timeout(timeout):
                await self._table.changed.wait()
        except TimeoutError:
            return []
        return self.read()

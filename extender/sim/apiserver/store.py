"""Objects with one growing resourceVersion, and per resource a window of changes for watchers.

Stored objects are never modified; a write replaces the object. So readers may keep objects, a change holds the states
before and after it, and each object is encoded once for all watchers.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import Literal, NamedTuple

import msgspec

from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import Object, Resource

Key = tuple[str, str]  # namespace ("" when cluster-wide), name
ChangeKind = Literal["ADDED", "MODIFIED", "DELETED"]
_encode = msgspec.json.Encoder().encode


class Item:
    """A stored object with its JSON."""

    __slots__ = ("_body", "key", "obj", "rv")

    def __init__(self, key: Key, obj: Object, rv: int) -> None:
        self.key, self.obj, self.rv = key, obj, rv
        self._body: bytes | None = None

    @property
    def body(self) -> bytes:
        """The JSON without kind and apiVersion."""
        if self._body is None:
            self._body = _encode(self.obj)
        return self._body

    def raw(self, resource: Resource) -> bytes:
        """The JSON of the whole object."""
        return b'{"kind":"%b","apiVersion":"%b",%b' % (
            resource.kind.encode(),
            resource.api_version.encode(),
            self.body[1:],
        )


class Change(NamedTuple):
    """One write: the states after and before it (after a deletion: the last state)."""

    rv: int
    kind: ChangeKind
    item: Item
    before: Item | None


class _Table:
    """The objects of one resource, and its window of changes."""

    def __init__(self) -> None:
        self.items: dict[Key, Item] = {}
        self.changes: list[Change] = []
        self.dropped = 0  # changes that left the window: absolute index of changes[0]
        self.floor = 0  # resourceVersion of the last of them
        self.waiters: list[asyncio.Future[None]] = []

    def drop(self, count: int) -> None:
        if count > 0:
            self.floor = self.changes[count - 1].rv
            self.dropped += count
            del self.changes[:count]

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


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
        self._record(table, Change(item.rv, "MODIFIED" if before else "ADDED", item, before))
        return item

    def remove(self, resource: Resource, key: Key) -> Item:
        """Remove the object; its last state has the resourceVersion of the removal."""
        table = self._table(resource)
        before = table.items.pop(key)
        item = self._next(key, {**before.obj, "metadata": dict(before.obj["metadata"])})
        self._record(table, Change(item.rv, "DELETED", item, before))
        return item

    def _next(self, key: Key, obj: Object) -> Item:
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        return Item(key, obj, self.rv)

    def _record(self, table: _Table, change: Change) -> None:
        table.changes.append(change)
        if len(table.changes) > 2 * self._history:
            table.drop(len(table.changes) - self._history)
        table.wake()

    def wake(self, resource: Resource) -> None:
        """Wake all readers that wait for a change of the resource, without a change."""
        self._table(resource).wake()

    def compact(self, resource: Resource) -> None:
        """Empty the window of changes: older watches and lists get 410."""
        table = self._table(resource)
        table.drop(len(table.changes))
        table.floor = self.rv

    def items_at(self, resource: Resource, rv: int) -> list[Item]:
        """The objects as of ``rv``, sorted by key; raises ApiError 410 if ``rv`` is before the window."""
        table = self._table(resource)
        if rv < table.floor:
            raise errors.expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter."
            )
        state = dict(table.items)
        for change in reversed(table.changes):
            if change.rv <= rv:
                break
            if change.before is None:
                state.pop(change.item.key, None)
            else:
                state[change.item.key] = change.before
        return [state[key] for key in sorted(state)]

    def watch(self, resource: Resource, rv: int) -> Cursor:
        """A cursor on the changes after ``rv``; raises ApiError 410 if the window lacks some of them."""
        table = self._table(resource)
        if rv < table.floor:
            raise errors.expired(f"too old resource version: {rv} ({table.floor})")
        return Cursor(table, table.dropped + bisect_right(table.changes, rv, key=lambda c: c.rv))


class Cursor:
    """A reader's position in the changes of one resource."""

    def __init__(self, table: _Table, position: int) -> None:
        self._table, self._position = table, position

    def read(self) -> list[Change]:
        """The changes since the last read; raises ApiError 410 if some have left the window."""
        start = self._position - self._table.dropped
        if start < 0:
            raise errors.expired(f"too old resource version: {self._table.floor} (the watcher was too slow)")
        self._position = self._table.dropped + len(self._table.changes)
        return self._table.changes[start:]

    async def next(self, timeout: float | None = None) -> list[Change]:
        """Wait for changes and read them; return an empty list after ``timeout`` seconds."""
        if self._position < self._table.dropped + len(self._table.changes):
            return self.read()
        waiter = asyncio.get_running_loop().create_future()
        self._table.waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            return []
        return self.read()

"""Objects with one growing resourceVersion, and per resource a window of changes for watchers.

An object in the store is never modified: a write puts a new dict in its place. So readers may keep what they got, a
change holds both its before and its after, and each object is encoded once however many watchers there are.
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
    """An object as stored, with its JSON."""

    __slots__ = ("_body", "key", "obj", "rv")

    def __init__(self, key: Key, obj: Object, rv: int) -> None:
        self.key, self.obj, self.rv = key, obj, rv
        self._body: bytes | None = None

    @property
    def body(self) -> bytes:
        """JSON of the object without kind and apiVersion."""
        if self._body is None:
            self._body = _encode(self.obj)
        return self._body

    def raw(self, resource: Resource) -> bytes:
        """JSON of the whole object."""
        return b'{"kind":"%b","apiVersion":"%b",%b' % (
            resource.kind.encode(),
            resource.api_version.encode(),
            self.body[1:],
        )


class Change(NamedTuple):
    """One write: what was there before, what is there after (for a deletion: the last state)."""

    rv: int
    kind: ChangeKind
    item: Item
    before: Item | None


class _Table:
    """Objects of one resource and the changes still remembered."""

    def __init__(self) -> None:
        self.items: dict[Key, Item] = {}
        self.changes: list[Change] = []
        self.dropped = 0  # changes forgotten so far: absolute index of changes[0]
        self.floor = 0  # resourceVersion of the youngest change forgotten
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
    """All objects of the cluster. ``history`` is the number of changes kept per resource."""

    def __init__(self, history: int = 20_000) -> None:
        self._history = history
        self._tables: dict[tuple[str, str], _Table] = {}
        self.rv = 1

    def _table(self, resource: Resource) -> _Table:
        return self._tables.setdefault((resource.group, resource.plural), _Table())

    def get(self, resource: Resource, key: Key) -> Item | None:
        return self._table(resource).items.get(key)

    def items(self, resource: Resource, namespace: str = "") -> list[Item]:
        """Objects of one namespace, or of all when it is empty."""
        found = self._table(resource).items.values()
        return [i for i in found if i.key[0] == namespace] if namespace else list(found)

    def put(self, resource: Resource, key: Key, obj: Object) -> Item:
        """Store ``obj`` (whose metadata must be a dict of its own) under the next resourceVersion."""
        table = self._table(resource)
        before = table.items.get(key)
        item = self._next(key, obj)
        table.items[key] = item
        self._record(table, Change(item.rv, "MODIFIED" if before else "ADDED", item, before))
        return item

    def remove(self, resource: Resource, key: Key) -> Item:
        """Take the object away; its last state carries the resourceVersion of the removal."""
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
        """Let everybody who waits for a change of the resource look up without one."""
        self._table(resource).wake()

    def compact(self, resource: Resource, keep: int = 0) -> None:
        """Forget all but the last ``keep`` changes: watches and lists from before get 410."""
        table = self._table(resource)
        table.drop(len(table.changes) - keep)
        if not table.changes:
            table.floor = self.rv

    def items_at(self, resource: Resource, rv: int) -> list[Item]:
        """Objects as they were at ``rv``, sorted by key; ApiError 410 when that is forgotten."""
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
        """A cursor on the changes after ``rv``; ApiError 410 when some of them are forgotten."""
        table = self._table(resource)
        if rv < table.floor:
            raise errors.expired(f"too old resource version: {rv} ({table.floor})")
        return Cursor(self, table, table.dropped + bisect_right(table.changes, rv, key=lambda c: c.rv))


class Cursor:
    """A reader's place in the changes of one resource."""

    def __init__(self, store: Store, table: _Table, position: int) -> None:
        self._store, self._table, self._position = store, table, position

    def read(self) -> list[Change]:
        """The changes since the last read; ApiError 410 when the reader was so slow that some are forgotten."""
        start = self._position - self._table.dropped
        if start < 0:
            raise errors.expired(f"too old resource version: {self._table.floor} (the watcher was too slow)")
        self._position = self._table.dropped + len(self._table.changes)
        return self._table.changes[start:]

    @property
    def rv(self) -> int:
        """All changes up to this resourceVersion have been read (of a cursor that has just read)."""
        return self._store.rv

    async def next(self, timeout: float | None = None) -> list[Change]:
        """Wait until there are changes and read them; an empty list after ``timeout`` seconds."""
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

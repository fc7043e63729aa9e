"""Lists and watches as bytes: selectors, bookmarks, 410."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import msgspec

from extender.sim.apiserver import errors, tables
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.paths import Target
from extender.sim.apiserver.selectors import Predicate, selector
from extender.sim.apiserver.store import Change, Cursor, Item, Store

_encode = msgspec.json.encode
_WATCH_SECONDS = 1800.0  # shortest default timeout of a watch; the longest is twice as long
Query = Mapping[str, str]


def _predicate(target: Target, query: Query) -> Predicate:
    fields = [query["fieldSelector"]] if query.get("fieldSelector") else []
    if target.name:  # a watch of one object by its path
        fields.append(f"metadata.name={target.name}")
    return selector(query.get("labelSelector", ""), ",".join(fields), target.resource)


def _known_rv(store: Store, query: Query) -> int:
    """The resourceVersion of a request, 0 without one; raises ApiError 504 if it lies in the future."""
    rv = int(query.get("resourceVersion") or 0)
    if rv > store.rv:
        raise errors.ApiError(504, "Timeout", f"Too large resource version: {rv}, current: {store.rv}")
    return rv


def _selected(store: Store, target: Target, matches: Predicate) -> list[Item]:
    """The selected objects, sorted by key."""
    items = sorted(store.items(target.resource, target.namespace), key=lambda item: item.key)
    return [item for item in items if matches(item.obj)]


def one_object(target: Target, item: Item, query: Query, as_table: bool) -> bytes:
    """The object, or a table of it."""
    if as_table:
        return tables.encoded(target.resource, [item], item.rv, query.get("includeObject", ""))
    return item.raw(target.resource)


def list_objects(store: Store, target: Target, query: Query, as_table: bool) -> bytes:
    """The body of a list, or its table. It has one page: a server may ignore the limit that a client asks for."""
    _known_rv(store, query)
    resource = target.resource
    items = _selected(store, target, _predicate(target, query))
    if as_table:
        return tables.encoded(resource, items, store.rv, query.get("includeObject", ""))
    # items of built-in resources have no kind and apiVersion
    bodies = b",".join(i.raw(resource) if resource.custom else i.body for i in items)
    metadata = {"resourceVersion": str(store.rv)}
    head = _encode({"kind": resource.kind + "List", "apiVersion": resource.api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + bodies + b"]}"


def _line(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)


class Watch:
    """One watch request: yields chunks of lines until its timeout, 410, or the end of its resource."""

    def __init__(self, api: Api, target: Target, query: Query, as_table: bool, bookmark_seconds: float) -> None:
        self._store, self._catalogue, self._target, self._query = api.store, api.catalogue, target, query
        self._resource = target.resource
        self._matches = _predicate(target, query)
        self._body = partial(one_object, target, query=query, as_table=as_table)
        self._bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        self._period = bookmark_seconds
        timeout = query.get("timeoutSeconds") or random.uniform(1, 2) * _WATCH_SECONDS
        self._end = time.monotonic() + float(timeout)

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            cursor, first = self._open()
            if first:
                yield first
            async for chunk in self._follow(cursor):
                yield chunk
        except errors.ApiError as error:
            yield _line("ERROR", _encode(error.status()))

    def _open(self) -> tuple[Cursor, bytes]:
        rv = _known_rv(self._store, self._query)
        initial = self._query.get("sendInitialEvents") == "true"
        if rv and not initial:
            return self._store.watch(self._resource, rv), b""
        items = _selected(self._store, self._target, self._matches)
        lines = [_line("ADDED", self._body(item)) for item in items]
        if initial:
            lines.append(self._bookmark({"annotations": {"k8s.io/initial-events-end": "true"}}))
        return self._store.watch(self._resource, self._store.rv), b"".join(lines)

    async def _follow(self, cursor: Cursor) -> AsyncIterator[bytes]:
        marked = time.monotonic()
        while (now := time.monotonic()) < self._end and self._catalogue.serves(self._resource):
            wait = min(self._end - now, max(0.0, marked + self._period - now) if self._bookmarks else 3600.0)
            lines = [line for change in await cursor.next(wait) if (line := self._change(change))]
            now = time.monotonic()
            if self._bookmarks and (now >= marked + self._period or now >= self._end):
                lines.append(self._bookmark())
                marked = now
            if lines:
                yield b"".join(lines)

    def _wanted(self, item: Item | None) -> bool:
        if item is None or (self._target.namespace and item.key[0] != self._target.namespace):
            return False
        return self._matches(item.obj)

    def _change(self, change: Change) -> bytes:
        """The line of a change; an object that the selector no longer matches counts as deleted."""
        was, now = self._wanted(change.before), not change.deleted and self._wanted(change.item)
        if now:
            return _line("MODIFIED" if was else "ADDED", self._body(change.item))
        if not was or change.before is None:
            return b""
        last = change.item
        if not change.deleted:  # no longer selected: its former state with the new version
            before = change.before.obj
            metadata = {**before["metadata"], "resourceVersion": str(last.rv)}
            last = Item(last.key, {**before, "metadata": metadata}, last.rv)
        return _line("DELETED", self._body(last))

    def _bookmark(self, more: dict[str, Any] | None = None) -> bytes:
        metadata = {"resourceVersion": str(self._store.rv), "creationTimestamp": None, **(more or {})}
        return _line("BOOKMARK", _encode({**self._resource.type_meta, "metadata": metadata}))

"""Lists and watches as bytes: pages, selectors, bookmarks, 410."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from extender.sim.apiserver import errors
from extender.sim.apiserver.paths import Target
from extender.sim.apiserver.selectors import Predicate, selector
from extender.sim.apiserver.store import Change, Cursor, Item, Key, Store

_encode = msgspec.json.encode
_WATCH_SECONDS = 1800.0  # shortest default timeout of a watch; the longest is twice as long
Query = Mapping[str, str]


def _predicate(target: Target, query: Query) -> Predicate | None:
    fields = [query["fieldSelector"]] if query.get("fieldSelector") else []
    if target.name:  # a watch of one object by its path
        fields.append(f"metadata.name={target.name}")
    return selector(query.get("labelSelector", ""), ",".join(fields), target.resource)


class _Page(msgspec.Struct):
    """The content of a continue token: the list's resourceVersion, and the last key of the page before."""

    rv: int = 0
    start: Key = ("", "")
    v: str = "meta.k8s.io/v1"


def list_objects(store: Store, target: Target, query: Query) -> bytes:
    """The body of a list. All pages of one list show the state at the time of the first page."""
    resource, matches = target.resource, _predicate(target, query)
    asked_rv = int(query.get("resourceVersion") or 0)
    if asked_rv > store.rv:
        raise errors.ApiError(504, "Timeout", f"Too large resource version: {asked_rv}, current: {store.rv}")
    page = _Page(store.rv)
    if token := query.get("continue"):
        try:
            page = msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Page)
        except ValueError as error:
            raise errors.bad_request(f"continue key is not valid: {token!r}") from error
    items = [i for i in store.items_at(resource, page.rv) if i.key > page.start]
    if target.namespace:
        items = [i for i in items if i.key[0] == target.namespace]
    if matches:
        items = [i for i in items if matches(i.obj)]
    metadata: dict[str, Any] = {"resourceVersion": str(page.rv)}
    limit = int(query.get("limit") or 0)
    if 0 < limit < len(items):
        metadata["continue"] = base64.urlsafe_b64encode(_encode(_Page(page.rv, items[limit - 1].key))).decode()
        if matches is None:
            metadata["remainingItemCount"] = len(items) - limit
        items = items[:limit]
    # items of built-in resources have no kind and apiVersion
    bodies = b",".join(i.raw(resource) if resource.custom else i.body for i in items)
    head = _encode({"kind": resource.kind + "List", "apiVersion": resource.api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + bodies + b"]}"


def _line(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)


class Watch:
    """One watch request: yields chunks of lines until its timeout, 410, or the end of its resource (``served``)."""

    def __init__(
        self, store: Store, target: Target, query: Query, bookmark_seconds: float, served: Callable[[], bool]
    ) -> None:
        self._store, self._target, self._query, self._served = store, target, query, served
        self._resource = target.resource
        self._matches = _predicate(target, query)
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
        rv = int(self._query.get("resourceVersion") or 0)
        if rv > self._store.rv:
            raise errors.ApiError(504, "Timeout", f"Too large resource version: {rv}, current: {self._store.rv}")
        initial = self._query.get("sendInitialEvents") == "true"
        if rv and not initial:
            return self._store.watch(self._resource, rv), b""
        items = self._store.items_at(self._resource, self._store.rv)
        lines = [_line("ADDED", i.raw(self._resource)) for i in items if self._wanted(i)]
        if initial:
            lines.append(self._bookmark({"annotations": {"k8s.io/initial-events-end": "true"}}))
        return self._store.watch(self._resource, self._store.rv), b"".join(lines)

    async def _follow(self, cursor: Cursor) -> AsyncIterator[bytes]:
        marked = time.monotonic()
        while (now := time.monotonic()) < self._end and self._served():
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
        return self._matches is None or self._matches(item.obj)

    def _change(self, change: Change) -> bytes:
        """The line of a change; an object that the selector no longer matches counts as deleted."""
        was, now = self._wanted(change.before), change.kind != "DELETED" and self._wanted(change.item)
        if now:
            return _line("MODIFIED" if was else "ADDED", change.item.raw(self._resource))
        if not was or change.before is None:
            return b""
        last = change.item
        if change.kind != "DELETED":  # no longer selected: its former state with the new version
            before = change.before.obj
            metadata = {**before["metadata"], "resourceVersion": str(change.rv)}
            last = Item(change.before.key, {**before, "metadata": metadata}, change.rv)
        return _line("DELETED", last.raw(self._resource))

    def _bookmark(self, more: dict[str, Any] | None = None) -> bytes:
        metadata = {"resourceVersion": str(self._store.rv), "creationTimestamp": None, **(more or {})}
        return _line("BOOKMARK", _encode({**self._resource.type_meta, "metadata": metadata}))

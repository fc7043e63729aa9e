"""Lists and watches as bytes: paging, selectors, bookmarks, 410."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from extender.sim.apiserver import errors, events_v1
from extender.sim.apiserver.paths import Target
from extender.sim.apiserver.resources import NEW_EVENTS, Resource
from extender.sim.apiserver.selectors import Predicate, selector
from extender.sim.apiserver.store import Change, Cursor, Item, Store

_encode = msgspec.json.encode
Query = Mapping[str, str]


def raw(resource: Resource, item: Item) -> bytes:
    """JSON of a stored object as ``resource`` spells it."""
    if resource is NEW_EVENTS:
        return _encode({**resource.type_meta, **events_v1.from_core(item.obj)})
    return item.raw(resource)


def _predicate(target: Target, query: Query) -> Predicate | None:
    fields = [query["fieldSelector"]] if query.get("fieldSelector") else []
    if target.name:  # a watch of one object by its own path
        fields.append(f"metadata.name={target.name}")
    return selector(query.get("labelSelector", ""), ",".join(fields), target.stored)


class _Page(NamedTuple):
    """Where the next page begins, from a continue token."""

    rv: int
    after: tuple[str, str]

    def token(self) -> str:
        return base64.urlsafe_b64encode(_encode({"v": "meta.k8s.io/v1", "rv": self.rv, "start": self.after})).decode()


def _page(token: str) -> _Page:
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(token))
        return _Page(found["rv"], (found["start"][0], found["start"][1]))
    except (ValueError, KeyError, IndexError, TypeError, msgspec.DecodeError) as error:
        raise errors.bad_request(f"continue key is not valid: {token!r}") from error


def list_objects(store: Store, target: Target, query: Query) -> bytes:
    """The body of a list. Pages of one list are consistent: later pages show the state of the first page's time."""
    resource, matches = target.resource, _predicate(target, query)
    asked_rv = int(query.get("resourceVersion") or 0)
    if asked_rv > store.rv:
        raise errors.ApiError(504, "Timeout", f"Too large resource version: {asked_rv}, current: {store.rv}")
    rv, after = store.rv, ("", "")
    if token := query.get("continue"):
        rv, after = _page(token)
    elif query.get("resourceVersionMatch") == "Exact":
        rv = asked_rv
    items = [i for i in store.items_at(target.stored, rv) if i.key > after]
    if target.namespace:
        items = [i for i in items if i.key[0] == target.namespace]
    if matches:
        items = [i for i in items if matches(i.obj)]
    metadata: dict[str, Any] = {"resourceVersion": str(rv)}
    limit = int(query.get("limit") or 0)
    if 0 < limit < len(items):
        metadata["continue"] = _Page(rv, items[limit - 1].key).token()
        if matches is None:
            metadata["remainingItemCount"] = len(items) - limit
        items = items[:limit]
    typed = resource.custom or resource is NEW_EVENTS  # items of built-in lists come without kind and apiVersion
    bodies = b",".join(raw(resource, i) if typed else i.body for i in items)
    head = _encode({"kind": resource.kind + "List", "apiVersion": resource.api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + bodies + b"]}"


class WatchSettings(NamedTuple):
    """Seconds between bookmarks, and the longest watch when the client names none."""

    bookmark_seconds: float = 10.0
    longest_seconds: float = 1800.0


def _line(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)


class Watch:
    """One watch request: yields chunks of lines until its time is over, its history is gone or ``served`` says no."""

    def __init__(
        self, store: Store, target: Target, query: Query, settings: WatchSettings, served: Callable[[], bool]
    ) -> None:
        self._store, self._target, self._query, self._served = store, target, query, served
        self._resource = target.resource
        self._matches = _predicate(target, query)
        self._bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        self._period = settings.bookmark_seconds
        longest = random.uniform(1, 2) * settings.longest_seconds
        self._end = time.monotonic() + float(query.get("timeoutSeconds") or longest)

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
            return self._store.watch(self._target.stored, rv), b""
        items = self._store.items_at(self._target.stored, self._store.rv)
        lines = [_line("ADDED", raw(self._resource, i)) for i in items if self._wanted(i)]
        if initial:
            lines.append(self._bookmark({"annotations": {"k8s.io/initial-events-end": "true"}}))
        return self._store.watch(self._target.stored, self._store.rv), b"".join(lines)

    async def _follow(self, cursor: Cursor) -> AsyncIterator[bytes]:
        marked = time.monotonic()
        while (now := time.monotonic()) < self._end and self._served():
            wait = min(self._end - now, max(0.0, marked + self._period - now) if self._bookmarks else 3600.0)
            lines = [line for change in await cursor.next(wait) if (line := self._tell(change))]
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

    def _tell(self, change: Change) -> bytes:
        """The line for a change, as the selector sees it: objects that stop matching are deleted, and so on."""
        was, now = self._wanted(change.before), change.kind != "DELETED" and self._wanted(change.item)
        if now:
            return _line("MODIFIED" if was else "ADDED", raw(self._resource, change.item))
        if not was or change.before is None:
            return b""
        last = change.item
        if change.kind != "DELETED":  # left the selection: its former state under the new version
            before = change.before.obj
            metadata = {**before["metadata"], "resourceVersion": str(change.rv)}
            last = Item(change.before.key, {**before, "metadata": metadata}, change.rv)
        return _line("DELETED", raw(self._resource, last))

    def _bookmark(self, more: dict[str, Any] | None = None) -> bytes:
        metadata = {"resourceVersion": str(self._store.rv), "creationTimestamp": None, **(more or {})}
        return _line("BOOKMARK", _encode({**self._resource.type_meta, "metadata": metadata}))

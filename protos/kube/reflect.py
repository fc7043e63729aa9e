"""A collection of the API server as an endless stream of events: list, then watch.

Nested generators: `Reflector.events` never ends; `_listing` reads the pages of one list and yields the differences to
the known objects; `_watching` reopens dropped watches, each of which `_watch` reads. The caller's function decodes each
object from the bytes of its page or line; `changes.Known` finds the changes.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
import structlog

from protos.contract.codec import BAD_JSON
from protos.kube import errors
from protos.kube.changes import Change, Event, Known, Listed
from protos.kube.client import ApiClient
from protos.kube.stream import Stream

T = TypeVar("T")
log = structlog.get_logger()

SLICE = 10
"""Objects between two yields to the event loop."""
FAILURES = 5
"""Consecutive failures of watches before a new list."""


@dataclass(frozen=True)
class Pace:
    """The timing of a reflector in seconds, and its page size."""

    backoff_s: float = 0.5
    """The pause after the first failure; each further failure doubles it."""
    backoff_most_s: float = 30.0
    silence_s: float = 150.0
    """A watch without data for so long is reopened, because it may be dead. The API server sends a bookmark each
    minute, but none for a kind without events since its start. Source: storage/cacher, dispatchEvents."""
    short_s: float = 1.0
    """A watch that ends sooner and without data has failed. Source: client-go, Reflector."""
    watch_s: int = 300
    """The requested duration of a watch, at random up to twice as long."""
    page: int = 500
    """Objects per page of a list."""

    def wait(self, failures: int) -> float:
        """The pause after so many consecutive failures; half of it is random."""
        full = min(self.backoff_most_s, self.backoff_s * 2.0 ** min(failures - 1, 16))
        return full * random.uniform(0.5, 1.0)


class _ListMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_pages = msgspec.json.Decoder(_Page)
_lines = msgspec.json.Decoder(_Line)
_statuses = msgspec.json.Decoder(errors.Status)
ABSENT = (errors.NotFound, errors.Forbidden)
"""Errors that end the events of an optional collection."""


class _RelistWanted(Exception):
    """Ends the generators for a requested relist; not an error."""


class Reflector(Generic[T]):
    """The events of one collection, delivered by `events()` to one consumer.

    `decode` decodes the JSON of an item, may raise ValueError, and must copy data that it keeps, as structs do.
    NotFound and Forbidden end the `events()` of an `optional` collection, and are retried otherwise. Another call of
    `events()` yields the differences since then.
    """

    def __init__(
        self,
        client: ApiClient,
        path: str,
        decode: Callable[[bytes], T],
        *,
        selectors: Mapping[str, str] | None = None,
        optional: bool = False,
        pace: Pace | None = None,
    ) -> None:
        self.client, self.path, self.pace = client, path, pace or Pace()
        self.trouble: errors.ApiError | None = None
        """The present error of list or watch; None without one."""
        self._selectors, self._optional = selectors or {}, optional
        self._known = Known(decode)
        self._failures = 0
        self._wanted = asyncio.Event()
        self._interrupt: Callable[[], None] = lambda: None
        """Ends what is being waited for."""

    def relist(self) -> None:
        """Request a consistent list now, for instance after a takeover; `Listed` marks its end."""
        self._wanted.set()
        self._interrupt()

    async def version(self) -> str:
        """The collection's current resourceVersion, read consistently; raises request errors."""
        page = await self.client.fetch(self.path, _pages, params={"limit": "1"})
        return page.metadata.resource_version

    def forget(self) -> Iterator[Change[T]]:
        """The deletions of all known objects: the collection is not served any more."""
        return self._known.only({})

    async def events(self) -> AsyncGenerator[Event[T], None]:
        """All events, until the consumer closes this generator; errors are logged and retried."""
        while True:
            try:
                async with contextlib.aclosing(self._listing()) as listing:
                    async for event in listing:
                        yield event
                async with contextlib.aclosing(self._watching()) as watching:
                    async for event in watching:
                        yield event
            except errors.ApiError as error:
                if self._optional and isinstance(error, ABSENT):
                    self.trouble = error
                    raise
                await self._pause(error)
            except _RelistWanted:
                continue

    async def _listing(self) -> AsyncGenerator[Event[T], None]:
        self._wanted.clear()
        seen: dict[str, set[str]] = {}
        token, limit = "", self.pace.page
        while True:
            try:
                page = await self._page(token, limit)
            except errors.Gone:
                if not token:
                    raise
                seen, token, limit = {}, "", 0  # the list has expired between its pages: read it in one page
                continue
            for number, raw in enumerate(page.items or ()):
                if number % SLICE == 0:
                    await asyncio.sleep(0)
                for event in self._known.changes(raw):
                    if event.ref is not None:
                        seen.setdefault(event.ref.namespace, set()).add(event.ref.name)
                    yield event
            token = page.metadata.continue_
            if not token:
                break
        for event in self._known.only(seen):
            yield event
        self._known.version, self.trouble = page.metadata.resource_version, None
        yield Listed(self._known.version)

    async def _page(self, token: str, limit: int) -> _Page:
        params = dict(self._selectors)
        if limit:
            params["limit"] = str(limit)
        if token:
            params["continue"] = token
        return await self.client.fetch(self.path, _pages, params=params)

    async def _watching(self) -> AsyncGenerator[Event[T], None]:
        failed = 0  # failures since the list, or the last line of a watch
        while True:
            try:
                async with contextlib.aclosing(self._watch()) as watch:
                    async for event in watch:
                        yield event
            except (errors.Unavailable, errors.TooMany, errors.Unauthorized) as error:
                failed = failed + 1 if self._failures else 1
                if failed > FAILURES:
                    raise
                await self._pause(error)

    async def _watch(self) -> AsyncGenerator[Event[T], None]:
        params = {
            **self._selectors,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._known.version,
            "timeoutSeconds": str(random.randint(self.pace.watch_s, 2 * self.pace.watch_s)),
        }
        spoke, read, lines, began = False, 0, Lines(), asyncio.get_running_loop().time()
        async with contextlib.AsyncExitStack() as stack:
            chunks = await self._opened(stack, params)
            self.trouble, self._interrupt = None, chunks.close
            try:
                async for chunk in chunks:
                    for line in lines.of(chunk):
                        for event in self._decoded(line):
                            yield event
                        spoke, self._failures, read = True, 0, read + 1
                        if read % SLICE == 0:
                            await asyncio.sleep(0)
            except errors.Silent:
                return
            except errors.Unavailable:
                if self._wanted.is_set():
                    raise _RelistWanted from None
                raise
            finally:
                self._interrupt = lambda: None
        if not spoke and asyncio.get_running_loop().time() - began < self.pace.short_s:
            raise errors.Unavailable(f"WATCH {self.path}", message="the server closed the watch without a word")

    async def _opened(self, stack: contextlib.AsyncExitStack, params: Mapping[str, str]) -> Stream:
        """Open a watch; a requested relist ends the attempt."""
        if self._wanted.is_set():
            raise _RelistWanted
        try:
            async with asyncio.timeout(None) as opening:
                self._interrupt = lambda: opening.reschedule(0.0)
                stream = self.client.stream(self.path, params=params, silence_s=self.pace.silence_s)
                return await stack.enter_async_context(stream)
        except TimeoutError:
            raise _RelistWanted from None
        finally:
            self._interrupt = lambda: None

    def _decoded(self, line: bytes) -> Iterator[Change[T]]:
        """The changes of one line of a watch (none for a bookmark); raises ApiError for an ERROR line."""
        request = f"WATCH {self.path}"
        try:
            event = _lines.decode(line)
            if event.type == "ERROR":
                status = _statuses.decode(event.object)
                raise errors.from_status(request, status.code or 500, status, write=False)
            if event.type == "BOOKMARK":
                self._known.bookmark(event.object)
                return
        except BAD_JSON as error:
            raise errors.BadAnswer(request, 200, "BadAnswer", str(error)) from error
        yield from self._known.changes(event.object, gone=event.type == "DELETED")

    async def _pause(self, error: errors.ApiError) -> None:
        """Record the error and wait; a requested relist ends the wait."""
        self._failures += 1
        self.trouble = error
        wait = self.pace.wait(self._failures)
        log.warning("reflect_failed", path=self.path, error=str(error), failures=self._failures, wait_s=round(wait, 2))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wanted.wait(), wait)


class Lines:
    """Cuts chunks into lines. What comes after the last line break waits for the next chunk."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def of(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that this chunk completes."""
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            self._parts.append(line)
            joined = b"".join(self._parts)
            self._parts.clear()
            if joined.strip():
                yield joined
        if rest:
            self._parts.append(rest)

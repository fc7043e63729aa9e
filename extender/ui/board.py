"""One viewer's sight of the cluster, shared by all their tabs: it is read only while somebody looks."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import NamedTuple

from extender.ui import views
from extender.ui.changes import History, Seen
from extender.ui.sources import Source, Trouble, trouble
from extender.wire import page
from protos.kube.errors import ApiError

EVERY_S = 2.0
"""Seconds between two looks at the nodes, while all is well."""
REST_EVERY = 5
"""Looks at the nodes for each look at queues and workloads."""
SLOWNESS = 4.0
"""A look that took t seconds is followed by a pause of this many times t."""
LONGEST_S = 60.0
FRESH_S = 5.0
"""A snapshot may be so old."""
BEAT_S = 15.0
MOST_STREAMS = 4
"""Tabs of a viewer that are in sight. A browser opens six connections to a server, and questions need some of them."""
MOST_WORKLOADS = 2000
"""Gangs, and pending pods, that are shown."""


class Beat(NamedTuple):
    """Nothing has happened."""


class Gap(NamedTuple):
    """The browser has missed too much."""


News = page.Delta | Trouble | Beat | Gap


class Board:
    """What one viewer sees."""

    def __init__(self, source: Source, every_s: float = EVERY_S, wall: Callable[[], float] = time.time) -> None:
        self._source, self._every_s, self._wall = source, every_s, wall
        self._seen, self._history = Seen(), History(secrets.token_hex(4))
        self._looks, self._looked = 0, float("-inf")
        self._trouble: Trouble | None = None
        self._streams = 0
        self._task: asyncio.Task[None] | None = None
        self._turn, self._changed = asyncio.Lock(), asyncio.Condition()

    @property
    def namespaces(self) -> Sequence[str]:
        """The namespaces of the pods that the viewer sees on GPUs."""
        pods = (
            holder.pod
            for node in self._seen.nodes.values()
            for gpu in node.gpus
            for holder in gpu.holders
            if holder.pod
        )
        return sorted({pod.partition("/")[0] for pod in pods})

    async def snapshot(self, context: str, version: str) -> page.Snapshot:
        """All that the viewer sees; raises Trouble."""
        if time.monotonic() - self._looked > FRESH_S:
            await self._look(whole=True)
        if self._trouble is not None:
            raise self._trouble
        seen = self._seen
        return page.Snapshot(
            cursor=self._history.cursor,
            at=self._wall(),
            context=context,
            version=version,
            nodes=tuple(seen.nodes.values()),
            queues=seen.queues,
            workloads=seen.workloads,
            limits=seen.limits,
        )

    async def stream(self, cursor: str) -> AsyncGenerator[News, None]:
        """What happens from a cursor on."""
        self._streams += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        try:
            async for news in self._news(cursor):
                yield news
        finally:
            self._streams -= 1
            if not self._streams and self._task is not None:
                self._task.cancel()
                self._task = None

    @property
    def full(self) -> bool:
        return self._streams >= MOST_STREAMS

    @property
    def watched(self) -> bool:
        """Whether a tab is open."""
        return self._streams > 0

    async def _news(self, cursor: str) -> AsyncGenerator[News, None]:
        told: Trouble | None = None
        while True:
            changes = self._history.since(cursor)
            if changes is None:
                yield Gap()
                return
            for change in changes:
                cursor = change.cursor
                yield change
            if self._trouble is not told:
                told = self._trouble
                yield told if told is not None else page.Delta(cursor=cursor, at=self._wall())
            if not await self._wait(cursor, told):
                yield Beat()

    async def _wait(self, cursor: str, told: Trouble | None) -> bool:
        """Whether there is news within a beat."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BEAT_S), self._changed:
                await self._changed.wait_for(lambda: self._history.cursor != cursor or self._trouble is not told)
                return True
        return False

    async def _run(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            await self._look(whole=False)
            failures = failures + 1 if self._trouble is not None else 0
            slow = SLOWNESS * (time.monotonic() - began)
            await asyncio.sleep(min(LONGEST_S, max(self._every_s * 2**failures, slow)))

    async def _look(self, *, whole: bool) -> None:
        """Look at the cluster once. `whole`: also at queues and workloads."""
        async with self._turn:
            new, at = self._seen, self._wall()
            try:
                new = await self._nodes(new)
                if whole or self._looks % REST_EVERY == 0:
                    new = await self._rest(new)
                self._looks, self._trouble = self._looks + 1, None
            except ApiError as error:
                self._trouble = trouble(error)
            self._history.add(self._seen, new, at)
            self._seen, self._looked = new, time.monotonic()
        async with self._changed:
            self._changed.notify_all()

    async def _nodes(self, seen: Seen) -> Seen:
        nodes = {node.name: node for node in await self._source.nodes()}
        return seen._replace(nodes=nodes)

    async def _rest(self, seen: Seen) -> Seen:
        found = await self._source.rest(self.namespaces)
        shown = views.workloads(found.gangs, found.pods, MOST_WORKLOADS)
        cut = tuple(
            f"{len(every)} {what}: the first {MOST_WORKLOADS} are shown"
            for what, every in (("gangs", found.gangs), ("pending pods", found.pods))
            if len(every) > MOST_WORKLOADS
        )
        return seen._replace(
            queues=tuple(map(views.queue, found.queues)),
            workloads=shown,
            limits=(*found.limits, *cut),
            at=self._wall(),
        )

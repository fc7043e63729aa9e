"""Feeds one collection of the API server to the engine, as events."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from extender.cluster.kinds import WatchedKind
from extender.engine.types.events import Event
from extender.metrics import Metrics
from protos.kube import changes, errors
from protos.kube.client import ApiClient
from protos.kube.reflect import ABSENT, Reflector

NOW_TRIES_S = 0.5
"""Seconds between two tries to read the current resourceVersion."""

log = structlog.get_logger(__name__)


class Feed:
    """Watches one collection and tells the engine each change, for ever."""

    def __init__(
        self,
        client: ApiClient,
        kind: WatchedKind,
        tell: Callable[[Event], None],
        metrics: Metrics,
        *,
        optional: bool = False,
        calm: asyncio.Event | None = None,
    ) -> None:
        """The API server may lack an `optional` collection, or not let us read it: then `run` raises that error.

        While `calm` is not set, the feed pauses.
        """
        self._path, self._kind, self._tell, self._metrics = kind.path, kind, tell, metrics
        self._reflector: Reflector[Any] = Reflector(client, kind.path, kind.decode, optional=optional)
        metrics.watching.labels(kind.path).set_function(lambda: self._reflector.trouble is None)
        self._optional, self._calm = optional, calm
        self._version = -1
        self._listed = asyncio.Event()
        self.lists = 0
        """Complete lists so far."""

    async def run(self) -> None:
        """Watch for ever."""
        async for change in self._reflector.events():
            if self._calm is not None and not self._calm.is_set():
                await self._calm.wait()
            self._take(change)

    async def listed(self) -> None:
        """Wait for the first complete list."""
        await self._listed.wait()

    async def relisted(self) -> None:
        """Wait for a consistent list that is no older than this call; raises like `run`."""
        now = await self._now()
        while self._version < now:
            self._listed.clear()
            self._reflector.relist()
            await self._listed.wait()

    def forget(self) -> None:
        """Tell the engine that the collection is not served any more, and that its objects are gone."""
        for change in self._reflector.forget():
            self._take(change)
        if (event := self._kind.left()) is not None:
            self._tell(event)

    def close(self) -> None:
        """Remove the collection from the metrics."""
        self._metrics.watching.remove(self._path)

    async def _now(self) -> int:
        """The collection's current resourceVersion, read consistently.

        Versions of one resource are compared as numbers. Source: KEP-5504, comparable resource versions.
        """
        while True:
            try:
                return int(await self._reflector.version())
            except errors.ApiError as error:
                if self._optional and isinstance(error, ABSENT):
                    raise
                log.warning("list_failed", path=self._path, error=str(error))
            await asyncio.sleep(NOW_TRIES_S)

    def _take(self, change: changes.Event[Any]) -> None:
        """Tell the engine of a change. An error of ours over one object does not stop the feed."""
        event: Event | None = None
        with self._metrics.faults.over("feed", f"{self._path} {_name(change)}"):
            event = self._event(change)
        if event is not None:
            self._tell(event)

    def _event(self, change: changes.Event[Any]) -> Event | None:
        match change:
            case changes.Seen(ref, found):
                return self._kind.seen(ref, found)
            case changes.Deleted(ref, _):
                return self._kind.gone(ref)
            case changes.Listed(version):
                self._version, self.lists = int(version), self.lists + 1
                self._metrics.lists.labels(self._path).inc()
                self._listed.set()
                return self._kind.listed()
            case changes.Undecodable(ref, _, error):
                self._metrics.errors["undecodable"] += 1
                log.warning("undecodable", path=self._path, object=ref and _name(change), error=str(error))
                if ref is not None and self._kind.unreadable is not None:
                    self._kind.unreadable(ref, str(error))
                return None


def _name(change: changes.Event[Any]) -> str:
    ref = None if isinstance(change, changes.Listed) else change.ref
    return f"{ref.namespace}/{ref.name}" if ref is not None else ""

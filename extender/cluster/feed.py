"""One collection of the API server, told to the engine as its events."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import structlog

from extender.cluster.watched import WatchedKind
from extender.engine.types.events import Event
from extender.metrics import Metrics
from protos.kube import changes, errors
from protos.kube.client import ApiClient
from protos.kube.reflect import ABSENT, Reflector

NOW_TRIES_S = 0.5
"""Seconds between tries to learn the current resourceVersion."""

log = structlog.get_logger(__name__)


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta


_lists = msgspec.json.Decoder(_List)


class Feed:
    """One collection, told to the engine for ever."""

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
        """An `optional` collection may be unknown to the server, or kept from us: then `run` raises that.

        While `calm` is not set, nothing is told.
        """
        self._client, self._path, self._kind, self._tell, self._metrics = client, kind.path, kind, tell, metrics
        self._reflector: Reflector[Any] = Reflector(client, kind.path, kind.decode, optional=optional)
        metrics.watching.labels(kind.path).set_function(lambda: self._reflector.trouble is None)
        self._optional, self._calm = optional, calm
        self._version = -1
        self._listed = asyncio.Event()
        self.lists = 0
        """Complete lists told."""

    async def run(self) -> None:
        """Tell everything that happens."""
        async for event in self._reflector.events():
            if self._calm is not None and not self._calm.is_set():
                await self._calm.wait()
            self._take(event)

    async def listed(self) -> None:
        """Wait until everything that is there was told once."""
        await self._listed.wait()

    async def relisted(self) -> None:
        """Wait until a consistent list, no older than this call, was told; raises like `run`."""
        now = await self._now()
        while self._version < now:
            self._listed.clear()
            self._reflector.relist()
            await self._listed.wait()

    def close(self) -> None:
        """Nobody asks any more whether it is followed."""
        self._metrics.watching.remove(self._path)

    async def _now(self) -> int:
        """The collection's resourceVersion at this moment, read consistently.

        Versions of one resource are compared as numbers. Source: KEP-5504, comparable resource versions.
        """
        while True:
            try:
                read = await self._client.fetch(self._path, _lists, params={"limit": "1"})
                return int(read.metadata.resource_version)
            except errors.ApiError as error:
                if self._optional and isinstance(error, ABSENT):
                    raise
                log.warning("list_failed", path=self._path, error=str(error))
            await asyncio.sleep(NOW_TRIES_S)

    def _take(self, event: changes.Event[Any]) -> None:
        """Tell the engine; after an error of ours over an object the next one comes."""
        told: Event | None = None
        with self._metrics.faults.over("feed", f"{self._path} {_named(event)}"):
            told = self._told(event)
        if told is not None:
            self._tell(told)

    def _told(self, event: changes.Event[Any]) -> Event | None:
        told: Event | None = None
        match event:
            case changes.Added(ref, found) | changes.Modified(ref, found):
                told = self._kind.seen(ref, found)
            case changes.Deleted(ref, _):
                told = self._kind.gone(ref)
            case changes.Listed(version):
                self._version, self.lists = int(version), self.lists + 1
                self._metrics.lists.labels(self._path).inc()
                self._listed.set()
                told = self._kind.listed()
            case changes.Undecodable(ref, _, error):
                self._metrics.errors["undecodable"] += 1
                log.warning(
                    "undecodable", path=self._path, object=ref and f"{ref.namespace}/{ref.name}", error=str(error)
                )
                if ref is not None and self._kind.unreadable is not None:
                    self._kind.unreadable(ref, str(error))
        return told


def _named(event: changes.Event[Any]) -> str:
    ref = None if isinstance(event, changes.Listed) else event.ref
    return f"{ref.namespace}/{ref.name}" if ref is not None else ""


async def together(waits: Iterable[Any]) -> None:
    """Wait for all of these."""
    async with asyncio.TaskGroup() as tasks:
        for wait in waits:
            tasks.create_task(wait)

"""What the API server shows, as the engine's events: pods, nodes and, for gpushare, its ConfigMaps of sick GPUs."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec
import structlog

from extender.engine.effects import Event, GpusUnhealthy, NodeGone, NodeSeen, PodGone, PodSeen, PodsListed
from extender.metrics import Metrics
from protos.contract import names, objects
from protos.kube import changes, errors, paths
from protos.kube.changes import Ref
from protos.kube.client import ApiClient
from protos.kube.reflect import Reflector

NOW_TRIES_S = 0.5
"""Seconds between tries to learn the current resourceVersion."""

log = structlog.get_logger(__name__)


class ConfigMap(msgspec.Struct, frozen=True):
    """Of a core/v1 ConfigMap: its data."""

    data: dict[str, str] = {}


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta


_lists = msgspec.json.Decoder(_List)
_config_maps = msgspec.json.Decoder(ConfigMap)


class Kind(Protocol):
    """How a collection's objects become events."""

    def seen(self, ref: Ref, found: Any) -> Event | None: ...

    def gone(self, ref: Ref) -> Event | None: ...

    def listed(self) -> Event | None:
        """Everything was told."""
        return None


class Pods(Kind):
    """Pods, known by UID."""

    def seen(self, _: Ref, found: objects.Pod) -> Event:
        return PodSeen(found)

    def gone(self, ref: Ref) -> Event:
        return PodGone(ref.uid)

    def listed(self) -> Event:
        return PodsListed()


class Nodes(Kind):
    """Nodes, known by name."""

    def seen(self, _: Ref, found: objects.Node) -> Event:
        return NodeSeen(found)

    def gone(self, ref: Ref) -> Event:
        return NodeGone(ref.name)


class SickGpus(Kind):
    """gpushare's ConfigMaps `unhealthy-gpu-<node>`: a comma list of GPU minor numbers under `gpus`."""

    def seen(self, ref: Ref, found: ConfigMap) -> Event | None:
        if not ref.name.startswith(names.UNHEALTHY_CONFIGMAP_PREFIX):
            return None
        listed = [part.strip() for part in found.data.get(names.UNHEALTHY_CONFIGMAP_KEY, "").split(",")]
        bad = [part for part in listed if part and not (part.isascii() and part.isdecimal())]
        if bad:
            log.warning("unhealthy_gpus_not_read", config_map=ref.name, entries=bad, expected="GPU minor numbers")
        minors = frozenset(int(part) for part in listed if part and part not in bad)
        return GpusUnhealthy(ref.name.removeprefix(names.UNHEALTHY_CONFIGMAP_PREFIX), minors)

    def gone(self, ref: Ref) -> Event | None:
        return self.seen(ref, ConfigMap())


class Feed:
    """One collection, told to the engine for ever."""

    def __init__(
        self,
        client: ApiClient,
        path: str,
        decode: Callable[[bytes], Any],
        kind: Kind,
        tell: Callable[[Event], None],
        metrics: Metrics,
    ) -> None:
        self._client, self._path, self._kind, self._tell, self._metrics = client, path, kind, tell, metrics
        self._reflector: Reflector[Any] = Reflector(client, path, decode)
        metrics.watching.labels(path).set_function(lambda: self._reflector.trouble is None)
        self._version = -1
        self._listed = asyncio.Event()

    async def run(self) -> None:
        """Tell everything that happens."""
        async for event in self._reflector.events():
            self._take(event)

    async def listed(self) -> None:
        """Wait until everything that is there was told once."""
        await self._listed.wait()

    async def relisted(self) -> None:
        """Wait until a consistent list, no older than this call, was told."""
        now = await self._now()
        while self._version < now:
            self._listed.clear()
            self._reflector.relist()
            await self._listed.wait()

    async def _now(self) -> int:
        """The collection's resourceVersion at this moment, read consistently.

        Versions of one resource are compared as numbers. Source: KEP-5504, comparable resource versions.
        """
        while True:
            try:
                read = await self._client.fetch(self._path, _lists, params={"limit": "1"})
                return int(read.metadata.resource_version)
            except errors.ApiError as error:
                log.warning("list_failed", path=self._path, error=str(error))
            await asyncio.sleep(NOW_TRIES_S)

    def _take(self, event: changes.Event[Any]) -> None:
        told: Event | None = None
        match event:
            case changes.Added(ref, found) | changes.Modified(ref, found):
                told = self._kind.seen(ref, found)
            case changes.Deleted(ref, _):
                told = self._kind.gone(ref)
            case changes.Listed(version):
                self._version = int(version)
                self._metrics.lists.labels(self._path).inc()
                self._listed.set()
                told = self._kind.listed()
            case changes.Undecodable(ref, _, error):
                self._metrics.problems["undecodable"] += 1
                log.warning(
                    "undecodable", path=self._path, object=ref and f"{ref.namespace}/{ref.name}", error=str(error)
                )
        if told is not None:
            self._tell(told)


class Watches:
    """All collections that the engine lives on."""

    def __init__(self, client: ApiClient, tell: Callable[[Event], None], metrics: Metrics, *, gpushare: bool) -> None:
        def feed(path: str, decode: Callable[[bytes], Any], kind: Kind) -> Feed:
            return Feed(client, path, decode, kind, tell, metrics)

        self._nodes = feed(paths.nodes(), objects.decode_node, Nodes())
        self._others = [feed(paths.pods(), objects.decode_pod, Pods())]
        if gpushare:
            sick = paths.path("v1", "configmaps", namespace=names.UNHEALTHY_CONFIGMAP_NAMESPACE)
            self._others.append(feed(sick, _config_maps.decode, SickGpus()))
        self.replayed = asyncio.Event()
        """Set once everything was told."""

    async def run(self) -> None:
        """Watch for ever. Nodes are listed before pods, so that each pod is booked once, onto known GPUs."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            await self._nodes.listed()
            for feed in self._others:
                tasks.create_task(feed.run())
            for feed in self._others:
                await feed.listed()
            self.replayed.set()

    async def catch_up(self) -> None:
        """One consistent list of everything, told; for the moment of taking over from another."""
        await _all(feed.relisted() for feed in (self._nodes, *self._others))


async def _all(waits: Iterable[Any]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for wait in waits:
            tasks.create_task(wait)

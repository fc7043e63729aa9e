"""What the API server shows, as the engine's events: pods, nodes, PodGroups, GpuClasses; for gpushare sick GPUs."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from extender.cluster import budgets, classes, groups, namespaces, priorities, queues, scalers
from extender.cluster.feed import Feed, Kind, together
from extender.cluster.optional import Complain, OptionalKinds
from extender.engine.types.events import Event, GpusUnhealthy, NodeGone, NodeSeen, PodGone, PodSeen, PodsListed
from extender.metrics import Metrics
from protos.contract import names, objects
from protos.contract.bounds import GPU_INDEX
from protos.contract.reason import listed
from protos.contract.selection import is_number
from protos.kube import paths
from protos.kube.changes import Ref
from protos.kube.client import ApiClient

NAMED, SHOWN = 8, 40
"""Entries that a log line names, and characters of each."""

log = structlog.get_logger(__name__)


class ConfigMap(msgspec.Struct, frozen=True):
    """Of a core/v1 ConfigMap: its data."""

    data: dict[str, str] = {}


_config_maps = msgspec.json.Decoder(ConfigMap)


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
        parts = filter(None, map(str.strip, found.data.get(names.UNHEALTHY_CONFIGMAP_KEY, "").split(",")))
        minors: set[int] = set()
        bad: list[str] = []
        for part in parts:
            if is_number(part) and int(part) <= GPU_INDEX.most:
                minors.add(int(part))
            else:
                bad.append(part[:SHOWN])
        if bad:
            log.warning(
                "unhealthy_gpus_not_read", config_map=ref.name, entries=listed(bad, NAMED), expected="GPU minor numbers"
            )
        return GpusUnhealthy(ref.name.removeprefix(names.UNHEALTHY_CONFIGMAP_PREFIX), frozenset(minors))

    def gone(self, ref: Ref) -> Event | None:
        return self.seen(ref, ConfigMap())


class Watches:
    """All collections that the engine lives on."""

    def __init__(
        self,
        client: ApiClient,
        tell: Callable[[Event], None],
        metrics: Metrics,
        complain: Complain,
        *,
        gpushare: bool,
        calm: asyncio.Event | None = None,
    ) -> None:
        """`complain` tells the owner of a PodGroup, GpuClass or queue that it cannot be read.

        While `calm` is not set, nothing is told of pods.
        """

        def feed(path: str, decode: Callable[[bytes], Any], kind: Kind, calm: asyncio.Event | None = None) -> Feed:
            return Feed(client, path, decode, kind, tell, metrics, calm=calm)

        self._nodes = feed(paths.nodes(), objects.decode_node, Nodes())
        sources = [*groups.sources(complain), classes.source(complain), *queues.sources(complain)]
        sources += [namespaces.source(), budgets.source(), priorities.source(), *scalers.sources()]
        self._optional = OptionalKinds(client, sources, tell, metrics)
        self._others = [feed(paths.pods(), objects.decode_pod, Pods(), calm)]
        if gpushare:
            sick = paths.path("v1", "configmaps", namespace=names.UNHEALTHY_CONFIGMAP_NAMESPACE)
            self._others.append(feed(sick, _config_maps.decode, SickGpus()))
        self.replayed = asyncio.Event()
        """Set once everything was told."""

    async def run(self) -> None:
        """Watch for ever.

        Nodes are listed before pods, so that each pod is booked once, onto known GPUs; PodGroups, GpuClasses and queues
        too, so that no gang is known without its minimum, and no pod waits for what is there.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._optional.run())
            await self._nodes.listed()
            await self._optional.listed()
            for feed in self._others:
                tasks.create_task(feed.run())
            for feed in self._others:
                await feed.listed()
            self.replayed.set()

    async def catch_up(self) -> None:
        """One consistent list of everything, told; for the moment of taking over from another."""
        feeds = [feed.relisted() for feed in (self._nodes, *self._others)]
        await together([self._optional.relisted(), *feeds])

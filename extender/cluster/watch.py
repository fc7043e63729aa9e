"""Watches every kind of `extender.cluster.kinds`, in the order that the engine needs."""

import asyncio
from collections.abc import Callable

from extender.cluster import kinds
from extender.cluster.feed import Feed, together
from extender.cluster.kinds import Complain
from extender.cluster.optional import OptionalKinds
from extender.engine.types.events import Event
from extender.metrics import Metrics
from protos.kube.client import ApiClient


class Watches:
    """All collections that the engine needs."""

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
        """`complain` reports a PodGroup, GpuClass or queue that cannot be read to its owner.

        While `calm` is not set, the feed of pods pauses.
        """
        self._nodes = Feed(client, kinds.NODES, tell, metrics)
        self._optional = OptionalKinds(client, kinds.optional(complain), tell, metrics)
        self._others = [Feed(client, kinds.PODS, tell, metrics, calm=calm)]
        if gpushare:
            self._others.append(Feed(client, kinds.UNHEALTHY_GPUS, tell, metrics))
        self.replayed = asyncio.Event()
        """Set once the engine knows every object."""

    async def run(self) -> None:
        """Watch for ever.

        Nodes are listed before pods, so that each pod is booked once, onto known GPUs. So are PodGroups, GpuClasses and
        queues, so that no gang lacks its minimum, and no pod waits for an object that exists.
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
        """List everything once more, consistently: for a replica that takes over from another."""
        feeds = [feed.relisted() for feed in (self._nodes, *self._others)]
        await together([self._optional.relisted(), *feeds])

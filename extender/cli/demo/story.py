"""What the demo's stories share: a cluster that is looked at while pods come and go."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from extender.sim.apiserver.resources import PODS
from extender.sim.apiserver.store import Cursor
from extender.sim.cluster import EmbeddedCluster

PATIENCE_S = 60.0
LOOK_S = 0.05
READ_S = 1.5
"""Seconds for which things are left as they stand, so that one can read them."""


class Story(ABC):
    """Shows what becomes of pods on a cluster. `faults` is what should not have happened."""

    def __init__(self, cluster: EmbeddedCluster, speed: float) -> None:
        self._cluster, self._speed = cluster, speed
        self.faults: list[str] = []

    async def tell(self) -> None:
        """From the first pod to the last; WaitError where it does not go on."""
        store = self._cluster.api.store
        following = asyncio.create_task(self._follow(store.watch(PODS, store.rv)))
        try:
            await self._happen()
        finally:
            following.cancel()

    @abstractmethod
    async def _follow(self, changes: Cursor) -> None:
        """Look at each change of a pod."""

    @abstractmethod
    async def _happen(self) -> None:
        """The steps of the story, one after the other."""

    async def _pause(self) -> None:
        await asyncio.sleep(READ_S / self._speed)

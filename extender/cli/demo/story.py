"""The base of the demo's stories."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from extender.sim.apiserver.resources import PODS
from extender.sim.apiserver.store import Cursor
from extender.sim.cluster import EmbeddedCluster
from extender.sim.podspec import Object

TIMEOUT_S = 60.0
POLL_S = 0.05
READ_S = 1.5
"""Pause after each step, for the reader."""


class Story(ABC):
    """Creates workloads and shows what happens to them. `faults` collects what should not have happened."""

    def __init__(self, cluster: EmbeddedCluster, speed: float) -> None:
        self._cluster, self._speed = cluster, speed
        self.faults: list[str] = []

    async def run(self) -> None:
        """Run all steps; raises WaitError if one takes too long."""
        store = self._cluster.api.store
        following = asyncio.create_task(self._follow(store.watch(PODS, store.rv)))
        try:
            await self._steps()
        finally:
            following.cancel()

    async def _follow(self, changes: Cursor) -> None:
        while True:
            for change in await changes.next():
                self._pod_changed(change.item.obj)

    @abstractmethod
    def _pod_changed(self, pod: Object) -> None:
        """Observe a change of a pod."""

    @abstractmethod
    async def _steps(self) -> None:
        """Run the steps in order."""

    async def _pause(self) -> None:
        await asyncio.sleep(READ_S / self._speed)

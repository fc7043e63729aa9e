"""Keeps every resource of the offer registered: those of MIG profiles come and go with the instances of the node."""

import asyncio
from collections.abc import Callable

import structlog

from deviceplugin.offer import Offer
from deviceplugin.register import SETTLE_S, Registrar

log = structlog.get_logger()


class Registrars:
    """One registrar for each resource. A resource that is offered no more is withdrawn; its pods keep their devices."""

    def __init__(self, offer: Offer, make: Callable[[str], Registrar]) -> None:
        """`make` makes the registrar of a resource."""
        self._offer, self._make = offer, make
        self._running: dict[str, tuple[Registrar, asyncio.Task[None]]] = {}
        self._withdrawn: set[str] = set()
        """Resources that were registered before, and are not now."""

    @property
    def settled(self) -> bool:
        """Whether the kubelet follows the device list of every resource, or that of another plugin."""
        return bool(self._running) and all(registrar.settled for registrar, _ in self._running.values())

    @property
    def ours(self) -> frozenset[str]:
        """The resources that no other plugin serves."""
        return frozenset(resource for resource, (registrar, _) in self._running.items() if not registrar.foreign)

    async def run(self) -> None:
        """Follow the offer for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                changed = self._offer.changed
                self._follow(group)
                await changed.wait()

    def _follow(self, group: asyncio.TaskGroup) -> None:
        wanted = self._offer.resources
        for resource in wanted:
            if resource not in self._running:
                registrar = self._make(resource)
                self._running[resource] = registrar, group.create_task(self._registered(registrar))
        for resource in self._running.keys() - set(wanted):
            _, task = self._running.pop(resource)
            task.cancel()
            self._withdrawn.add(resource)
            log.info("resource_withdrawn", resource=resource)

    async def _registered(self, registrar: Registrar) -> None:
        """Keep a resource registered; the end of its last registration may disconnect a new one that comes at once."""
        if registrar.resource in self._withdrawn:
            self._withdrawn.discard(registrar.resource)
            await asyncio.sleep(SETTLE_S)
        await registrar.run()

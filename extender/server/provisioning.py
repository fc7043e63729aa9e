"""Has the engine decide from time to time which gangs ask an autoscaler for capacity, and carries that out."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from extender.cluster.leadership import NotLeading
from extender.cluster.pending import Write
from extender.cluster.provisioning import Requests
from extender.engine.gangs.provisioning import Ask, Orders, said
from extender.engine.types.effects import PodRef, Report
from extender.server.core import Core
from protos.contract import provisioning
from protos.contract.provisioning import Request
from protos.kube import errors
from protos.kube.reflect import ABSENT

LOOK_S = 5.0
"""Seconds between two looks."""
ABSENT_S = 60.0
"""The same while the API server lacks the kind, or does not let us read it."""

log = structlog.get_logger(__name__)


class ProvisioningDesk:
    """Looks for ever, while this process leads."""

    def __init__(
        self, core: Core, requests: Requests, leads: Callable[[], bool], submit: Callable[[list[Write]], None]
    ) -> None:
        self._core, self._requests, self._leads, self._submit = core, requests, leads, submit
        self._said: dict[str, str] = {}
        """The state of each request (UID) in the last Event."""
        self._consuming: set[tuple[str, str]] = set()
        """Members (UID) with the request that they name."""
        self._absent = False

    async def run(self) -> None:
        """Look for ever."""
        while True:
            pause = LOOK_S
            if self._leads():
                with self._core.metrics.faults.over("provisioning"):
                    pause = await self._round()
            await asyncio.sleep(pause)

    async def _round(self) -> float:
        try:
            found = await self._requests.found()
            self._absent = False
            orders = self._core.metrics.steps.timed("Provisioning", self._look, found)
            await self._carry_out(orders)
            self._report(found, orders)
        except ABSENT as error:
            if not self._absent:
                log.warning("no_provisioning_requests", error=str(error), expected="the kind, and the right to list it")
            self._absent = True
            return ABSENT_S
        except NotLeading:
            log.debug("provisioning_left")
        except errors.ApiError as error:
            log.warning("provisioning_failed", error=str(error))
        return LOOK_S

    def _look(self, found: list[Request]) -> Orders:
        return self._core.engine.provisioning.look(found, time.monotonic())

    async def _carry_out(self, orders: Orders) -> None:
        for request in orders.over:
            await self._alone(self._withdraw(request), request)
        for ask in orders.asks:
            await self._alone(self._ask(ask), ask.request)
        named = {(pod.uid, request.name) for request, pod in orders.consumers}
        self._consuming &= named
        for request, pod in orders.consumers:
            if (pod.uid, request.name) not in self._consuming:
                await self._alone(self._consume(request, pod), request)

    async def _alone(self, work: Coroutine[Any, Any, None], request: Request) -> None:
        """A request that the API server refuses, for a quota say, does not hold up the others."""
        try:
            await work
        except NotLeading:
            raise
        except errors.ApiError as error:
            log.warning("provisioning_refused", request=f"{request.namespace}/{request.name}", error=str(error))
            self._core.metrics.errors["Provisioning"] += 1

    async def _withdraw(self, request: Request) -> None:
        await self._requests.withdraw(request)
        log.info("provisioning_over", request=f"{request.namespace}/{request.name}", state=request.state)

    async def _ask(self, ask: Ask) -> None:
        if await self._requests.ask(ask):
            pods = sum(count for _, count in ask.pod_sets)
            log.info("provisioning_asked", request=f"{ask.request.namespace}/{ask.request.name}", pods=pods)
        if ask.before is not None:
            await self._requests.withdraw(ask.before)

    async def _consume(self, request: Request, pod: PodRef) -> None:
        await self._requests.consume(request, pod)
        self._consuming.add((pod.uid, request.name))

    def _report(self, found: list[Request], orders: Orders) -> None:
        """One Event on a member for each new state of a request."""
        for request in found:
            if request.uid in orders.about and self._said.get(request.uid) != request.state:
                warning = request.state in provisioning.OVER
                self._submit([Report(orders.about[request.uid], said(request), warning)])
                self._said[request.uid] = request.state
        known = {request.uid for request in found}
        self._said = {uid: state for uid, state in self._said.items() if uid in known}

"""Carries binds through, from kube-scheduler's question to a decided Binding.

Each bind runs in a task of its own: it goes on when the connection that asked is gone, and a second question about the
same pod joins it.
"""

import asyncio
import time
from typing import NamedTuple

import structlog

from extender.cluster.bind import Binder
from extender.engine.effects import Already, BindDone, Place, PodRef, Refuse
from extender.server.core import Core

log = structlog.get_logger(__name__)


class _Flight(NamedTuple):
    node: str
    task: asyncio.Task[str]


class Binds:
    """All binds under way."""

    def __init__(self, core: Core, binder: Binder, tasks: asyncio.TaskGroup) -> None:
        """`tasks` owns the binds: one that fails otherwise than by an answer ends the process, which can start anew."""
        self._core, self._binder, self._tasks = core, binder, tasks
        self._flights: dict[str, _Flight] = {}
        self.arrived = asyncio.Event()
        """Set whenever the books of a bind were decided."""

    async def bind(self, ref: PodRef, node: str) -> str:
        """Bind the pod; "" when it is bound there, else why not."""
        while (flight := self._flights.get(ref.uid)) is not None:
            error = await asyncio.shield(flight.task)
            if flight.node == node:
                return error
        answer = self._core.engine.bind(ref, node, self._core.clock(), time.time_ns())
        self.arrived.set()
        match answer:
            case Already():
                return self._told(ref, node, "Already")
            case Refuse(reason):
                return self._told(ref, node, reason.code, str(reason))
            case Place():
                task = self._tasks.create_task(self._carry(answer))
                self._flights[ref.uid] = _Flight(node, task)
                return await asyncio.shield(task)

    async def _carry(self, place: Place) -> str:
        try:
            outcome = await self._binder.bind(place)
            self._core.tell(BindDone(place.pod.uid, outcome.kind))
        finally:
            del self._flights[place.pod.uid]
        return self._told(place.pod, place.node, outcome.kind.capitalize(), outcome.sentence)

    def _told(self, ref: PodRef, node: str, code: str, error: str = "") -> str:
        self._core.metrics.decisions.labels("bind", code).inc()
        log.info("bind", pod=str(ref), uid=ref.uid, node=node, code=code, **({"error": error} if error else {}))
        return error

    async def drained(self, patience_s: float) -> bool:
        """Wait until no bind is under way; False if some still were after so long."""
        waiting = [flight.task for flight in self._flights.values()]
        if waiting:
            log.info("binds_draining", binds=len(waiting))
            await asyncio.wait(waiting, timeout=patience_s)
        return not self._flights

    def abandon(self) -> None:
        """Give up what is still under way: the process ends, and the next one reads what became of it."""
        for flight in self._flights.values():
            flight.task.cancel()

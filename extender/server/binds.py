"""Carries binds through, from kube-scheduler's question to a decided Binding.

Each bind runs in a task of its own: it goes on when the connection that asked is gone, and a second question about the
same pod joins it. Only while the engine holds it, since the pod's gang is not all there yet, whoever asked may leave:
then the pod is not there any more either.

Binds of members of a gang end when all its Bindings are decided: an answer sets kube-scheduler to work (an Event for
each pod, among others), which would take its time from the writes that are still to come. For the same reason what the
watch of pods tells, mostly of these very Bindings, waits until then.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from extender.cluster.bind import Binder
from extender.engine.types.effects import Held, Open, PodRef, PostBinding, Refuse
from extender.engine.types.events import BindAbandoned, BindDone
from extender.server.core import Core, Release
from protos.contract.reason import Reason

LEFT = "the bind was abandoned: the scheduler stopped waiting for its answer, or asked again"
BROKEN = "Gangshare had an internal error; the pod is tried again"
TOGETHER_S = 2.0
"""Seconds at most for which a bind waits for the Bindings of other members."""
MANY, CALM_S = 64, 1.0
"""So many Bindings at once, and what has time waits for them: for so many seconds at most, and half of the time."""
Gone = Callable[[], Coroutine[Any, Any, None]]
"""Waits until whoever asked does not wait for the answer any more."""
Decision = asyncio.Future[PostBinding | Reason | None]
"""Of a held bind: it goes on, or why it does not; None once nobody waits for it."""

log = structlog.get_logger(__name__)


class _Together:
    """Held binds that were let go at one moment: the members of a gang."""

    def __init__(self) -> None:
        self.undecided = 0
        self.calm = asyncio.Event()
        """Set once all their Bindings are decided."""


class _Flight:
    """One bind under way."""

    def __init__(self, node: str, decision: Decision) -> None:
        """It is held until `decision` is made."""
        self.node, self.decision = node, decision
        self.askers = 0
        self.together: _Together | None = None
        """With whom it was let go, if it was held."""
        self.task: asyncio.Task[str]

    @property
    def held(self) -> bool:
        return not self.decision.done()


class Binds:
    """All binds under way."""

    def __init__(self, core: Core, binder: Binder, tasks: asyncio.TaskGroup) -> None:
        """`tasks` owns the binds."""
        self._core, self._binder, self._tasks = core, binder, tasks
        self._flights: dict[str, _Flight] = {}
        self.arrived = asyncio.Event()
        """Set whenever the books of a bind were decided."""
        self._calm_again = 0.0
        self._letting_go: _Together | None = None
        """Who is let go at this moment."""
        core.release = self._release

    async def bind(self, ref: PodRef, node: str, gone: Gone) -> str:
        """Bind the pod; "" when it is bound there, else why not."""
        while (flight := self._flights.get(ref.uid)) is not None:
            if flight.node == node:
                return await self._awaited(ref, flight, gone)
            if flight.held:
                break
            await asyncio.shield(flight.task)
        core = self._core
        answer = core.metrics.steps.timed("bind", core.engine.bind, ref, node, core.clock(), time.time_ns())
        self.arrived.set()
        if isinstance(answer, PostBinding | Held):
            flight = self._start(ref, node)
            if isinstance(answer, PostBinding):
                flight.decision.set_result(answer)
            else:
                self._binder.expect(len(self._flights))
            self._core.flush()
            return await self._awaited(ref, flight, gone)
        self._core.flush()
        if isinstance(answer, Refuse):
            return self._told(ref, node, answer.reason.code, str(answer.reason))
        return self._told(ref, node, "Already")

    def _start(self, ref: PodRef, node: str) -> _Flight:
        """A bind that is held; it takes the place of one on another node."""
        former = self._flights.get(ref.uid)
        if former is not None:
            former.decision.set_result(None)
        flight = self._flights[ref.uid] = _Flight(node, asyncio.get_running_loop().create_future())
        flight.task = self._tasks.create_task(self._fly(ref, flight))
        return flight

    async def _fly(self, ref: PodRef, flight: _Flight) -> str:
        try:
            with self._core.metrics.faults.over("bind", f"{ref} {flight.node}"):
                return await self._decided(ref, flight)
            return BROKEN  # what became of it is asked anew: the books hold its place until then
        finally:
            if self._flights.get(ref.uid) is flight:
                del self._flights[ref.uid]

    async def _decided(self, ref: PodRef, flight: _Flight) -> str:
        match await flight.decision:
            case PostBinding() as place:
                return await self._carry(place, flight.together)
            case Reason(code, sentence):
                return self._told(ref, flight.node, code, sentence)
            case None:
                return self._told(ref, flight.node, "Left", LEFT)

    async def _awaited(self, ref: PodRef, flight: _Flight, gone: Gone) -> str:
        """How the bind ended; who asked may leave while it is held."""
        if flight.held:
            flight.askers += 1
            leaving = asyncio.create_task(gone())
            ends: set[asyncio.Future[Any]] = {flight.decision, leaving}
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                leaving.cancel()
                flight.askers -= 1
                if flight.held and not flight.askers:
                    self._leave(ref, flight)
        return await asyncio.shield(flight.task)

    def _leave(self, ref: PodRef, flight: _Flight) -> None:
        flight.decision.set_result(None)
        del self._flights[ref.uid]
        self._core.tell(BindAbandoned(ref.uid))

    def _release(self, effect: Release) -> None:
        """A held bind goes on, or is refused."""
        flight = self._flights.get(effect.pod.uid)
        if flight is not None and flight.held:
            if isinstance(effect, Open):
                flight.together = self._let_go()
            flight.decision.set_result(effect.place if isinstance(effect, Open) else effect.reason)
        elif flight is None and isinstance(effect, Open):  # who asked left at this very moment: nothing is written
            asyncio.get_running_loop().call_soon(self._core.tell, BindDone(effect.pod.uid, "lost"))

    def _let_go(self) -> _Together:
        """One more is let go at this moment, which ends when the event loop goes on."""
        if self._letting_go is None:
            self._letting_go = _Together()
            asyncio.get_running_loop().call_soon(self._all_let_go, self._letting_go)
        self._letting_go.undecided += 1
        return self._letting_go

    def _all_let_go(self, together: _Together) -> None:
        self._letting_go = None
        loop = asyncio.get_running_loop()
        if together.undecided >= MANY and loop.time() >= self._calm_again:
            self._calm_again = loop.time() + 2 * CALM_S
            self._core.calm.clear()
            loop.call_later(CALM_S, self._core.calm.set)

    async def _carry(self, place: PostBinding, together: _Together | None) -> str:
        try:
            outcome = await self._binder.bind(place)
        finally:
            if together is not None:
                together.undecided -= 1
                if not together.undecided:
                    together.calm.set()
                    self._core.calm.set()
        self._core.tell(BindDone(place.pod.uid, outcome.kind))
        if together is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(together.calm.wait(), TOGETHER_S)
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

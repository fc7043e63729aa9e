"""Carries binds through, from kube-scheduler's question to a decided Binding.

Each bind runs in a task of its own. It goes on if its caller is gone, and a second question about the same pod joins
it. The engine holds the bind of a member until its gang is complete. Only a held bind ends when its callers leave: then
the pod no longer waits at the barrier.

Binds of members of a gang end when all its Bindings are decided. An answer gives kube-scheduler work (an Event for each
pod, among others), which would delay the writes still to come. For the same reason events of the pod watch, mostly
about these very Bindings, wait until then.
"""

import asyncio
import contextlib
import time
from typing import Any

import structlog

from extender.cluster.bind import Binder
from extender.engine.types.effects import Held, Open, PodRef, PostBinding, Refuse
from extender.engine.types.events import BindAbandoned, BindDone
from extender.server.core import Core, Release
from extender.server.direct import Gone
from protos.contract.reason import Reason

LEFT = "the bind was abandoned: the scheduler stopped waiting for its answer, or asked again"
BROKEN = "Gangshare had an internal error; the pod is tried again"
TOGETHER_S = 2.0
"""Seconds at most for which a bind waits for the Bindings of other members."""
MANY, CALM_S = 64, 1.0
"""If so many Bindings are written at once, less urgent work waits: at most so many seconds, and half of the time."""
Decision = asyncio.Future[PostBinding | Reason | None]
"""The Binding of a held bind, or why there is none; None if its callers left."""

log = structlog.get_logger(__name__)


class _Released:
    """Held binds that were released at the same moment: the members of a gang."""

    def __init__(self) -> None:
        self.undecided = 0
        self.calm = asyncio.Event()
        """Set once all their Bindings are decided."""


class _Bind:
    """One bind under way. It is held until `decision` is made."""

    def __init__(self, node: str, decision: Decision) -> None:
        self.node, self.decision = node, decision
        self.callers = 0
        """Callers that wait while it is held."""
        self.released: _Released | None = None
        """The members released with it, if it was held."""
        self.task: asyncio.Task[str]

    @property
    def held(self) -> bool:
        return not self.decision.done()


class Binds:
    """All binds under way, one for each pod."""

    def __init__(self, core: Core, binder: Binder, tasks: asyncio.TaskGroup) -> None:
        """`tasks` owns the tasks of the binds."""
        self._core, self._binder, self._tasks = core, binder, tasks
        self._binds: dict[str, _Bind] = {}
        """By UID of the pod."""
        self.arrived = asyncio.Event()
        """Set whenever the engine has answered a bind."""
        self._calm_again = 0.0
        self._releasing: _Released | None = None
        """The members released in this turn of the event loop."""
        core.release = self._release

    async def bind(self, ref: PodRef, node: str, gone: Gone) -> str:
        """Bind the pod; "" if it is bound there, else why not."""
        while (bind := self._binds.get(ref.uid)) is not None:
            if bind.node == node:
                return await self._awaited(ref, bind, gone)
            if bind.held:
                break
            await asyncio.shield(bind.task)
        core = self._core
        answer = core.metrics.steps.timed("bind", core.engine.bind, ref, node, core.clock(), time.time_ns())
        self.arrived.set()
        if isinstance(answer, PostBinding | Held):
            bind = self._start(ref, node)
            core.observer.bind_asked(ref, node)
            if isinstance(answer, PostBinding):
                bind.decision.set_result(answer)
            else:
                self._binder.expect(len(self._binds))
            self._core.flush()
            return await self._awaited(ref, bind, gone)
        self._core.flush()
        if isinstance(answer, Refuse):
            return self._log(ref, node, answer.reason.code, str(answer.reason))
        return self._log(ref, node, "Already")

    def _start(self, ref: PodRef, node: str) -> _Bind:
        """Start a held bind. It replaces one to another node."""
        former = self._binds.get(ref.uid)
        if former is not None:
            former.decision.set_result(None)
        bind = self._binds[ref.uid] = _Bind(node, asyncio.get_running_loop().create_future())
        bind.task = self._tasks.create_task(self._run(ref, bind))
        return bind

    async def _run(self, ref: PodRef, bind: _Bind) -> str:
        try:
            with self._core.metrics.faults.over("bind", f"{ref} {bind.node}"):
                match await bind.decision:
                    case PostBinding() as place:
                        return await self._carry(place, bind.released)
                    case Reason(code, sentence):
                        self._core.observer.bind_ended(ref, code)
                        return self._log(ref, bind.node, code, sentence)
                    case None:
                        self._core.observer.bind_ended(ref, "Left")
                        return self._log(ref, bind.node, "Left", LEFT)
            return BROKEN  # the books hold its place until its outcome is known
        finally:
            if self._binds.get(ref.uid) is bind:
                del self._binds[ref.uid]

    async def _awaited(self, ref: PodRef, bind: _Bind, gone: Gone) -> str:
        """The answer of a bind. The caller may leave while it is held."""
        if bind.held:
            bind.callers += 1
            leaving = asyncio.create_task(gone())
            ends: set[asyncio.Future[Any]] = {bind.decision, leaving}
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                leaving.cancel()
                bind.callers -= 1
                if bind.held and not bind.callers:
                    bind.decision.set_result(None)
                    del self._binds[ref.uid]
                    self._core.tell(BindAbandoned(ref.uid))
        return await bind.task  # unshielded: the task of a question is cancelled only when the process ends

    def _release(self, effect: Release) -> None:
        """Let a held bind go on, or refuse it."""
        bind = self._binds.get(effect.pod.uid)
        if bind is not None and bind.held:
            if isinstance(effect, Open):
                bind.released = self._released_now()
            bind.decision.set_result(effect.place if isinstance(effect, Open) else effect.reason)
        elif bind is None and isinstance(effect, Open):  # the caller left at this very moment: nothing is written
            asyncio.get_running_loop().call_soon(self._core.tell, BindDone(effect.pod.uid, "lost"))

    def _released_now(self) -> _Released:
        """Count one more member released in this turn of the event loop."""
        if self._releasing is None:
            self._releasing = _Released()
            asyncio.get_running_loop().call_soon(self._all_released, self._releasing)
        self._releasing.undecided += 1
        return self._releasing

    def _all_released(self, released: _Released) -> None:
        self._releasing = None
        loop = asyncio.get_running_loop()
        if released.undecided >= MANY and loop.time() >= self._calm_again:
            self._calm_again = loop.time() + 2 * CALM_S
            self._core.calm.clear()
            loop.call_later(CALM_S, self._core.calm.set)

    async def _carry(self, place: PostBinding, released: _Released | None) -> str:
        self._core.observer.released(place.pod)
        try:
            outcome = await self._binder.bind(place)
        finally:
            if released is not None:
                released.undecided -= 1
                if not released.undecided:
                    released.calm.set()
                    self._core.calm.set()
        self._core.observer.bind_ended(place.pod, outcome.kind.capitalize())
        self._core.tell(BindDone(place.pod.uid, outcome.kind))
        if released is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(released.calm.wait(), TOGETHER_S)
        return self._log(place.pod, place.node, outcome.kind.capitalize(), outcome.sentence)

    def _log(self, ref: PodRef, node: str, code: str, error: str = "") -> str:
        self._core.metrics.decisions["bind", code] += 1
        if error:
            log.info("bind", pod=str(ref), uid=ref.uid, node=node, code=code, error=error)
        else:  # the pod's Event Scheduled and its annotation say as much
            log.debug("bind", pod=str(ref), uid=ref.uid, node=node, code=code)
        return error

    async def drained(self, patience_s: float) -> bool:
        """Wait until no bind is under way; False if some remain after so many seconds."""
        waiting = [bind.task for bind in self._binds.values()]
        if waiting:
            log.info("binds_draining", binds=len(waiting))
            await asyncio.wait(waiting, timeout=patience_s)
        return not self._binds

    def abandon(self) -> None:
        """Cancel all binds: the process ends, and the next one reads what became of them."""
        for bind in self._binds.values():
            bind.task.cancel()

"""kube-scheduler's questions over HTTP: filter, prioritize, preempt, bind; observe, where it shows us all other pods.

Bare ASGI: a body is decoded straight into the shapes of `extender.wire`, the engine answers from memory, and nothing
is awaited between reading the books and writing them. kube-scheduler takes anything but 200 for an error of the whole
attempt, which is what a question at the closed gate (503) is.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import structlog

from extender.engine.types.effects import PodRef, Verdict
from extender.server.binds import BROKEN, Binds, Gone
from extender.server.core import Core
from extender.server.desk import Traffic
from extender.server.gate import Gate
from extender.wire import shapes
from protos.contract.bounds import BIND_BODY, VERB_BODY
from protos.contract.objects import Pod

JSON, TEXT = b"application/json", b"text/plain; charset=utf-8"
PREFIX = "/scheduler"

log = structlog.get_logger(__name__)
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
Answer = tuple[int, bytes, bytes]
"""Status, media type, body."""
Handler = Callable[[bytes], Awaitable[Answer]]
"""Answers a body at once."""
Patient = Callable[[bytes, Gone], Awaitable[Answer]]
"""Answers a body, perhaps late; it may find out whether anybody still waits for that."""


def answer(value: Any, status: int = 200) -> Answer:
    """An answer in JSON."""
    return status, JSON, shapes.encode(value)


def complaint(status: int, sentence: str) -> Answer:
    """An answer that says in words what is wrong."""
    return status, TEXT, sentence.encode()


def at_once(handler: Handler) -> Patient:
    """A handler that does not care who waits."""
    return lambda body, _: handler(body)


class Verbs:
    """The questions, answered from one engine."""

    def __init__(self, core: Core, binds: Binds, gate: Gate) -> None:
        self._core, self._binds, self._gate = core, binds, gate

    @property
    def handlers(self) -> Mapping[str, Patient]:
        """By path, of those that are answered behind the gate."""
        verbs = (self.filter, self.prioritize, self.preempt)
        return {f"{PREFIX}/{verb.__name__}": at_once(verb) for verb in verbs} | {f"{PREFIX}/bind": self.bind}

    @property
    def ungated(self) -> Mapping[str, Patient]:
        """By path, of those that are answered whether the gate is open or not."""
        return {f"{PREFIX}/{self.observe.__name__}": at_once(self.observe)}

    async def filter(self, body: bytes) -> Answer:
        asked = shapes.args(body)
        return _filtered(asked, await self.verdict(asked))

    async def observe(self, body: bytes) -> Answer:
        """filter of a pod that names none of our resources: it is none of our business unless its gang waits.

        kube-scheduler passes over this entry where it errs, and binds such pods itself: so a member has to be refused
        by an answer, and nobody else may wait for anything.
        """
        seen = shapes.glance(body)
        if not self._core.engine.concerns(seen.pod):
            return 200, JSON, shapes.unchanged(seen)
        asked = shapes.args(body)
        if self._gate.why:
            return _filtered(asked, Verdict((), self._core.engine.hold_back(asked.pod)))
        return _filtered(asked, await self.verdict(asked, unheld=True))

    async def verdict(self, asked: shapes.Args, *, unheld: bool = False) -> Verdict:
        """Which of the nodes asked the pod may go to, or why none. `unheld`: its bind will not be asked of us."""
        engine, timed = self._core.engine, self._core.metrics.steps.timed
        while timed("prepare", engine.prepare, asked.pod, self._core.clock()):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await self._decided(asked.pod.metadata.uid)
        nodes = asked.candidates()
        verdict = timed("filter", engine.filter, asked.pod, nodes, self._core.clock(), unheld=unheld)
        self._core.flush()
        code = verdict.reason.code if verdict.reason else "Offered"
        self._core.metrics.decisions.labels("filter", code).inc()
        log.debug("filter", pod=_name(asked.pod), code=code, nodes=len(verdict.nodes))
        return verdict

    async def _decided(self, uid: str) -> None:
        """Let an earlier pod's bind come first, where it was offered several nodes; it comes within milliseconds."""
        engine, clock = self._core.engine, self._core.clock
        if not engine.undecided(uid, clock()):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(engine.settings.undecided_s):
                while engine.undecided(uid, clock()):
                    self._binds.arrived.clear()
                    await self._binds.arrived.wait()

    async def prioritize(self, body: bytes) -> Answer:
        asked = shapes.args(body)
        timed = self._core.metrics.steps.timed
        return answer(shapes.scores(timed("prioritize", self._core.engine.prioritize, asked.pod, asked.candidates())))

    async def preempt(self, body: bytes) -> Answer:
        asked = shapes.preemption(body)
        victims = {node: found.uids() for node, found in asked.victims().items()}
        kept = self._core.metrics.steps.timed("preempt", self._core.engine.preempt, asked.pod, victims)
        self._core.metrics.decisions.labels("preempt", "Candidates" if kept else "None").inc()
        log.debug("preempt", pod=_name(asked.pod), asked=len(victims), kept=len(kept))
        return answer(shapes.surviving(asked, kept))

    async def bind(self, body: bytes, gone: Gone) -> Answer:
        return answer(shapes.BindingResult(await self.bound(body, gone)))

    async def bound(self, body: bytes, gone: Gone) -> str:
        """Bind as asked; "" or why not."""
        asked = shapes.binding(body)
        return await self._binds.bind(PodRef(asked.pod_namespace, asked.pod_name, asked.pod_uid), asked.node, gone)


class VerbApp:
    """The ASGI application of questions: one POST each, with a body and an answer that fit into memory.

    All other paths are left to `others`; asked first, it would cost each question as much time as the answer takes.
    """

    def __init__(
        self,
        core: Core,
        gate: Gate,
        handlers: Mapping[str, Patient],
        others: Application,
        traffic: Traffic,
        *,
        ungated: Mapping[str, Patient] | None = None,
    ) -> None:
        """`ungated` handlers answer at a closed gate, too. `traffic` is told when kube-scheduler waits for us."""
        self._gate, self._others, self._traffic = gate, others, traffic
        self._handlers, self._ungated = {**handlers, **(ungated or {})}, frozenset(ungated or ())
        self._seconds = {path: core.metrics.verb_seconds.labels(path.rpartition("/")[2]) for path in self._handlers}
        self._clock, self._faults = core.clock, core.metrics.faults

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        handler = self._handlers.get(scope.get("path", ""))
        if handler is None:
            await self._others(scope, receive, send)
            return
        status, media_type, body = await self._answered(scope, receive, handler)
        headers = [(b"content-type", media_type), (b"content-length", str(len(body)).encode())]
        if status == 413:  # the rest of the body is not read
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answered(self, scope: Message, receive: Receive, handler: Patient) -> Answer:
        path: str = scope["path"]
        if scope["method"] != "POST":
            return complaint(405, f"{scope['method']} {path}: expected POST")
        holds = path.endswith("/bind")
        bound = BIND_BODY if holds else VERB_BODY
        body = await _body(receive, bound.most)
        if body is None:
            return complaint(413, f"{bound.what}: expected at most {bound.most} {bound.unit}")
        if path not in self._ungated and not await self._gate.passed():
            return complaint(503, self._gate.why)
        began = self._clock()
        self._traffic.begin(holds=holds)
        try:
            with self._faults.over("verb", path):
                return await self._read(path, handler(body, lambda: _gone(receive)))
            return complaint(500, BROKEN)
        finally:
            self._traffic.end(holds=holds)
            self._seconds[path].observe(self._clock() - began)

    async def _read(self, path: str, answering: Awaitable[Answer]) -> Answer:
        try:
            return await answering
        except shapes.WireError as error:
            log.warning("verb_not_read", path=path, error=str(error))
            return complaint(400, str(error))


def _filtered(asked: shapes.Args, verdict: Verdict) -> Answer:
    if verdict.reason is not None:
        return answer(shapes.refused(asked, verdict.reason.sentence))
    return answer(shapes.kept(asked, verdict.nodes))


async def _body(receive: Receive, most: int) -> bytes | None:
    """The whole body; None if it is too long or its sender is gone."""
    parts, length, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part = message.get("body", b"")
        parts.append(part)
        length += len(part)
        more = message.get("more_body", False)
        if length > most:
            return None
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _gone(receive: Receive) -> None:
    """Wait until the connection of a question whose body was read is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"

"""kube-scheduler's questions over HTTP: filter, prioritize, preempt, bind, and observe for pods without GPUs.

Bare ASGI: a body is decoded straight into the shapes of `extender.wire`, the engine answers from memory, and nothing
is awaited between reading the books and writing them. For kube-scheduler any status but 200 fails the scheduling
attempt. A closed gate answers 503, so it fails the attempt too.
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
UNGATED = f"{PREFIX}/observe"
"""Answered at a closed gate too."""

log = structlog.get_logger(__name__)
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
Answer = tuple[int, bytes, bytes]
"""Status, media type, body."""
Handler = Callable[[bytes], Awaitable[Answer]]
LateHandler = Callable[[bytes, Gone], Awaitable[Answer]]
"""Answers a body, perhaps late; it can find out whether the caller is gone."""


def answer(value: Any, status: int = 200) -> Answer:
    """A JSON answer."""
    return status, JSON, shapes.encode(value)


def complaint(status: int, sentence: str) -> Answer:
    """A text answer that says what is wrong."""
    return status, TEXT, sentence.encode()


def at_once(handler: Handler) -> LateHandler:
    """A handler that ignores whether the caller is gone."""
    return lambda body, _: handler(body)


class Verbs:
    """Answers the questions from one engine."""

    def __init__(self, core: Core, binds: Binds, gate: Gate) -> None:
        self._core, self._binds, self._gate = core, binds, gate

    @property
    def handlers(self) -> Mapping[str, LateHandler]:
        """By path."""
        verbs = (self.filter, self.prioritize, self.preempt, self.observe)
        return {f"{PREFIX}/{verb.__name__}": at_once(verb) for verb in verbs} | {f"{PREFIX}/bind": self.bind}

    async def filter(self, body: bytes) -> Answer:
        asked = shapes.args(body)
        return _filtered(asked, await self.verdict(asked))

    async def observe(self, body: bytes) -> Answer:
        """filter of a pod that names none of our resources. Only a member of a gang matters.

        kube-scheduler ignores errors of this entry and binds such pods itself. So a member needs a refusal in a valid
        answer, and other pods must not wait for anything.
        """
        seen = shapes.pod_only(body)
        if not self._core.engine.concerns(seen.pod):
            return 200, JSON, shapes.unchanged(seen)
        asked = shapes.args(body)
        if self._gate.why:
            return _filtered(asked, Verdict((), self._core.engine.hold_back(asked.pod)))
        return _filtered(asked, await self.verdict(asked, unheld=True))

    async def verdict(self, asked: shapes.Args, *, unheld: bool = False) -> Verdict:
        """The nodes that the pod may use, or why there are none. `unheld`: kube-scheduler binds the pod itself."""
        engine, timed = self._core.engine, self._core.metrics.steps.timed
        nodes = asked.candidates()
        while timed("prepare", engine.prepare, asked.pod, nodes, self._core.clock()):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await self._decided(asked.pod.metadata.uid)
        verdict = timed("filter", engine.filter, asked.pod, nodes, self._core.clock(), unheld=unheld)
        self._core.flush()
        code = verdict.reason.code if verdict.reason else "Offered"
        self._core.metrics.decisions["filter", code] += 1
        log.debug("filter", pod=_name(asked.pod), code=code, nodes=len(verdict.nodes))
        return verdict

    async def _decided(self, uid: str) -> None:
        """Wait for the bind of an earlier pod that was offered several nodes. It comes within milliseconds."""
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
        victims = {node: on_node.uids() for node, on_node in asked.victims().items()}
        kept = self._core.metrics.steps.timed("preempt", self._core.engine.preempt, asked.pod, victims)
        self._core.metrics.decisions["preempt", "Candidates" if kept else "None"] += 1
        log.debug("preempt", pod=_name(asked.pod), asked=len(victims), kept=len(kept))
        return answer(shapes.surviving(asked, kept))

    async def bind(self, body: bytes, gone: Gone) -> Answer:
        return answer(shapes.BindingResult(await self.bound(body, gone)))

    async def bound(self, body: bytes, gone: Gone) -> str:
        """Bind the pod; "" if it is bound, else why not."""
        asked = shapes.binding(body)
        return await self._binds.bind(PodRef(asked.pod_namespace, asked.pod_name, asked.pod_uid), asked.node, gone)


class VerbApp:
    """The ASGI application of the questions. Each is one POST whose body and answer fit into memory.

    `others` serves all other paths. It comes last, as it would cost a question as much time as the answer itself.
    """

    def __init__(
        self, core: Core, gate: Gate, handlers: Mapping[str, LateHandler], others: Application, traffic: Traffic
    ) -> None:
        """`traffic` counts the questions without an answer."""
        self._gate, self._handlers, self._others, self._traffic = gate, handlers, others, traffic
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

    async def _answered(self, scope: Message, receive: Receive, handler: LateHandler) -> Answer:
        path: str = scope["path"]
        if scope["method"] != "POST":
            return complaint(405, f"{scope['method']} {path}: expected POST")
        holds = path.endswith("/bind")
        bound = BIND_BODY if holds else VERB_BODY
        body = await body_of(receive, bound.most)
        if body is None:
            return complaint(413, f"{bound.what}: expected at most {bound.most} {bound.unit}")
        if path != UNGATED and not await self._gate.passed():
            return complaint(503, self._gate.why)
        began = self._clock()
        self._traffic.begin(holds=holds)
        try:
            with self._faults.over("verb", path):
                try:
                    return await handler(body, lambda: _gone(receive))
                except shapes.WireError as error:
                    log.warning("verb_not_read", path=path, error=str(error))
                    return complaint(400, str(error))
            return complaint(500, BROKEN)
        finally:
            self._traffic.end(holds=holds)
            self._seconds[path].observe(self._clock() - began)


def _filtered(asked: shapes.Args, verdict: Verdict) -> Answer:
    if verdict.reason is not None:
        return answer(shapes.refused(asked, verdict.reason.sentence))
    return answer(shapes.kept(asked, verdict.nodes))


async def body_of(receive: Receive, most: int) -> bytes | None:
    """The whole body; None if it is too long or the caller is gone."""
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
    """Wait until the caller of a question whose body was read is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"

"""kube-scheduler's questions over HTTP: filter, prioritize, preempt, bind, and observe for pods without GPUs.

A body is decoded straight into the shapes of `extender.wire`, the engine answers from memory, and nothing is awaited
between reading the books and writing them. For kube-scheduler any status but 200 fails the scheduling
attempt. A closed gate answers 503, so it fails the attempt too.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from extender.engine.types.effects import PodRef, Verdict
from extender.server.binds import BROKEN, Binds
from extender.server.core import Core
from extender.server.desk import Traffic
from extender.server.direct import Answer, Gone, Question, Questions
from extender.server.gate import Gate
from extender.wire import shapes
from protos.contract.bounds import BIND_BODY, VERB_BODY
from protos.contract.objects import Pod

JSON, TEXT = b"application/json", b"text/plain; charset=utf-8"
PREFIX = "/scheduler"
UNGATED = f"{PREFIX}/observe"
"""Answered at a closed gate too."""

log = structlog.get_logger(__name__)
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
        self._core.observer.answered(asked.pod.metadata.uid, verdict.reason)
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


class VerbQuestions:
    """Answers the verbs by path. Each is one POST."""

    def __init__(self, core: Core, gate: Gate, handlers: Mapping[str, LateHandler], traffic: Traffic) -> None:
        """`traffic` counts the questions without an answer."""
        self._gate, self._traffic = gate, traffic
        self._clock, self._faults, self._seconds = core.clock, core.metrics.faults, core.metrics.verb_seconds
        self.by_path: Questions = {path.encode(): self._question(path, handlers[path]) for path in handlers}

    def _question(self, path: str, handler: LateHandler) -> Question:
        holds, seconds = path.endswith("/bind"), self._seconds.labels(path.rpartition("/")[2])
        bound = BIND_BODY if holds else VERB_BODY

        async def answered(method: bytes, body: bytes, gone: Gone) -> Answer:
            if method != b"POST":
                return complaint(405, f"{method.decode()} {path}: expected POST")
            if len(body) > bound.most:
                return complaint(413, bound.exceeded(len(body)))
            if path != UNGATED and not await self._gate.passed():
                return complaint(503, self._gate.why)
            began = self._clock()
            self._traffic.begin(holds=holds)
            try:
                return await self._tried(path, handler(body, gone))
            finally:
                self._traffic.end(holds=holds)
                seconds.observe(self._clock() - began)

        return answered

    async def _tried(self, path: str, handled: Awaitable[Answer]) -> Answer:
        with self._faults.over("verb", path):
            try:
                return await handled
            except shapes.WireError as error:
                log.warning("verb_not_read", path=path, error=str(error))
                return complaint(400, str(error))
        return complaint(500, BROKEN)


def _filtered(asked: shapes.Args, verdict: Verdict) -> Answer:
    if verdict.reason is not None:
        return answer(shapes.refused(asked, verdict.reason.sentence))
    return answer(shapes.kept(asked, verdict.nodes))


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"

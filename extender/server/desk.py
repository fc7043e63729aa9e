"""What people ask is worked out here: in short slices, behind kube-scheduler's questions, once for all who ask alike.

An answer is finished before its first byte is sent, so a slow reader holds up no work.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus

import structlog

from extender.steps import Steps

Pieces = Iterator[bytes]
"""The parts of an answer as they come; between two of them others may have their turn."""

SLICE_S = 0.001
"""Work between two turns of the event loop."""
QUIET_S = 0.001
"""Seconds since kube-scheduler's last question after which there is time for people."""
PATIENCE_S = 0.02
"""Seconds that a slice waits for that at most."""
PART = 64 << 10
"""Bytes that are sent at a time."""
MOST_OUT = 256 << 20
"""Bytes of answers that are on their way to readers."""

log = structlog.get_logger(__name__)


class Refusal(Exception):
    """A question that gets no other answer than this: a status and a sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


def missing(sentence: str) -> Refusal:
    """That there is no such thing."""
    return Refusal(HTTPStatus.NOT_FOUND, sentence)


class Traffic:
    """kube-scheduler's questions, and whose turn it is beside them."""

    def __init__(self, steps: Steps, tidy: Callable[[], None]) -> None:
        """`tidy` is called after each slice: it may have made much garbage."""
        self._steps, self._tidy = steps, tidy
        self._last, self._under_way = 0.0, 0
        self._turn = asyncio.Lock()

    def begin(self, *, holds: bool) -> None:
        """One has come; `holds`: its answer may be held back for long, and nobody waits behind it."""
        self._under_way += not holds
        self._last = time.monotonic()

    def end(self, *, holds: bool) -> None:
        """It is answered."""
        self._under_way -= not holds

    async def slice(self, work: Callable[[float], bool]) -> bool:
        """Call `work` with the time at which it has to pause; its answer. One slice in each turn of the event loop."""
        async with self._turn:
            await asyncio.sleep(0)
            began = time.monotonic()
            while self._busy() and time.monotonic() - began < PATIENCE_S:  # noqa: ASYNC110  # verbs are to pay nothing
                await asyncio.sleep(QUIET_S)
            more = self._steps.timed("page", work, time.monotonic() + SLICE_S)
            self._tidy()
            return more

    async def part(self, send: Awaitable[None]) -> None:
        """Send a part of an answer, one in each turn of the event loop, too; its reader may take longer than that."""
        async with self._turn:
            await asyncio.sleep(0)
        await send

    def _busy(self) -> bool:
        return self._under_way > 0 or time.monotonic() - self._last < QUIET_S


class Answer:
    """A finished answer, in parts that are sent one at a time."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size, self.readers = 0, 0
        self._rest = bytearray()

    def add(self, piece: bytes) -> None:
        self._rest += piece
        self.size += len(piece)
        if len(self._rest) >= PART:
            self.finish()

    def finish(self) -> None:
        """No more comes of the last part."""
        if self._rest:
            self.parts.append(bytes(self._rest))
            self._rest.clear()


class Desk:
    """Works on one question at a time; who asks what is being asked already gets that answer.

    An answer is never older than the question: what is worked on already is for those who asked before.
    """

    def __init__(self, traffic: Traffic, most: int, busy: str) -> None:
        """At most so many different questions at a time; the next one is told `busy`."""
        self._traffic, self._most, self._busy = traffic, most, busy
        self._turn = asyncio.Lock()
        self._asked: dict[str, asyncio.Task[Answer]] = {}
        """Not begun yet."""
        self._works: set[asyncio.Task[Answer]] = set()
        self._out = 0

    async def ask(self, question: str, work: Callable[[], Pieces]) -> Answer:
        """The answer to this question, which `work` works out; raises Refusal."""
        found = self._asked.get(question)
        if found is None:
            if len(self._works) >= self._most or self._out > MOST_OUT:
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, self._busy)
            found = self._asked[question] = asyncio.create_task(self._worked_out(question, work))
            self._works.add(found)
            found.add_done_callback(self._done)
        return await asyncio.shield(found)

    def _done(self, work: asyncio.Task[Answer]) -> None:
        self._works.discard(work)
        if not work.cancelled():
            work.exception()  # whoever asked may be gone

    async def _worked_out(self, question: str, work: Callable[[], Pieces]) -> Answer:
        async with self._turn:
            del self._asked[question]
            answer = Answer()
            try:
                pieces = work()
                while await self._traffic.slice(lambda until: _advance(pieces, answer, until)):
                    pass
            except Refusal:
                raise
            except Exception as error:
                log.exception("question_broke", question=question[:200])
                raise Refusal(
                    HTTPStatus.INTERNAL_SERVER_ERROR, "this question failed: see the extender's log"
                ) from error
            answer.finish()
            return answer

    async def part(self, send: Awaitable[None]) -> None:
        """Send a part of an answer, as no other is."""
        await self._traffic.part(send)

    @contextlib.contextmanager
    def reading(self, answer: Answer) -> Iterator[None]:
        """While a reader takes it."""
        answer.readers += 1
        self._out += answer.size if answer.readers == 1 else 0
        try:
            yield
        finally:
            answer.readers -= 1
            self._out -= answer.size if not answer.readers else 0


def _advance(pieces: Pieces, answer: Answer, until: float) -> bool:
    """Work until then; whether there is more to do."""
    for piece in pieces:
        answer.add(piece)
        if time.monotonic() >= until:
            return True
    return False

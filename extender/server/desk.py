"""Makes the pages for people: in short slices, after kube-scheduler's questions, once for equal questions.

A page is made of pieces, and other work runs between two of them. An answer is complete before its first byte is sent,
so a slow reader delays no work.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
import structlog

from extender.steps import Steps

K = TypeVar("K")
V = TypeVar("V")
Pieces = Iterator[bytes]
"""The pieces of an answer. Other work may run between two of them."""

SLICE = 200
"""Objects that a page only counts or compares, between two pieces."""
SLICE_S = 0.001
"""Work between two turns of the event loop."""
QUIET_S = 0.001
"""Seconds without a question of kube-scheduler after which pages are made."""
PATIENCE_S = 0.02
"""Seconds at most that a slice waits for such a pause."""
PART = 64 << 10
"""Bytes sent at a time."""
MOST_OUT = 256 << 20
"""Bytes of all answers that are being sent; beyond them new questions are refused."""
BUSY = "too many questions at once: try again"

log = structlog.get_logger(__name__)


class Refusal(Exception):
    """A question is refused with a status and a sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


def current(table: Mapping[K, V], keys: Iterable[K] | None = None) -> Iterator[V]:
    """The values of a table that changes meanwhile, in the order of `keys`; deleted ones are skipped."""
    for key in list(table) if keys is None else keys:
        value = table.get(key)
        if value is not None:
            yield value


def wanted(objects: Iterable[V], wants: Callable[[V], bool]) -> Generator[bytes, None, list[V]]:
    """Those of many objects that the page wants. It makes an empty piece for every `SLICE` of them."""
    found = []
    for number, each in enumerate(objects):
        if wants(each):
            found.append(each)
        if number % SLICE == 0:
            yield b""
    return found


def joined(items: Iterable[object]) -> Pieces:
    """The items of a list with commas between them, one in each piece. None makes an empty piece."""
    comma = b""
    for item in items:
        if item is None:
            yield b""
        else:
            yield comma + msgspec.json.encode(item)
            comma = b","


def json_object(fields: Mapping[str, Any], lists: Mapping[str, Iterable[object]]) -> Pieces:
    """An object with these fields, then these long lists."""
    start = msgspec.json.encode(fields)[:-1]
    for name, items in lists.items():
        yield start + b"," * (start != b"{") + msgspec.json.encode(name) + b":["
        yield from joined(items)
        start = b"]"
    yield start + b"}"


class Traffic:
    """Counts kube-scheduler's questions, and gives turns to other work."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._last, self._under_way = 0.0, 0
        self._turn = asyncio.Lock()

    def begin(self, *, holds: bool) -> None:
        """A question came. `holds`: its answer may be held for long and delays no other question."""
        self._under_way += not holds
        self._last = time.monotonic()

    def end(self, *, holds: bool) -> None:
        """The question is answered."""
        self._under_way -= not holds

    async def slice(self, work: Callable[[float], bool]) -> bool:
        """Call `work` with the time at which it must pause; its result. One slice in each turn of the event loop."""
        async with self._turn:
            await asyncio.sleep(0)
            began = time.monotonic()
            while self._busy() and time.monotonic() - began < PATIENCE_S:  # noqa: ASYNC110  # verbs are to pay nothing
                await asyncio.sleep(QUIET_S)
            more = self._steps.timed("page", work, time.monotonic() + SLICE_S)
            self._steps.tidy()
            return more

    async def part(self, send: Awaitable[None]) -> None:
        """Start to send a part of an answer, one in each turn of the event loop. A slow reader delays no other turn."""
        async with self._turn:
            await asyncio.sleep(0)
        await send

    def _busy(self) -> bool:
        return self._under_way > 0 or time.monotonic() - self._last < QUIET_S


class Answer:
    """An answer in parts that are sent one at a time."""

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
        """Close the last part."""
        if self._rest:
            self.parts.append(bytes(self._rest))
            self._rest.clear()


class Desk:
    """Makes one answer at a time. A question that equals a waiting one shares its answer.

    An answer is never older than its question, so no question shares an answer whose work has begun.
    """

    def __init__(self, traffic: Traffic, most: int, busy: str = BUSY) -> None:
        """With `most` different questions under way, the next is refused with the sentence `busy`."""
        self.traffic, self._most, self._busy = traffic, most, busy
        self._turn = asyncio.Lock()
        self._waiting: dict[str, asyncio.Task[Answer]] = {}
        """By question, until its work begins."""
        self._tasks: set[asyncio.Task[Answer]] = set()
        self._out = 0
        """Bytes of the answers that are being sent."""

    async def ask(self, question: str, work: Callable[[], Pieces]) -> Answer:
        """The answer to this question, made by `work`; raises Refusal."""
        task = self._waiting.get(question)
        if task is None:
            if len(self._tasks) >= self._most or self._out > MOST_OUT:
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, self._busy)
            task = self._waiting[question] = asyncio.create_task(self._make(question, work))
            self._tasks.add(task)
            task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Answer]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # read it, as all callers may be gone

    async def _make(self, question: str, work: Callable[[], Pieces]) -> Answer:
        async with self._turn:
            del self._waiting[question]
            answer = Answer()
            try:
                pieces = work()
                while await self.traffic.slice(lambda until: _advance(pieces, answer, until)):
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

    @contextlib.contextmanager
    def reading(self, answer: Answer) -> Iterator[None]:
        """Count the bytes of an answer while at least one reader takes it."""
        answer.readers += 1
        self._out += answer.size if answer.readers == 1 else 0
        try:
            yield
        finally:
            answer.readers -= 1
            self._out -= answer.size if not answer.readers else 0


def _advance(pieces: Pieces, answer: Answer, until: float) -> bool:
    """Add pieces until this time; whether more remain."""
    for piece in pieces:
        answer.add(piece)
        if time.monotonic() >= until:
            return True
    return False

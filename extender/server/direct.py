"""Questions that are answered on uvicorn's connections without ASGI: the body in, the answer out.

ASGI's scope, messages and events take as long for each request as half a filter. A question of kube-scheduler fits into
memory, and so does its answer. docs/adr/0026 has the figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from extender.server.protocol import Limits, Load, Protocol

Answer = tuple[int, bytes, bytes]
"""Status, media type, body."""
Gone = Callable[[], Coroutine[Any, Any, None]]
"""Waits until the caller is gone."""
Question = Callable[[bytes, bytes, Gone], Awaitable[Answer]]
"""Answers a method and a body, and raises nothing."""
Questions = Mapping[bytes, Question]
"""By path."""


class _Exchange:
    """A question and its answer. It has those attributes of uvicorn's cycle of a request that its protocol uses."""

    def __init__(self, question: Question, method: bytes, *, keep_alive: bool) -> None:
        self.question, self.method, self.keep_alive = question, method, keep_alive
        self.body, self.more_body = bytearray(), True
        self.disconnected = self.response_started = self.response_complete = False
        self.message_event = asyncio.Event()
        """Set whenever any of these has changed."""

    async def answer(self) -> Answer:
        return await self.question(self.method, bytes(self.body), self._gone)

    async def _gone(self) -> None:
        while not self.disconnected:
            self.message_event.clear()
            await self.message_event.wait()


class DirectProtocol(Protocol):
    """A connection on which some paths are answered directly, and all others by the ASGI application."""

    def __init__(self, questions: Questions, limits: Limits, load: Load, **given: Any) -> None:
        super().__init__(limits, load, **given)
        self._questions = questions
        self._straight: asyncio.Transport
        """Without a buffer: an answer is one write."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._straight = transport
        super().connection_made(transport)

    def on_headers_complete(self) -> None:
        question = self._questions.get(self.url.partition(b"?")[0])
        if question is None:
            super().on_headers_complete()
            return
        self._in_head = False
        if self.expect_100_continue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        self.cycle = cast("Any", _Exchange(question, self.parser.get_method(), keep_alive=keep_alive))

    def on_body(self, body: bytes) -> None:
        if isinstance(self.cycle, _Exchange):
            self._count(body)
            self.cycle.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if isinstance(self.cycle, _Exchange):
            task = self.loop.create_task(self._answer(self.cycle))
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)

    async def _answer(self, exchange: _Exchange) -> None:
        status, media_type, body = await exchange.answer()
        if exchange.disconnected or self._straight.is_closing():
            return
        close = b"" if exchange.keep_alive else b"connection: close\r\n"
        head = b"content-type: %s\r\ncontent-length: %d\r\n%s\r\n" % (media_type, len(body), close)
        self._straight.write(STATUS_LINE[status] + head + body)
        exchange.response_complete = True
        if not exchange.keep_alive:
            self._straight.close()
        self.on_response_complete()

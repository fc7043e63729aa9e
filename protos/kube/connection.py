"""One HTTP/1.1 connection of a client: a request is one write, httptools parses the answer.

Source: RFC 9112; httptools is the parser of Node.js for Python.
"""

import asyncio
import contextlib
import socket
import ssl
from typing import Any, cast

import httptools

BUFFER = 1 << 20
"""Unread bytes of a stream above which reading from the socket pauses."""

_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""These detect a vanished peer within half a minute; the last value is in ms (Linux)."""


class Lost(ConnectionError):
    """The connection broke, or received something other than HTTP, during or after the sending of the request."""

    reused = False
    """The connection was reused and no answer began: the server may just have closed it."""


class Connection(asyncio.Protocol):
    """One connection with one request at a time; its callers are the transport and httptools."""

    def __init__(self, siblings: "set[Connection]", tls: ssl.SSLContext | None) -> None:
        """`tls`: its TLS context, None for plain HTTP."""
        self._siblings, self.tls = siblings, tls
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = self._deadline = 0.0
        self._parser: Any = None
        self._whole = self._paused = self._served = False
        self._complete = self._lasting = True
        self._gone = ""
        """Why it ended, "" while it has not: no error is held, which would hold this by its traceback."""
        self._parts: list[bytes] = []
        self._waiting = 0
        self.idle_since = 0.0
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        """By lower-case name."""

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return not self._gone and self._complete and self._lasting and not self._parts

    async def send(self, request: bytes, *, whole: bool, within_s: float) -> None:
        """Send a request, and wait for the head of the answer, or the complete answer (`whole`).

        Raises Lost, and TimeoutError after so many seconds.
        """
        self._served, reused = True, self._served
        self._whole, self._complete, self.status, self.headers = whole, False, 0, {}
        try:
            if self._transport is None or self._gone:
                raise Lost(self._gone or "the connection was closed")
            self._transport.write(request)
            self._allow(within_s)
            while not (self._complete or (self.status and not whole)):
                await self._news()
        except Lost as lost:
            lost.reused = reused and not self.status and not self._waiting
            raise

    def continue_over(self, transport: asyncio.Transport) -> None:
        """Continue over a tunnel, like a new connection."""
        self._transport, self._complete, self._lasting, self._served = transport, True, True, False
        self._parser = httptools.HttpResponseParser(self)

    async def chunk(self, within_s: float) -> bytes:
        """The data of a streamed answer since the last call; empty at the end of the answer. Raises as `send`."""
        if not self._parts and not self._complete:
            self._allow(within_s)
            while not self._parts and not self._complete:
                await self._news()
        return self.taken()

    async def rest(self, within_s: float) -> bytes:
        """The remaining body, each chunk within so many seconds."""
        chunks = []
        while chunk := await self.chunk(within_s):
            chunks.append(chunk)
        return b"".join(chunks)

    def taken(self) -> bytes:
        """The body received since the last call."""
        parts, self._parts, self._waiting = self._parts, [], 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Close it; what waits for it raises Lost."""
        self._siblings.discard(self)
        if self._transport is not None:
            self._transport.abort()
        self._ended("the connection was closed")

    async def _news(self) -> None:
        if self._gone:
            raise Lost(self._gone)
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _allow(self, seconds: float) -> None:
        """Let the waits that follow last so long together.

        A timer for each request would cost more than its headers. So a timer stays when its request has been answered,
        and is set again when it rings too early for a later one.
        """
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + seconds
        if self._timer is None or self._deadline < self._rings_at:
            self._ring(loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timer to the deadline."""
        self._silence()
        self._rings_at, self._timer = self._deadline, loop.call_at(self._deadline, self._rang)

    def _rang(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._deadline:
            self._ring(loop)
        else:
            self._waiter.set_exception(TimeoutError())

    def _silence(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _ended(self, why: str) -> None:
        self._gone = self._gone or why
        self._silence()
        self._wake()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._parser = cast("asyncio.Transport", transport), httptools.HttpResponseParser(self)
        _keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        if self._complete:  # data without a request
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._ended(f"expected an HTTP answer ({error})")
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._siblings.discard(self)
        orderly = error is None and not self._gone
        if orderly and self.status and not self.headers.keys() & {b"content-length", b"transfer-encoding"}:
            self._complete = True  # such an answer ends with the connection
        self._ended(str(error or "") or "the server closed the connection")
        self._parser = self._transport = None  # they refer to this connection: no cycle is left for the collector

    # httptools

    def on_message_begin(self) -> None:
        if self._complete:
            raise Lost("more came than was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # an interim answer
            self.headers = {}
            return
        self.status = status
        if not self._whole:
            self._wake()

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)
        if self._whole:
            return
        self._waiting += len(part)
        if self._waiting > BUFFER and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self.status:
            self._complete, self._lasting = True, self._parser.should_keep_alive()
            self._wake()


def _keep_alive(connected: socket.socket | None) -> None:
    if connected is None:
        return
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
